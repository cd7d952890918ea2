"""What it takes to write out plans and to time them: a captured step, and pipelines of whole stages, as searches do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from envs.costs.costs import timed
from envs.expansion.expand import expand
from envs.expansion.expanded import Expansion
from envs.pipelines.grain.expand_stages import expand_stages
from envs.pipelines.grain.stage_grain import StageGrain
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from envs.simulation.simulator import Simulator
from graphs.files.load import load_cluster, load_graph
from graphs.problem import Problem
from placers.gpipe import GPipe
from tests.benchmarks.figures import Figure, at_most, least_seconds, reported
from tests.envs.expansion.divided_graphs import mlp
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.envs.expansion.test_divided_bytes import columns_and_rows, problem

CAPTURED = "transformer:layers=40,batch=32"
STAGES = 4
PIPELINES = ((8, 40, 1), (4, 40, 2))  # stages, micro-batches, and replicas of each: about 1,000 ops


def measure(
    graph: str = CAPTURED, micro_batches: int = 16, pipelines: Sequence[tuple[int, int, int]] = PIPELINES
) -> Iterator[Figure]:
    """Figures for a captured graph in stages, and for each pipeline."""
    yield from _captured(graph, micro_batches)
    yield from _stage_grain(graph, micro_batches)
    for stages, count, replicas in pipelines:
        yield _candidate(stages, count, replicas)
    yield from _divided()


def _captured(graph: str, micro_batches: int) -> Iterator[Figure]:
    """Milliseconds to write a plan out and to time it, without recomputation and with it."""
    problem = timed(Problem(load_graph(graph), load_cluster(f"p100:devices={STAGES}")))
    units = problem.graph.num_units
    stage = (np.arange(units) * STAGES // units)[problem.graph.units]
    for recompute in ((), tuple(range(STAGES))):
        schedule = Schedule(
            micro_batches, stages=tuple(stage.tolist()), order="early_backward_a", recompute=recompute
        )  # fmt: skip
        plan = Plan(tuple((each,) for each in stage.tolist()), schedule=schedule)
        expansion = expand(problem, plan)
        simulator = Simulator(expansion.problem, order=expansion.order)
        written, run = least_seconds(lambda: expand(problem, plan), lambda: simulator.run(expansion.placement))  # noqa: B023 - called here
        again = ", with recomputation" if recompute else ""
        what = f"{len(problem.graph):,} ops x {micro_batches} micro-batches{again}"
        yield reported(f"expanded ops, {what}", len(expansion.problem.graph), "")
        yield at_most(150, f"expand, {what}", written * 1e3, "ms")
        yield at_most(15, f"simulate, {what}", run * 1e3, "ms")


def _stage_grain(graph: str, micro_batches: int) -> Iterator[Figure]:
    """Milliseconds to evaluate a plan of a captured graph at the grain of stages, and to get there from ops, too."""
    problem = timed(Problem(load_graph(graph), load_cluster(f"p100:devices={2 * STAGES}")))
    plan = GPipe(micro_batches=micro_batches, order="early_backward_a").place(problem).plan
    grain = StageGrain(problem, plan)

    def evaluate(expansion: Expansion) -> int:
        Simulator(expansion.problem, order=expansion.order).run(expansion.placement)
        return len(expansion.problem.graph)

    def candidate() -> int:
        return evaluate(expand(grain.coarse, grain.coarse_plan, grain.shared))

    ops = candidate()
    alone, whole = least_seconds(candidate, lambda: evaluate(expand_stages(problem, plan)), rounds=20)
    what = f"at stage grain, {2 * STAGES} stages x {micro_batches} micro-batches, {ops:,} ops"
    yield at_most(5, f"expand and simulate {what}", alone * 1e3, "ms")
    yield reported(f"... with the way there from {len(problem.graph):,} ops", whole * 1e3, "ms")


def _divided(layers: int = 5, devices: int = 8) -> Iterator[Figure]:
    """Milliseconds to write out and to time a perceptron whose weights are divided by columns and by rows in turns."""
    given = timed(problem(mlp([8192] * (layers + 1), 256).graph, devices))
    plan = Plan((tuple(range(devices)),) * len(given.graph), split=columns_and_rows(given.graph))
    expansion = expand(given, plan)
    simulator = Simulator(expansion.problem, order=expansion.order)
    written, run = least_seconds(lambda: expand(given, plan), lambda: simulator.run(expansion.placement), rounds=20)
    what = f"{layers} layers divided over {devices} devices, {len(expansion.problem.graph):,} ops"
    yield at_most(20, f"expand, {what}", written * 1e3, "ms")
    yield at_most(5, f"simulate, {what}", run * 1e3, "ms")


def _candidate(stages: int, micro_batches: int, replicas: int) -> Figure:
    """Milliseconds to write out, lay out and time a pipeline of one op per stage and part of its passes."""
    chain = Pipeline(stages, micro_batches, forward=1.0, backward=2.0, activation=10.0, weights=5.0)
    problem = timed(chain.problem(servers(stages * replicas, bandwidth=5.0)))
    plan = chain.plan("early_backward_a", replicas=replicas)

    def evaluate() -> int:
        expansion = expand(problem, plan)
        Simulator(expansion.problem, order=expansion.order).run(expansion.placement)
        return len(expansion.problem.graph)

    ops = evaluate()
    (seconds,) = least_seconds(evaluate, rounds=20)
    name = f"expand and simulate, {stages} stages x {micro_batches} micro-batches x {replicas} replicas, {ops:,} ops"
    return at_most(5, name, seconds * 1e3, "ms")
