"""What links cost, fitted to messages of many sizes; and a cluster with these costs in place of what a file guessed.

A message of B bytes takes a fixed time and a time for each byte, t = t0 + B / r (Hockney 1994). So does the processor
time that it costs its sender and its receiver. The samples of a size are reduced to a quantile, which what else runs
on a machine moves little, and the line is the one with the least sum of squared relative errors among those that do not
fall, so that small messages count as much as large ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from graphs.cluster import Cluster
from graphs.op_graph import Floats

SHORTEST = 1e-6  # seconds; errors of what takes less are compared with this
ALONE = 0.1  # share of what a message takes that is the link's, at least: processors take no more than the rest
WHILE_WAITED = 25.0  # percentile of what was waited for: the others were disturbed
WHILE_COMPUTED = 50.0  # percentile of differences, which are disturbed in both directions

Pair = tuple[int, int]  # source and destination, or lower and higher rank


class Line(NamedTuple):
    """Seconds of a message: fixed + per_byte x bytes."""

    fixed: float
    per_byte: float
    spread: float  # interquartile range over the median of the samples of a size: the median over the sizes

    def seconds(self, size: float) -> float:
        """What it says of a message of this many bytes."""
        return self.fixed + size * self.per_byte


def fitted(sizes: Sequence[int], samples: Floats, percentile: float) -> Line:
    """The line through a percentile of the samples, (sizes, samples) seconds, of messages of some sizes, in bytes."""
    low, median, high = np.percentile(samples, [25, 50, 75], axis=1)
    taken = np.maximum(np.percentile(samples, percentile, axis=1), 0.0)
    weight = 1 / np.maximum(taken, SHORTEST)
    scale = max(sizes)  # so that both unknowns are seconds
    columns = np.stack([np.ones(len(sizes)), np.array(sizes) / scale], axis=1)
    fixed, per_scale = nnls(columns * weight[:, None], taken * weight)[0].tolist()
    spread = float(np.median((high - low) / np.maximum(median, SHORTEST)))
    return Line(fixed, per_scale / scale, spread)


def calibrated(
    cluster: Cluster, one_way: Mapping[Pair, Line], messages: Sequence[Line], runner: Sequence[float] = (),
    times: float = 1.0, per_pass: float = 0.0,
) -> Cluster:  # fmt: skip
    """The cluster with measured links.

    `one_way` is what messages take between idle processes, by lower and higher rank; `messages`, (devices,), the
    processor time that one costs its sender or its receiver, which is `times` as much in a step; `runner`, (devices,),
    seconds per op, or nothing to leave them as they are; `per_pass`, seconds per pass of a pipeline. In the simulator
    an idle receiver has a message once its link has brought it and its processor has taken it in, so that the latter is
    subtracted from what was measured.
    """
    links = dict[Pair, Line]()
    for pair, line in one_way.items():
        for source, target in (pair, pair[::-1]):
            inside = messages[target]
            per_byte = max(line.per_byte - inside.per_byte, ALONE * line.per_byte)
            links[source, target] = Line(max(line.fixed - inside.fixed, 0.0), per_byte, line.spread)
    devices = [
        replace(
            device,
            message_seconds=_rounded(times * line.fixed),
            message_seconds_per_byte=_rounded(times * line.per_byte),
            pass_seconds=_rounded(per_pass),
        )
        for device, line in zip(cluster.devices, messages, strict=True)
    ]
    if runner:
        pairs = zip(devices, runner, strict=True)
        devices = [replace(device, runner_seconds=_rounded(seconds)) for device, seconds in pairs]
    return with_links(replace(cluster, devices=tuple(devices)), links)


def with_links(cluster: Cluster, links: Mapping[Pair, Line]) -> Cluster:
    """The cluster with what messages take, by source and destination."""
    latency, bandwidth = cluster.latency.copy(), cluster.bandwidth.copy()
    for pair, line in links.items():
        latency[pair], bandwidth[pair] = _rounded(line.fixed), _rounded(1 / max(line.per_byte, 1e-15))
    return replace(cluster, latency=latency, bandwidth=bandwidth)


def _rounded(value: float) -> float:
    """No more digits than were measured, for a file that people read."""
    return float(f"{value:.4g}")
