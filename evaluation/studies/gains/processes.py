"""What the orders take when ops really run: a process for each CPU of a cluster, each with a core, op by op.

One device for each op, as the plan says; in each order a process runs its ops as they are simulated (`op_step`), with
the times of a profile. Orders take turns, so that all of them see the same machine.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from envs.costs.busy_machine import quiet_seconds
from envs.costs.costs import timed
from envs.placed_models.issue_order import program_order
from envs.plan import Plan
from envs.running.measured_run import run_plan
from envs.running.processes import Workers
from envs.running.profiled_step import profile_steps
from envs.running.training_job import Training
from envs.simulation.simulator import simulate
from evaluation.studies.pieces import PIECES, SavedJob
from graphs.capture.op_calls import load_calls
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.load import load_cluster, load_graph
from graphs.problem import FIFO, PROGRAM, Problem

FOLDER = "processes"  # within the study's
STEPS = 12  # of an order in a round, the first of which do not count

ALONE, PLANNED = "one device", "planned"
ORDERS = (PLANNED, "first come", "program order", "deferred")


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A step under an order."""

    name: str
    simulated: float  # seconds
    measured: float  # seconds, of the quietest of all steps


class InProcesses(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model's plan under all orders, and the model on one device."""

    model: str
    spec: str
    cluster: str
    budget: int
    rounds: int
    orders: tuple[Order, ...]

    def of(self, name: str) -> Order:
        """An order by its name."""
        return next(order for order in self.orders if order.name == name)

    def kept(self, name: str, kind: str) -> float:
        """The part of the plan's gain, "simulated" or "measured", that is left; NaN if it gains nothing."""
        alone, planned, own = (float(getattr(self.of(each), kind)) for each in (ALONE, PLANNED, name))
        return (alone - own) / (alone - planned) if planned < alone else float("nan")


def jobs(out: Path, models: dict[str, str], cluster: str, budget: int, rounds: int) -> list[SavedJob]:
    """A job per model; to be done one after the other."""
    return [
        SavedJob(
            out / PIECES / f"{budget}-{rounds}-{name}.json".replace(" ", "_"),
            partial(measured, out, name, spec, cluster, budget, rounds),
        )
        for name, spec in models.items()
    ]


def measured(out: Path, model: str, spec: str, cluster: str, budget: int, rounds: int) -> InProcesses:
    """Profile the ops, find a plan, and run it in all orders. Raises InputError for a cluster with other devices."""
    devices = load_cluster(cluster)
    if not devices.is_cpu.all():
        raise InputError(f"{cluster}: give a cluster file of CPUs alone, as `placelab calibrate` writes it")
    path = out / f"{model}.profile.json".replace(" ", "_")
    path.unlink(missing_ok=True)
    profile_steps(spec, load_calls(spec), path)
    problem = timed(Problem(load_graph(spec), devices), f"profiled:file={path}")
    plans = _plans(problem, budget)
    training, seconds = Training(spec, STEPS), {name: list[float]() for name in plans}
    with Workers(["cpu"] * len(devices)) as workers:
        for _ in range(rounds):
            for name, plan in plans.items():
                seconds[name] += run_plan(workers, training, problem, plan).counted.tolist()
    orders = tuple(
        Order(
            name=name, simulated=simulate(problem, plan).step_seconds, measured=quiet_seconds(np.array(seconds[name]))
        )
        for name, plan in plans.items()
    )
    return InProcesses(model=model, spec=spec, cluster=cluster, budget=budget, rounds=rounds, orders=orders)


def _plans(problem: Problem, budget: int) -> dict[str, Plan]:
    plan = by_name.build("placers", "annealing").place(problem, seed=0, budget=budget).plan
    orders = (plan.order, FIFO, PROGRAM, program_order(problem, defer=True))
    alone = {ALONE: Plan.of([0] * len(problem.graph))}
    return alone | {name: replace(plan, order=order) for name, order in zip(ORDERS, orders, strict=True)}
