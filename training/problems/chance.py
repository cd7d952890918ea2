"""Chance: what is drawn of the settings of a problem set, in proportion to what they say.

Nothing is drawn for what never happens, or where there is one choice alone, so that a new kind of chance changes no
older problem set.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Choice = TypeVar("Choice")


def happens(share: float, rng: np.random.Generator) -> bool:
    """By chance, with the probability of a share."""
    return share > 0 and rng.random() < share


def one_of(choices: Sequence[Choice], rng: np.random.Generator) -> Choice:
    """One of some choices, each as often as it is listed."""
    return choices[int(rng.integers(len(choices)))] if len(choices) > 1 else choices[0]
