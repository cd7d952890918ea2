"""From stages of layers on sets of devices to a plan of a problem."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from envs.plan import Plan
from envs.schedule import Schedule
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.contract.whole_plans import check_divides, most_that_divide
from placers.pipelining.layers import Layers
from placers.pipelining.pipeline import Stage

MICRO_BATCHES = 8  # unless they are given; ours


def micro_batches_of(problem: Problem, placer: str, given: int) -> int:
    """How many a step has: as given or, if that is 0, `MICRO_BATCHES` or fewer that divide its samples.

    Raises InputError if the given ones do not.
    """
    if given:
        check_divides(problem.graph, placer, given, 1)
    return given or most_that_divide(problem.graph, MICRO_BATCHES)


def stage_of_unit(layers: Layers, stages: Sequence[Stage]) -> Ints:
    """(units,) the stage of each."""
    return np.repeat(np.arange(len(stages)), [stage.end - stage.first for stage in stages])[layers.of_unit]


def as_plan(
    problem: Problem, stage: Ints, stages: Sequence[Stage], servers: Sequence[Sequence[int]], *, micro_batches: int,
    order: str, recompute: bool,
) -> Plan:  # fmt: skip
    """The plan, given the stage of each unit, (units,); `servers` are the devices of each, taken in their order."""
    left, devices = [list(several) for several in servers], list[tuple[int, ...]]()
    for each in stages:
        taken = [[free.pop(0) for _ in range(count)] for free, count in zip(left, each.counts, strict=True)]
        devices.append(tuple(device for several in taken for device in several))
    of_op = tuple(stage[problem.graph.units].tolist())
    schedule = Schedule(
        micro_batches=micro_batches, stages=of_op, order=order,
        recompute=tuple(range(len(devices))) if recompute else (),
    )  # fmt: skip
    return Plan(tuple(devices[number] for number in of_op), schedule=schedule)
