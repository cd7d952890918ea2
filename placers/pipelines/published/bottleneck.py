"""Bottleneck: Black GPipe's partition of a chain of layers into stages with replicas, within a limit of memory.

PipeDream's dynamic program without the exchange of gradients, which GPipe does once per step: a stage takes the time of
its layers over the number of its replicas, or twice that of the transfer into it. A stage must need strictly less
memory than the limit, replicas or not. All machines are used, unless replicas could then not divide the samples.
"""

from dataclasses import dataclass

import numpy as np

from graphs.foundation.errors import InputError
from graphs.op_graph import Floats
from placers.pipelines.published.pipeline import Stage


@dataclass(frozen=True)
class ChainPartition:
    """Stages in order, and the time of the slowest stage or transfer."""

    stages: tuple[Stage, ...]
    seconds: float
    fits: bool = True  # whether every stage needs less than the limit


@dataclass(frozen=True, eq=False)
class LayerChain:
    """Layers one after the other, for one micro-batch. Raises InputError unless all are of as many layers."""

    seconds: Floats  # (layers,) forward and backward
    send_seconds: Floats  # (layers,) to send the output of each on, one way
    held_bytes: Floats  # (layers,) weights and activations

    def __post_init__(self) -> None:
        lengths = {len(self.seconds), len(self.send_seconds), len(self.held_bytes)}
        if len(lengths) > 1 or 0 in lengths:
            raise InputError(f"expected as many seconds, send_seconds and held_bytes as layers, got {sorted(lengths)}")


def partition(chain: LayerChain, machines: int, memory_bytes: float, *, shared: int = 0) -> ChainPartition:
    """The pipeline on all machines with the least bottleneck; data parallelism if no pipeline fits.

    `shared` are samples that the replicas of each stage divide; 0: any number of replicas will do. Where several are
    equally good, stages begin as early as they may, the last one first. Raises InputError without a machine.
    """
    if machines < 1:
        raise InputError(f"there are {machines} machines; expected at least 1")
    layers = len(chain.seconds)
    seconds, held = (np.concatenate([[0.0], np.cumsum(values)]) for values in (chain.seconds, chain.held_bytes))
    # best[e, m]: the least bottleneck of the layers before e on m machines; the last stage begins there, with replicas
    best = np.full((layers + 1, machines + 1), np.inf)
    begins, replicas = np.zeros(best.shape, np.int64), np.zeros(best.shape, np.int64)
    counts = np.arange(1, machines + 1)
    for end in range(1, layers + 1):
        fits = held[end] - held[:end] < memory_bytes
        own = (seconds[end] - seconds[:end, None]) / counts  # (begin, replicas)
        sent = np.concatenate([[0.0], 2 * chain.send_seconds[: end - 1]])
        slowest = np.where(fits[:, None] & (shared % counts == 0), np.maximum(own, sent[:, None]), np.inf)
        for count in range(1, machines + 1):
            best[end, count], begins[end, count], replicas[end, count] = slowest[0, count - 1], 0, count
            if end == 1 or count == 1:
                continue
            both = np.maximum(slowest[1:, : count - 1], best[1:end, count - 1 : 0 : -1])
            least = int(both.argmin())
            if both.flat[least] < best[end, count]:
                begin, fewer = divmod(least, count - 1)
                best[end, count], begins[end, count], replicas[end, count] = both.flat[least], begin + 1, fewer + 1
    possible = np.isfinite(best[layers])
    if not (possible.any() if shared else possible[machines]):
        used = int(counts[shared % counts == 0].max())
        return ChainPartition((Stage(0, layers, (used,)),), float(seconds[-1]) / used, fits=False)
    used = int(np.flatnonzero(possible).max())
    stages, end, left = list[Stage](), layers, used
    while end:
        begin, taken = int(begins[end, left]), int(replicas[end, left])
        stages.append(Stage(begin, end, (taken,)))
        end, left = begin, left - taken
    return ChainPartition(tuple(stages[::-1]), float(best[layers, used]))
