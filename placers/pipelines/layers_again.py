"""Layers that are computed again: of all choices that save enough memory, the one of least time.

What is computed again are spans of consecutive layers, each as one: a block of a Transformer, or a part of it, such as
its attention where that keeps scores (Korthikanti et al. 2022). A span that is computed again keeps what others read of
it, and saves the other outputs that wait for the backward pass:

    layers      0   1   2   3   4   5   6   7
    again           -------     ---------         of (1, 4) is saved what layers 1, 2 and 3 make for each other

The choice is a shortest path over layers, each kept or the beginning of a span. Bytes are a second label beside
seconds: of the paths from a layer those are followed that no other one equals in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from envs.pipelines.layers import Layers, sums_before
from envs.pipelines.pipeline import Span
from graphs.op_graph import Bools, Floats, Ints, Phase
from graphs.problem import Problem

STEP = 1e-4  # of the bytes that are needed; finer differences do not count
TICK = 1e-9  # of all seconds, likewise


class Paths(NamedTuple):
    """Paths from a layer to the end, by how much they save, most first; (paths,) each."""

    saved: Floats  # bytes, at most those that are needed
    seconds: Floats
    end: Ints  # where the span ends that begins at the layer, or the layer alone, which is kept
    follows: Ints  # the path from there
    is_again: Bools  # whether it is such a span


@dataclass(frozen=True, eq=False)
class LayersAgain:
    """What the layers of a problem save and take if they are computed again, for a part of the batch on one device."""

    seconds: Floats  # (layers + 1,) of the forward passes of the layers before each
    saved: Floats  # (layers + 1, layers + 1) bytes that are not kept of a span (first, end)
    begin: Ints  # (layers,) the first layer of the block that each is in, or the number of layers outside of blocks

    @classmethod
    def of(cls, problem: Problem, layers: Layers, share: Floats | float = 1.0) -> LayersAgain:
        """Of a share of the batch, or (layers,) of one of each layer. Spans are parts of the blocks that names show."""
        begin = np.where(layers.block >= 0, layers.begin, len(layers))
        of_first = np.append(np.broadcast_to(share, len(layers)), 0.0)[:, None]
        seconds = layers.forward * share + layers.forward_fixed
        return cls(sums_before(seconds), _saved(problem, layers) * of_first, begin)

    def of_stages(self, times: Floats, first: Ints) -> LayersAgain:
        """Of the stages of a device: spans begin and end in a stage, the `first` layer of which is (layers,).

        Outputs are held `times`, (layers,), by as many micro-batches; those of layers on other devices 0 times.
        """
        count = len(self.begin)
        begin = np.where((times > 0) & (self.begin < count), np.maximum(self.begin, first), count)
        return LayersAgain(self.seconds, self.saved * np.append(times, 0.0)[:, None], begin)

    @property
    def blocks(self) -> list[Span]:
        """All blocks."""
        firsts, sizes = np.unique(self.begin[self.begin < len(self.begin)], return_counts=True)
        return [(first, first + size) for first, size in zip(firsts.tolist(), sizes.tolist(), strict=True)]

    def of_spans(self, spans: list[Span]) -> tuple[float, float]:
        """Seconds that spans take again, and bytes that they save."""
        seconds = sum(float(self.seconds[end] - self.seconds[first]) for first, end in spans)
        return seconds, sum(float(self.saved[span]) for span in spans)

    def least(self, needed: float, first: int = 0, end: int | None = None) -> list[Span] | None:
        """Of the layers from `first` to before `end` the spans of least seconds that save `needed` bytes.

        Of spans that are worth the same the first ones. None if all of them together do not save as much.
        """
        last = len(self.begin) if end is None else end
        step, tick = needed * STEP, float(self.seconds[-1]) * TICK
        zero = np.zeros(1)
        paths = {last: Paths(zero, zero, zero.astype(np.int64), zero.astype(np.int64), zero > 0)}
        for layer in range(last - 1, first - 1, -1):
            ends = [end for end in range(layer + 1, last + 1) if self.begin[layer] <= layer >= self.begin[end - 1]]
            ends = [end for end in ends if self.saved[layer, end] > step]
            spans = [
                _through(paths[end], end, float(self.saved[layer, end]), float(self.seconds[end] - self.seconds[layer]))
                for end in ends
            ]
            paths[layer] = _best([*spans, _through(paths[layer + 1], layer + 1)], needed, step, tick)
        best = paths[first]
        return _spans(paths, first, last) if best.saved[0] >= needed - step else None


def _through(paths: Paths, end: int, saved: float = 0.0, seconds: float = 0.0) -> Paths:
    """Paths that begin with a span up to `end`, or with a layer that is kept, which saves nothing."""
    count = len(paths.saved)
    return Paths(
        paths.saved + saved, paths.seconds + seconds, np.full(count, end), np.arange(count), np.full(count, saved > 0)
    )


def _best(several: list[Paths], needed: float, step: float, tick: float) -> Paths:
    """Those that save more than all that are as fast, or are faster than all that save as much."""
    every = Paths(*(np.concatenate(each) for each in zip(*several, strict=True)))
    saved = np.round(np.minimum(every.saved, needed) / max(step, 1e-300))
    seconds = np.round(every.seconds / max(tick, 1e-300))
    order = np.lexsort((seconds, -saved))  # of equal ones the first
    fastest = np.minimum.accumulate(seconds[order])
    order = order[np.append(True, seconds[order][1:] < fastest[:-1])]
    found = Paths(*(each[order] for each in every))
    return found._replace(saved=np.minimum(found.saved, needed))


def _spans(paths: dict[int, Paths], layer: int, last: int) -> list[Span]:
    """The spans of the path from a layer that saves most."""
    found, number = list[Span](), 0
    while layer < last:
        _, _, end, follows, is_again = (each[number] for each in paths[layer])
        if is_again:
            found.append((layer, int(end)))
        layer, number = int(end), int(follows)
    return found


def _saved(problem: Problem, layers: Layers) -> Floats:
    """(layers + 1, layers + 1) bytes of outputs that wait for the backward pass, and that spans alone make and read."""
    graph, count = problem.graph, len(layers)
    layer = layers.of_unit[graph.units]
    data = np.flatnonzero(~graph.control & (graph.phase[graph.edges[:, 0]] == Phase.FORWARD))
    output, (producer, consumer) = graph.edge_output[data], layer[graph.edges[data]].T
    outputs, which = np.unique(output, return_inverse=True)
    begin, end, waits = np.full(len(outputs), count), np.zeros(len(outputs), np.int64), np.zeros(len(outputs), np.bool_)
    np.minimum.at(begin, which, np.minimum(producer, consumer))
    np.maximum.at(end, which, np.maximum(producer, consumer) + 1)
    waits[which[graph.phase[graph.edges[data, 1]] == Phase.BACKWARD]] = True
    size = np.zeros((count + 1, count + 1))
    np.add.at(size, (begin[waits], end[waits]), graph.made_bytes[outputs[waits]])
    # of all that begin at the first layer of a span or later, those that end where it does or before
    return np.asarray(np.cumsum(np.cumsum(size[::-1], axis=0)[::-1], axis=1))
