"""What a plan's step takes under the orders that each way of running it follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
from torch import nn

from envs.costs.costs import timed
from envs.placed_models.call_placement import on_calls
from envs.placed_models.issue_order import as_issued
from envs.plan import Plan
from envs.simulation.simulator import simulate
from evaluation.studies.pieces import PIECES, SavedJob
from graphs.capture.examples import example_of
from graphs.foundation import by_name
from graphs.load import load_cluster, load_graph
from graphs.problem import FIFO, PROGRAM, Problem


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A plan, and the simulated seconds of its step in each way of running it."""

    placer: str
    order: str  # under which it was found
    planned: float  # op by op, in the plan's own order
    first_come: float  # op by op, whatever is ready first
    program: float  # op by op, of what is ready what PyTorch would issue first
    issued: float  # as `parallelize` runs it
    deferred: float  # as it does with gradients of weights that wait
    moved: int  # calls whose ops the plan has on several devices; `parallelize` has each on one


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The plans of a model."""

    model: str
    spec: str
    cluster: str
    budget: int
    ops: int
    alone: float  # seconds on the first device
    runs: tuple[Run, ...]


Plans = Sequence[tuple[str, str]]  # placers, and the order that the simulator has meanwhile


def jobs(out: Path, models: dict[str, str], plans: Plans, cluster: str, budget: int) -> list[SavedJob]:
    """A job per model."""
    return [
        SavedJob(
            out / PIECES / f"{budget}-{cluster}-{name}.json".replace(" ", "_"),
            partial(measured, name, spec, tuple(plans), cluster, budget),
        )
        for name, spec in models.items()
    ]


def measured(model: str, spec: str, plans: Plans, cluster: str, budget: int) -> Measured:
    """All plans of a model."""
    problem, module = timed(Problem(load_graph(spec), load_cluster(cluster))), example_of(spec).module
    alone = simulate(problem, Plan.of([0] * len(problem.graph))).step_seconds
    runs = tuple(_run(problem, module, placer, order, budget) for placer, order in plans)
    return Measured(
        model=model, spec=spec, cluster=cluster, budget=budget, ops=len(problem.graph), alone=alone, runs=runs
    )


def _run(given: Problem, module: nn.Module, placer: str, order: str, budget: int) -> Run:
    problem = replace(given, order=order)
    plan = by_name.build("placers", placer).place(problem, seed=0, budget=budget).plan
    called, on_one, moved = on_calls(problem, plan, module, "this study")
    return Run(
        placer=placer, order=order, planned=simulate(problem, plan).step_seconds,
        first_come=_seconds(problem, replace(plan, order=FIFO)),
        program=_seconds(problem, replace(plan, order=PROGRAM)), issued=_seconds(*as_issued(called, on_one)),
        deferred=_seconds(*as_issued(called, on_one, defer=True)), moved=len(moved),
    )  # fmt: skip


def _seconds(problem: Problem, plan: Plan) -> float:
    return simulate(problem, plan).step_seconds
