"""Reference: Black GPipe's partition of a layer chain into stages and replicas, within a limit of memory.

PipeDream's dynamic program without the exchange of gradients, T(i, j, m) = sum of T_l / m, in which a stage must need
strictly less memory than the limit. Where several pipelines are equally good, stages begin as early as they may, the
last one first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from graphs.foundation.errors import InputError
from graphs.op_graph import Floats


@dataclass(frozen=True)
class Stage:
    """Layers first to last, both included, counted from 0, on a number of machines."""

    first: int
    last: int
    replicas: int


@dataclass(frozen=True)
class Pipeline:
    """A partition, and the time of its slowest stage or transfer."""

    stages: tuple[Stage, ...]
    bottleneck_seconds: float


@dataclass(frozen=True, eq=False)
class Chain:
    """Layers one after the other, for one micro-batch."""

    seconds: Floats  # (layers,) forward and backward
    send_seconds: Floats  # (layers,) to send the output of each on, one way
    held_bytes: Floats  # (layers,) weights and activations

    def __post_init__(self) -> None:
        lengths = {len(self.seconds), len(self.send_seconds), len(self.held_bytes)}
        if len(lengths) > 1 or 0 in lengths:
            raise InputError(f"expected as many seconds, send_seconds and held_bytes as layers, got {sorted(lengths)}")


def partition(chain: Chain, machines: int, memory_bytes: float) -> Pipeline:
    """The pipeline on all machines with the least bottleneck; data parallelism if no pipeline fits.

    Raises InputError without a machine.
    """
    if machines < 1:
        raise InputError(f"there are {machines} machines; expected at least 1")
    seconds, held = (np.concatenate([[0.0], np.cumsum(values)]) for values in (chain.seconds, chain.held_bytes))

    @cache
    def best(end: int, count: int) -> Pipeline | None:
        """The first `end` layers on `count` machines."""
        found = None
        if held[end] < memory_bytes:
            found = Pipeline((Stage(0, end - 1, count),), float(seconds[end]) / count)
        for begin in range(1, end):
            if held[end] - held[begin] >= memory_bytes:
                continue
            for replicas in range(1, count):
                before = best(begin, count - replicas)
                if before is None:
                    continue
                own = float(seconds[end] - seconds[begin]) / replicas
                slowest = max(before.bottleneck_seconds, 2 * float(chain.send_seconds[begin - 1]), own)
                if found is None or slowest < found.bottleneck_seconds:
                    found = Pipeline((*before.stages, Stage(begin, end - 1, replicas)), slowest)
        return found

    layers = len(chain.seconds)
    return best(layers, machines) or Pipeline((Stage(0, layers - 1, machines),), float(seconds[-1]) / machines)


def stage_seconds(chain: Chain, pipeline: Pipeline) -> list[float]:
    """What each stage takes: computing on its replicas, or twice the transfer into it if that is longer."""
    return [
        max(
            float(chain.seconds[stage.first : stage.last + 1].sum()) / stage.replicas,
            2 * float(chain.send_seconds[stage.first - 1]) if stage.first else 0.0,
        )
        for stage in pipeline.stages
    ]
