"""Schedule rows: the passes of a pipeline as PyTorch writes schedules, one row of actions for each of its ranks.

    0F0 0F1 0B0 0F2 0B1 ...     stage, what of it is run, micro-batch: F forward, B the whole backward pass,
    1F0 1B0 1F1 1B1 ...         I its part that earlier stages wait for, W the rest

Such rows are what `torch.distributed.pipelining` takes from a CSV file. Sends and receives are not written: its runtime
adds them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.expansion.expanded import Role
from envs.expansion.joined_passes import joined_passes
from envs.expansion.layout import Layout
from envs.pass_orders import Pass, Passes, PassKind, Ranks
from envs.pipelines.grain.expand_stages import expand_stages
from envs.pipelines.grain.stage_grain import BACKWARD, FORWARD, GRADIENT, KINDS
from envs.plans.plan import Plan
from envs.plans.plan_validation import check_forward
from envs.plans.schedule import AS_READY
from envs.simulation.simulator import Simulator
from graphs.foundation.errors import InputError
from graphs.problem import Problem

_PASS_OF_PART = {FORWARD: PassKind.FORWARD, BACKWARD: PassKind.INPUT_GRADIENT, GRADIENT: PassKind.WEIGHT_GRADIENT}
PASS_OF_KIND = {KINDS[part]: kind for part, kind in _PASS_OF_PART.items()}
"""The passes that ops of stages stand for, by the ops' kinds."""


@dataclass(frozen=True)
class ScheduleRows:
    """The rows of a plan. A rank is a place in the pipeline; each replica of it is a device."""

    ranks: Ranks  # of each the stages
    devices: tuple[tuple[int, ...], ...]  # of each its replicas
    passes: Passes  # of each, in the order in which it runs them

    def rows(self) -> list[list[str]]:
        """Of each rank its actions, such as "0F0"."""
        return [[f"{each.stage}{each}" for each in passes] for passes in self.passes]


def schedule_rows(problem: Problem, plan: Plan) -> ScheduleRows:
    """The rows of a plan with stages.

    Where the schedule has no order of passes, they are in the order in which the simulator starts them, at the grain of
    stages; a backward pass is then in two parts if something else runs between these.
    Raises InputError for a plan that is not valid, for stages that feed earlier ones, for those on overlapping
    sets of devices, which belong to no one rank, and for replicas that take micro-batches in turns: each then runs
    other passes than its rank.
    """
    plan.check(problem)
    layout = Layout(problem, plan)
    check_forward(problem.graph, layout.stage)
    ranks, devices = _ranks(layout)
    if plan.schedule.sharing == "turns" and any(len(replicas) > 1 for replicas in devices):
        raise InputError(
            "replicas of a stage take micro-batches in turns, and a row of passes is the same for all of them; "
            "use sharing 'split'"
        )
    if plan.schedule.order == AS_READY:
        return ScheduleRows(ranks, devices, _as_simulated(problem, plan, ranks, devices))
    passes = joined_passes(plan.schedule.order.built, ranks, plan.schedule.micro_batches)
    return ScheduleRows(ranks, devices, passes)


def _ranks(layout: Layout) -> tuple[Ranks, tuple[tuple[int, ...], ...]]:
    """The ranks of a plan in the order of their stages, and the devices of each."""
    hosted: dict[tuple[int, ...], list[int]] = {}
    for stage, devices in enumerate(layout.stage_devices):
        hosted.setdefault(devices, []).append(stage)
    found: dict[int, int] = {}  # the stage that each device was met at first
    for devices, stages in hosted.items():
        for device in devices:
            if device in found:
                raise InputError(
                    f"stages {found[device]} and {stages[0]} share device {device}, but not all devices; stages that "
                    "share a device must be on the same devices, in the same order"
                )
            found[device] = stages[0]
    return tuple(tuple(stages) for stages in hosted.values()), tuple(hosted)


def _as_simulated(problem: Problem, plan: Plan, ranks: Ranks, devices: tuple[tuple[int, ...], ...]) -> Passes:
    """The passes of each rank as its first replica starts them.

    PyTorch sends from stage to stage only. So each pass comes after that of the stage before, or behind, though it may
    be simulated without it, as a stage between two others, with nothing to do for them, has to pass on what they send.
    """
    at, last = _starts(problem, plan, {replicas[0] for replicas in devices}), sum(map(len, ranks)) - 1
    time: dict[Pass, tuple[float, int, int, int]] = {}  # when each starts at the earliest, and its turn among equals
    for micro_batch in range(plan.schedule.micro_batches):
        now = -np.inf
        for stage in range(last + 1):
            each = Pass(stage, PassKind.FORWARD, micro_batch)
            now = max(now, at.get(each, now))
            time[each] = now, micro_batch, 0, stage
        for stage in range(last, -1, -1):
            parts = [Pass(stage, kind, micro_batch) for kind in (PassKind.INPUT_GRADIENT, PassKind.WEIGHT_GRADIENT)]
            simulated = [at[each] for each in parts if each in at]
            now = max([now, *simulated[:1]])
            if len(simulated) < len(parts):
                time[Pass(stage, PassKind.BACKWARD, micro_batch)] = now, micro_batch, 1, -stage
            else:
                time[parts[0]] = now, micro_batch, 1, -stage
                time[parts[1]] = max(now, simulated[1]), micro_batch, 2, -stage
    passes = sorted(time, key=time.__getitem__)
    return tuple(_with_whole_backward_passes([each for each in passes if each.stage in hosted]) for hosted in ranks)


def _starts(problem: Problem, plan: Plan, devices: set[int]) -> dict[Pass, float]:
    """When the passes on some devices start in the simulation at the grain of stages."""
    expansion = expand_stages(problem, plan)
    start = Simulator(expansion.problem, order=expansion.order).timeline(expansion.placement).start
    kinds, found = expansion.given.graph.kinds, dict[Pass, float]()
    copies = np.flatnonzero((expansion.role == Role.WORK) & (expansion.micro_batch >= 0))
    for op in copies.tolist():  # the ops of stages come before parcels, which have the kind of what they are from
        kind = PASS_OF_KIND.get(kinds[expansion.origin[op]])
        if kind is not None and expansion.placement[op] in devices:
            each = Pass(int(expansion.stage[op]), kind, int(expansion.micro_batch[op]))
            found.setdefault(each, float(start[op]))
    return found


def _with_whole_backward_passes(passes: list[Pass]) -> tuple[Pass, ...]:
    """The passes, with one backward pass in place of two parts that follow each other."""
    found: list[Pass] = []
    for each in passes:
        if each.kind == PassKind.WEIGHT_GRADIENT and found[-1] == each._replace(kind=PassKind.INPUT_GRADIENT):
            found[-1] = each._replace(kind=PassKind.BACKWARD)
        else:
            found.append(each)
    return tuple(found)
