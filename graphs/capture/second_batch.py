"""Second batch: a model is captured with another batch, and two captures say what does not grow with it.

Never with a batch of 1, for which PyTorch leaves out operations. A warning names a model that does not give the same
ops with another batch; a rule (`graphs.transforms.batch.law_of`) then takes the place of the exact law.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.transforms.batch import law_between

_log = logging.getLogger("placelab")


def with_law(graph: OpGraph, capture: Callable[[int], OpGraph]) -> OpGraph:
    """A captured graph with its batch law, if `capture`, which makes it of other samples, gives the same ops.

    A graph that does not know how many samples it has is returned as it is.
    """
    samples = graph.samples
    if samples < 1:
        return graph
    other = other_samples(samples)
    try:
        with _said_already():
            again = capture(other)
        law, why = (
            law_between(graph, samples, again, other),
            "its ops differ then, or their costs do not grow as a line does",
        )
    except InputError as error:
        law, why = None, str(error)
    if law is None:
        _log.warning(
            "%s: how its costs grow with the batch is assumed, since a second capture, with %d samples in place of %d, "
            "does not say: %s", graph.name, other, samples, why,
        )  # fmt: skip
        return graph
    held = graph.held if graph.held is None or again.held is None else graph.held.with_growth(again.held)
    return replace(graph, batch_law=law, held=held)


@contextmanager
def _said_already() -> Iterator[None]:
    """No warnings inside: the first capture has given them."""
    before, _log.disabled = _log.disabled, True
    try:
        yield
    finally:
        _log.disabled = before


def other_samples(samples: int) -> int:
    """How many samples to capture a model with in addition: half as many, but neither 1 nor the same."""
    return max(samples // 2, 2) if samples != 2 else 4
