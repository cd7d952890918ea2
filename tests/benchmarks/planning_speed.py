"""How long the planner takes: to its first plan, to each pipeline that it judges, and to its last one, over sizes.

The layers are those of a profile, on servers of eight GPUs. The time to the first plan is that of the proposals and of
one simulation op by op; what a budget takes beyond that is spent on pipelines judged at the grain of stages.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from graphs.foundation import by_name
from graphs.problem import Problem
from placers.planner import Planner
from tests.benchmarks.figures import Figure, at_most, reported
from tests.papers.test_dapple import chain_of

SIZES = ((25, 1, 8), (50, 2, 8), (100, 2, 8), (100, 4, 8), (100, 8, 8))  # layers, servers, GPUs of each
BUDGET = 300
FIRST, WHOLE = 10.0, 60.0  # seconds for the largest


def measure(sizes: Sequence[tuple[int, int, int]] = SIZES, budget: int = BUDGET) -> Iterator[Figure]:
    """Seconds of processor time, of compiled code that has been called before."""
    _seconds(_problem(*sizes[0]), min(budget, 60))
    for layers, servers, gpus in sizes:
        problem = _problem(layers, servers, gpus)
        first, _ = _seconds(problem, 1)
        whole, simulations = _seconds(problem, budget)
        what, is_last = f"{layers} layers on {servers} x {gpus} GPUs", (layers, servers, gpus) == sizes[-1]
        for seconds, bound, until in (
            (first, FIRST, "the first plan"), (whole, WHOLE, f"the plan of a budget of {budget}"),
        ):  # fmt: skip
            name = f"{what}, until {until}"
            yield at_most(bound, name, seconds, "s") if is_last else reported(name, seconds, "s")
        yield reported(f"{what}, each further simulation", 1e3 * (whole - first) / max(simulations - 1, 1), "ms")


def _problem(layers: int, servers: int, gpus: int) -> Problem:
    seconds = [0.01 * (1 + layer % 7) for layer in range(layers)]
    graph = chain_of(seconds, [8e6] * layers, [1e7] * layers).graph()
    cluster = by_name.build("graphs.clusters", f"v100_servers:servers={servers},devices={gpus},gbps=100")
    return Problem(graph, cluster)


def _seconds(problem: Problem, budget: int) -> tuple[float, int]:
    """And how many simulations were made."""
    begin = time.process_time()
    result = Planner(policy="").place(problem, budget=budget)
    return time.process_time() - begin, result.simulations
