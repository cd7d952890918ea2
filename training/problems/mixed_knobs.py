"""Further graphs of families to train on: each knob is drawn from those of the family's training graphs, by itself.

layers=2,steps=16  and  layers=4,steps=12  also give  layers=2,steps=12  and  layers=4,steps=16.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator

import numpy as np

from graphs.files.splits import split
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph

TRIES = 20  # for each graph that is wanted: knobs may not go together, and few knobs have few mixtures

_log = logging.getLogger("placelab")


def mixed_graphs(
    family: str, count: int, rng: np.random.Generator, capture: Callable[[str], OpGraph]
) -> Iterator[OpGraph]:
    """At most `count` further graphs of a family, none with the edges of one of its test graphs, which are captured.

    Mixtures that cannot be built, such as heads that do not divide a width, are passed over.
    """
    tested = {_edges(capture(spec)) for spec in split([family], "test")}
    for spec in mixed_specs(family, TRIES * count, rng):
        if count == 0:
            return
        try:
            graph = capture(spec)
        except InputError as error:
            _log.info("passed over %s: %s", spec, error)
            continue
        if _edges(graph) not in tested:
            count -= 1
            yield graph


def mixed_specs(family: str, tries: int, rng: np.random.Generator) -> Iterator[str]:
    """Different specs in that many tries, none of them listed by the family, to train or to test on."""
    listed = [by_name.parse(spec)[1] for spec in split([family], "train")]
    seen = {_key(by_name.parse(spec)[1]) for spec in split([family], "test")} | {_key(knobs) for knobs in listed}
    for _ in range(tries):
        first = listed[rng.integers(len(listed))]
        knobs = {}
        for knob in first:
            values = [each[knob] for each in listed if knob in each]
            knobs[knob] = values[rng.integers(len(values))]
        if _key(knobs) not in seen:
            seen.add(_key(knobs))
            yield by_name.spec_of(family, knobs)


def _key(knobs: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(knobs.items()))


def _edges(graph: OpGraph) -> str:
    """Equal for graphs whose ops feed each other alike: captures of a family number ops alike."""
    return hashlib.sha256(graph.edges.tobytes()).hexdigest()
