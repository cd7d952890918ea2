"""Schedule rows: the passes of a pipeline as PyTorch writes schedules, one row of actions for each of its ranks.

    0F0 0F1 0B0 0F2 0B1 ...     stage, what of it is run, micro-batch: F forward, B the whole backward pass,
    1F0 1B0 1F1 1B1 ...         I its part that earlier stages wait for, W the rest

Such rows are what `torch.distributed.pipelining` takes from a CSV file. Sends and receives are not written: its runtime
adds them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.expansion.expand_stages import expand_stages
from envs.expansion.expanded import Role
from envs.expansion.layout import Layout
from envs.expansion.stage_grain import KINDS, PARTS
from envs.pass_orders import Pass, Passes, PassKind, Ranks, load_pass_order
from envs.plan import Plan
from envs.schedule import AS_READY
from envs.simulation.simulator import Simulator
from graphs.foundation.errors import InputError
from graphs.problem import Problem

_KIND_OF_PART = {"forward": PassKind.FORWARD, "backward": PassKind.INPUT_GRADIENT, "gradient": PassKind.WEIGHT_GRADIENT}
_KIND = {KINDS[PARTS.index(part)]: kind for part, kind in _KIND_OF_PART.items()}
_TURN = tuple(PassKind)  # of passes that start at the same time, as some take none


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
    Raises InputError for what is no plan for the problem, for stages on overlapping sets of devices, which belong to no
    one rank, and for replicas that take micro-batches in turns: each then runs other passes than its rank.
    """
    plan.check(problem)
    layout = Layout(problem, plan)
    ranks, devices = _ranks(layout)
    if plan.schedule.sharing == "turns" and any(len(replicas) > 1 for replicas in devices):
        raise InputError(
            "replicas of a stage take micro-batches in turns, and a row of passes is the same for all of them; "
            "use sharing 'split'"
        )
    if plan.schedule.order == AS_READY:
        return ScheduleRows(ranks, devices, _as_simulated(problem, plan, devices))
    passes = load_pass_order(plan.schedule.order).passes(ranks, plan.schedule.micro_batches)
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


def _as_simulated(problem: Problem, plan: Plan, devices: tuple[tuple[int, ...], ...]) -> Passes:
    """The passes of each rank as its first replica starts them."""
    expansion = expand_stages(problem, plan)
    timeline = Simulator(expansion.problem, order=expansion.order).timeline(expansion.placement)
    spans: dict[int, dict[Pass, tuple[float, float, int]]] = {replicas[0]: {} for replicas in devices}
    kinds = expansion.given.graph.kinds
    copies = np.flatnonzero((expansion.role == Role.WORK) & (expansion.micro_batch >= 0))
    for op in copies.tolist():  # the ops of stages come before parcels, which have the kind of what they are from
        kind, device = _KIND.get(kinds[expansion.origin[op]]), int(expansion.placement[op])
        if kind is not None and device in spans:
            each = Pass(int(expansion.stage[op]), kind, int(expansion.micro_batch[op]))
            at = float(timeline.start[op]), float(timeline.finish[op]), _TURN.index(kind)
            spans[device].setdefault(each, at)
    return tuple(_with_whole_backward_passes(sorted(of_rank, key=of_rank.__getitem__)) for of_rank in spans.values())


def _with_whole_backward_passes(passes: list[Pass]) -> tuple[Pass, ...]:
    """The passes, with one backward pass in place of two parts that follow each other, or of the only part."""
    there, found = set(passes), list[Pass]()
    for each in passes:
        first, second = (each._replace(kind=kind) for kind in (PassKind.INPUT_GRADIENT, PassKind.WEIGHT_GRADIENT))
        is_part = each.kind in (first.kind, second.kind)
        if is_part and not {first, second} <= there:
            found.append(each._replace(kind=PassKind.BACKWARD))
        elif each == second and found[-1] == first:
            found[-1] = each._replace(kind=PassKind.BACKWARD)
        else:
            found.append(each)
    return tuple(found)
