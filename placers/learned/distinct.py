"""Placements without repetitions."""

import numpy as np

from graphs.op_graph import Ints


def distinct(placements: Ints) -> Ints:
    """(distinct, units) each of (placements, units) once, in the order in which they first appear."""
    first: Ints = np.sort(np.unique(placements, axis=0, return_index=True)[1])
    return placements[first]
