"""A plan with one module on another device."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from envs.plans.plan import Plan
from graphs.foundation.by_name import unknown
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.problem import Problem

Value = TypeVar("Value")


def moved(problem: Problem, plan: Plan, module: str, device: str) -> Plan:
    """The plan with the ops of a module, or one op, on a device, and what is tied to them.

    The module is named as entries of a plan file are, "" being the whole model. Ops of a plan in stages join the stage
    of the device, on as many devices as that has. Raises InputError for a module or a device that there is not, and as
    `Plan.check` for a plan that would not be valid, such as one whose stages run backwards.
    """
    names = [each.name for each in problem.cluster.devices]
    if device not in names:
        raise InputError(unknown("device", device, names))
    ops = ops_of(problem, module)
    here, stages = names.index(device), plan.schedule.stages
    homes: tuple[int, ...] = (here,)
    schedule = plan.schedule
    if stages:
        stage, homes = _stage_on(problem, plan, here)
        schedule = replace(schedule, stages=_with(stages, ops, stage))
        if emptied := set(stages) - set(schedule.stages):
            raise InputError(
                f"{module or 'the model'} is all of stage {emptied.pop()}, which would be left without ops; move a "
                "part of it, or place again with fewer stages"
            )
    found = replace(plan, devices=_with(plan.devices, ops, homes), schedule=schedule)
    found.check(problem)
    return found


def ops_of(problem: Problem, module: str) -> Ints:
    """(ops,) those of a module, or the op of that name, and what is tied to them. Raises InputError for neither."""
    graph = problem.graph
    inside = (f"{module}.", f"{module}/")
    named = [op for op, name in enumerate(graph.names) if not module or name == module or name.startswith(inside)]
    if not named:
        modules = {name.rpartition("/")[0] for name in graph.names} - {""}
        raise InputError(unknown("op or module", module, sorted(modules)))
    found: Ints = np.flatnonzero(np.isin(graph.units, graph.units[named]))
    return found


def _stage_on(problem: Problem, plan: Plan, device: int) -> tuple[int, tuple[int, ...]]:
    """The stage that is on a device, and its devices. Raises InputError unless there is one."""
    found = {(stage, homes) for stage, homes in zip(plan.schedule.stages, plan.devices, strict=True) if device in homes}
    if len(found) != 1:
        has = f"{len(found)} stages" if found else "no stage"
        raise InputError(
            f"{problem.cluster.devices[device].name} runs {has} of this plan, so it is not said which stage the module "
            "joins; move it to a device that runs one"
        )
    return found.pop()


def _with(values: tuple[Value, ...], ops: Ints, value: Value) -> tuple[Value, ...]:
    """(ops,) values, with another one for some ops."""
    changed = list(values)
    for op in ops.tolist():
        changed[op] = value
    return tuple(changed)
