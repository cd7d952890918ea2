"""The kinds of random graphs, by name."""

from collections.abc import Callable, Iterable

import numpy as np

from graphs.foundation.errors import InputError, unknown
from training.problems.random import network_kinds, numeric_kinds, simple_kinds
from training.problems.random.shape import Shape

FEWEST_NODES = 8  # of a shape of any kind

KINDS: dict[str, Callable[[np.random.Generator, int], Shape]] = {
    kind.__name__: kind
    for kind in (
        simple_kinds.chain,
        simple_kinds.tree,
        simple_kinds.fan,
        simple_kinds.series_parallel,
        simple_kinds.layered,
        simple_kinds.components,
        numeric_kinds.tiles,
        numeric_kinds.butterfly,
        numeric_kinds.elimination,
        network_kinds.recurrent,
        network_kinds.residual,
        network_kinds.attention,
    )
}


def check_kinds(kinds: Iterable[str]) -> None:
    """Raise InputError for a kind that there is not, or that is given twice."""
    seen = set[str]()
    for kind in kinds:
        if kind not in KINDS:
            raise InputError(unknown("kind of graph", kind, list(KINDS)))
        if kind in seen:
            raise InputError(f"kind of graph {kind!r} is given twice; give each once")
        seen.add(kind)
