"""What workers cost and give: the engine's own share of items of some length, and two workers over one.

The processes are started, and have done an item each, before anything is timed. The table of docs/how-to/cluster.md is
printed by `python -m tests.benchmarks.items_speed`: items that keep a core busy, in one process, on one worker, on two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from graphs.foundation.dask_engine import on_dask
from graphs.foundation.engine import Engine
from graphs.foundation.items import ThisProcess
from tests.benchmarks.figures import Figure, at_least, at_most, reported

LENGTHS = ((1.0, 20, 5.0), (0.1, 100, 20.0))  # seconds of an item, how many, and per cent that the engine may add
BUSY = 0.2  # seconds of processor time of an item for both workers
CURVE = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # likewise, of the items of the table
COLUMNS = (
    "seconds of an item", "items/s in one process", "on one worker", "on two workers", "two over one process",
    "it pays from",
)  # fmt: skip
CURVE_SECONDS = 10.0  # that the items of a length take in one process


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


def curve(lengths: Sequence[float] = CURVE, seconds: float = CURVE_SECONDS) -> Iterator[str]:
    """The lines of a table: items per second by their length, and when two workers have made up for their start."""
    begin = time.perf_counter()
    with on_dask(2, ()) as two:
        list(two.results(compute, [0.0] * 4))
        start = time.perf_counter() - begin
        with on_dask(1, ()) as one:
            list(one.results(compute, [0.0] * 4))
            yield "| " + " | ".join(COLUMNS) + " |"
            yield "|---" * len(COLUMNS) + "|"
            for length in lengths:
                items = [length] * max(8, round(seconds / length))
                alone, remote, shared = (
                    len(items) / _seconds(engine, compute, items) for engine in (ThisProcess(), one, two)
                )
                saved = 1 / alone - 1 / shared  # seconds per item
                pays = f"{start / saved:,.0f} items, {start / saved / alone:,.0f} s" if saved > 0 else "never"
                yield f"| {length:g} | {alone:.3g} | {remote:.3g} | {shared:.3g} | {shared / alone:.2f} | {pays} |"
    yield f"\nTwo workers were ready after {start:.1f} s."


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


if __name__ == "__main__":
    for line in curve():
        print(line, flush=True)
