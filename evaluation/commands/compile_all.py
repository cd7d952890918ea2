"""Compile every compiled function once, so that no command has to; `make setup` runs it.

Each is called as the library calls it, on a small problem; what is compiled already is only loaded.
"""

import numpy as np

from envs.objectives.replacement import replacing
from envs.replacement.running import Running
from envs.simulation.bounds import lower_bound
from evaluation.commands.load_placer import load_placer
from evaluation.comparing.simulated_plan import SimulatedPlan
from graphs.foundation import by_name
from graphs.op_graph import OpGraph
from graphs.problem import Problem, objective_of
from placers.learned.sequential.placer import build as build_sequential

# they call all compiled functions of placers
PLACERS = (
    "default", "annealing:policy=default", "genetic", "heft", "max_load_dp", "dapple", "pipedream:form=printed",
    "planner", "neural_lns",
)  # fmt: skip


def compile_all() -> None:
    """Call all compiled functions, one after another; a search has simulations left once it has tried its starts."""
    graph = _chain()
    for objective in ("step-time", "max-load"):
        problem = Problem(graph, by_name.build("graphs.clusters", "p100:devices=2"), objective=objective_of(objective))
        lower_bound(problem)
        for placer in PLACERS:
            SimulatedPlan.by(load_placer(placer), problem, budget=60)
        build_sequential(network="sequential:orders=true", untrained=True).place(problem)  # no spec names a network
    running = replacing(problem, Running(np.zeros(len(problem.units), np.int64)))
    SimulatedPlan.by(load_placer("hill_climbing"), running, budget=60)


def _chain(ops: int = 8) -> OpGraph:
    """A graph of ops with weights, each reading the output of the one before."""
    size = np.full(ops, 2.0**20)
    edges = np.stack([np.arange(ops - 1), np.arange(1, ops)], axis=1)
    return OpGraph(
        "chain", tuple(f"op{i}" for i in range(ops)), ("any",) * ops, flops=1e3 * size, bytes_accessed=size,
        output_bytes=size, edges=edges, weights=size, weight_uses=np.stack([np.arange(ops)] * 2, axis=1),
    )  # fmt: skip


if __name__ == "__main__":
    compile_all()
