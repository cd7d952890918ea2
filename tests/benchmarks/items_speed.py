"""What workers cost and give: the engine's own share of items of some length, and two workers over one.

The processes are started, and have done an item each, before anything is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from graphs.foundation.dask_engine import on_dask
from graphs.foundation.engine import Engine
from tests.benchmarks.figures import Figure, at_least, at_most, reported

LENGTHS = ((1.0, 20, 5.0), (0.1, 100, 20.0))  # seconds of an item, how many, and per cent that the engine may add
BUSY = 0.2  # seconds of processor time of an item for both workers


def measure(
    lengths: Sequence[tuple[float, int, float]] = LENGTHS, busy: float = BUSY, items: int = 60
) -> Iterator[Figure]:
    """Per cent that the engine adds to items that wait, and the rates of items that compute."""
    begin = time.perf_counter()
    with on_dask(2, ()) as two, on_dask(1, ()) as one:
        for engine in (one, two):
            list(engine.results(time.sleep, [0.0] * 4))
        yield reported("starting three workers", time.perf_counter() - begin, "s")
        for seconds, count, bound in lengths:
            spent = _seconds(one, time.sleep, [seconds] * count)
            name = f"engine's own cost at items of {seconds:g} s"
            yield at_most(bound, name, 100 * (spent / (seconds * count) - 1), "%")
        alone, shared = (_seconds(engine, compute, [busy] * items) for engine in (one, two))
        yield at_least(1.7, "items per second of two workers over one, on two idle cores", alone / shared)


def compute(seconds: float) -> int:
    """Keep a core busy for so much of its time."""
    until, steps = time.thread_time() + seconds, 0
    while time.thread_time() < until:
        steps += 1
    return steps


def _seconds(engine: Engine, do: Callable[[float], object], items: Sequence[float]) -> float:
    begin = time.perf_counter()
    list(engine.results(do, items))
    return time.perf_counter() - begin
