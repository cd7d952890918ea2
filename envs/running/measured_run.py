"""A plan that was run: what its steps took, next to what the simulator says, and what came out of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from envs.orders import order_name
from envs.plans.plan import Plan
from envs.running.measured_timeline import measured_timeline
from envs.running.process_memory import Growth
from envs.running.processes import LIMIT, Workers
from envs.running.reference import Difference, differences
from envs.running.training_job import StepOf, Training, TrainingJob, Unplaced, UnplacedJob
from envs.running.ways import by_processes, check_can_run, parts_of_batch, step_of
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from graphs.foundation.errors import DiffersError
from graphs.op_graph import Floats
from graphs.problem import Problem

FIRST = 2  # steps that are not counted, if there are more: they also load, allocate and connect


@dataclass(frozen=True, eq=False, kw_only=True)
class RunSteps:
    """What a plan's steps took, and what came out of them."""

    predicted: Timeline  # simulated
    seconds: Floats  # (steps,) of each
    losses: tuple[float, ...]  # (steps,)
    growth: tuple[Growth, ...]  # (devices,) of memory, by steps
    differences: tuple[Difference, ...] = ()  # of the first step from the unplaced model's, if it was compared
    not_compared: str = ""  # why it was not, if it was to be

    @property
    def counted(self) -> Floats:
        """(steps,) seconds of those that count."""
        return self.seconds[_first(len(self.seconds)) :]

    @property
    def median(self) -> int:
        """The step whose time is the median of those that count, the lower one of two."""
        first = _first(len(self.seconds))
        return first + int(np.argsort(self.counted, kind="stable")[(len(self.counted) - 1) // 2])

    @property
    def step_seconds(self) -> float:
        """Its time."""
        return float(self.seconds[self.median])

    @property
    def is_equal(self) -> bool:
        """Whether its first step is the unplaced model's, but for rounding; true if it was not compared."""
        return all(each.is_small for each in self.differences)

    def require_equal(self) -> None:
        """Raise DiffersError, naming the tensor, if the first step was compared, and is not the unplaced model's."""
        if self.is_equal:
            return
        worst = max((each for each in self.differences if not each.is_small), key=lambda each: each.relative)
        raise DiffersError(
            f"run by the plan, {self.predicted.problem.graph.name!r} is not what it is without: in the first step its "
            f"{worst.what} differ by {worst.relative:.2g} of the largest, in {worst.name!r}"
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class MeasuredRun(RunSteps):
    """What a plan's steps took in processes, one per device."""

    measured: Timeline  # the step whose time is the median


def run_plan(
    workers: Workers, training: Training, problem: Problem, plan: Plan, *,
    check: bool = False, limit: float = LIMIT, way: StepOf = step_of, tell: Callable[[str], None] | None = None,
) -> MeasuredRun:  # fmt: skip
    """Train by a plan in processes, one per device of the problem's cluster.

    With `check`, the first step is made without the plan as well, in the first process, and compared. Raises InputError
    for a plan that cannot be run, and as `Workers.run`, with the limit in seconds of each job, and what it is told.
    """
    problem = by_processes(problem)
    check_can_run(problem, plan)
    apart: tuple[Difference, ...] = ()
    why = ""
    if check:
        apart, why = _compared(workers, training, problem, plan, limit=limit, way=way, tell=tell)
    done = workers.run(TrainingJob(training, problem, plan, way), limit=limit, tell=tell)
    laid = done[0].laid
    assert laid is not None
    predicted = laid.simulator().timeline(laid.placement)
    predicted = replace(predicted, expansion=laid.expansion, order=order_name(problem, plan.order))
    recorded = [process.steps for process in done]
    if not workers.shares_clock:
        recorded = [[step.since_began() for step in steps] for steps in recorded]
    steps = list(zip(*recorded, strict=True))
    seconds = np.array([max(each.ended for each in step) - min(each.began for each in step) for step in steps])
    run = RunSteps(
        predicted=predicted,
        seconds=seconds,
        losses=tuple(sum(process.loss for process in step) for step in steps),
        growth=tuple(process.growth for process in done),
        differences=apart,
        not_compared=why,
    )
    return MeasuredRun(**vars(run), measured=measured_timeline(predicted, steps[run.median]))


def _compared(
    workers: Workers, training: Training, problem: Problem, plan: Plan, *,
    limit: float, way: StepOf, tell: Callable[[str], None] | None,
) -> tuple[tuple[Difference, ...], str]:  # fmt: skip
    """How far the first step is from that of the unplaced model, or why that is not known."""
    shares, micro_batches = parts_of_batch(problem, plan)
    alone = simulate(problem, Plan.of(np.zeros(len(problem.graph), np.int64)))
    job = UnplacedJob(training, shares, micro_batches, float(alone.peak_bytes.max()))
    made = workers.run(job, limit=limit, tell=tell)[0]
    assert made is not None  # by the first process
    if why := _incomparable(made, plan, workers.devices[0]):
        return (), why
    first = replace(training, steps=1, epsilon=made.epsilon)
    done = workers.run(TrainingJob(first, problem, plan, way, keep_state=True), limit=limit, tell=tell)
    assert made.state is not None
    found = [each.state.results() for each in done if each.state is not None]
    return differences(found, made.state.results(), made.rounding), ""


def _incomparable(made: Unplaced, plan: Plan, device: str) -> str:
    if made.state is None:
        return (
            f"the unplaced model takes about {made.needed_bytes / 2**30:.1f} GiB on {device}, where "
            f"{made.free_bytes / 2**30:.1f} are free"
        )
    if made.drew and plan.split:
        return "it draws random numbers, such as those of dropout, which divided ops draw otherwise"
    return ""


def _first(steps: int) -> int:
    return min(FIRST, steps - 1)
