"""A plan that was run: what its steps took, beside what the simulator says, and what came out of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from safetensors.torch import load

from envs.orders import order_name
from envs.plan import Plan
from envs.running.measured_timeline import measured_timeline
from envs.running.processes import LIMIT, Workers
from envs.running.reference import Difference, Results, comparable, differences, unplaced
from envs.running.training_job import StepOf, Trained, Training, TrainingJob
from envs.running.ways import check_can_run, parts_of_batch, step_of
from envs.timeline import Timeline
from graphs.op_graph import Floats
from graphs.problem import Problem

FIRST = 2  # steps that are not counted, if there are more: they also load, allocate and connect


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """What a plan's steps took in processes, one per device."""

    predicted: Timeline  # simulated
    measured: Timeline  # the step whose time is the median
    seconds: Floats  # (steps,) of each
    losses: tuple[float, ...]  # (steps,)
    growth_bytes: Floats  # (devices,) the most memory beyond that before the first step; NaN if unknown
    differences: tuple[Difference, ...] = ()  # from the unplaced model, if they were asked for

    @property
    def counted(self) -> Floats:
        """(steps,) seconds of those that count."""
        return self.seconds[_first(len(self.seconds)) :]

    @property
    def step_seconds(self) -> float:
        """The median."""
        return self.measured.step_seconds

    @property
    def is_equal(self) -> bool:
        """Whether it is as close to the unplaced model as rounding allows; true if it was not compared."""
        return all(each.is_small for each in self.differences)


def run_plan(
    workers: Workers, training: Training, problem: Problem, plan: Plan, *,
    check: bool = False, limit: float = LIMIT, way: StepOf = step_of,
) -> MeasuredRun:  # fmt: skip
    """Train by a plan in processes, one per device of the problem's cluster.

    With `check`, the model is also trained without the plan, in this process, and compared. Raises InputError for a
    plan that cannot be run, or a model that cannot be compared, and as `Workers.run`, with the limit in seconds.
    """
    check_can_run(problem, plan)
    expected = None
    if check:
        replicas, micro_batches = parts_of_batch(problem, plan)
        device = workers.devices[0]
        training = comparable(training)
        expected = unplaced(training, replicas=replicas, micro_batches=micro_batches, device=device)
    done = workers.run(TrainingJob(training, problem, plan, way, check), limit=limit)
    laid = done[0].laid
    assert laid is not None
    predicted = laid.simulator().timeline(laid.placement)
    predicted = replace(predicted, expansion=laid.expansion, order=order_name(problem, plan.order))
    steps = list(zip(*(process.steps for process in done), strict=True))
    seconds = np.array([max(each.ended for each in step) - min(each.began for each in step) for step in steps])
    counted = np.arange(_first(len(steps)), len(steps))
    median = counted[np.argsort(seconds[counted], kind="stable")[(len(counted) - 1) // 2]]
    return MeasuredRun(
        predicted,
        measured_timeline(predicted, steps[median]),
        seconds,
        tuple(sum(process.loss for process in step) for step in steps),
        np.array([process.growth_bytes for process in done]),
        () if expected is None else tuple(differences(_results(done), expected)),
    )


def _first(steps: int) -> int:
    return min(FIRST, steps - 1)


def _results(done: Sequence[Trained]) -> list[Results]:
    """What each process holds at the end."""
    found = []
    for process in done:
        assert process.state is not None
        losses = tuple(step.loss for step in process.steps)
        held = (process.state.weights, process.state.gradients, process.state.buffers)
        found.append(Results(losses, *map(load, held)))
    return found
