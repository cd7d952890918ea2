"""How long planners of pipelines take: 53 layers on 16 GPUs, in a row and in two servers of eight."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from graphs.foundation import by_name
from graphs.problem import Problem
from placers.black_gpipe import BlackGPipe
from placers.dapple import Dapple
from placers.pipedream import PipeDream
from tests.benchmarks.figures import Figure, at_most
from tests.papers.test_dapple import chain_of

TESTBEDS = {"B": "16 GPUs in a row", "A": "two servers of 8 GPUs"}
BOUNDS = {"B": 1.0, "A": 5.0}  # seconds, by the equations


def measure(layers: int = 53) -> Iterator[Figure]:
    """Processor seconds, of compiled code that has been called before."""
    graph = chain_of([1.0 + layer % 7 for layer in range(layers)], [1e6] * layers, [1e6] * layers).graph()
    for testbed, gpus in TESTBEDS.items():
        problem = Problem(graph, by_name.build("graphs.clusters", f"dapple:testbed={testbed}"))
        for placer, bound in (
            (Dapple(), BOUNDS[testbed]), (Dapple(form="released"), 0.3), (BlackGPipe(), 1.0),
            (PipeDream(form="printed"), 1.0), (PipeDream(form="released"), 1.0),
        ):  # fmt: skip
            placer.place(problem)
            seconds = min(_seconds(lambda: placer.place(problem)) for _ in range(3))  # noqa: B023 - called at once
            yield at_most(bound, f"{placer.name}, {layers} layers on {gpus}", seconds, "s")


def _seconds(function: Callable[[], object]) -> float:
    begin = time.process_time()
    function()
    return time.process_time() - begin
