"""Random plans that are no op placements, for random problems."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from hypothesis import strategies as st

from envs.plan import Plan
from envs.schedule import AllReduce, Schedule, Sharing, Update
from envs.stages import stages_of
from graphs.foundation.errors import InputError
from tests.oracle.strategies import Case


@st.composite
def whole_plans(draw: st.DrawFn, case: Case) -> Plan:
    """Ops anywhere on several devices, their micro-batches run as they are ready; stages are said if they may be."""
    units, devices = case.problem.graph.num_units, range(len(case.problem.cluster))
    several = st.lists(st.sampled_from(devices), min_size=1, max_size=3, unique=True).map(tuple)
    sets = draw(st.lists(several, min_size=1, max_size=3))
    chosen = draw(st.lists(st.sampled_from(sets), min_size=units, max_size=units))
    of_ops = tuple(chosen[unit] for unit in case.problem.graph.units.tolist())
    sharing: Sharing = draw(st.sampled_from(get_args(Sharing)))
    schedule = Schedule(
        draw(st.integers(1, 4)) if sharing == "split" else 6, sharing=sharing,
        update=draw(st.sampled_from(get_args(Update))), all_reduce=draw(st.sampled_from(get_args(AllReduce))),
    )  # fmt: skip
    plan = Plan(of_ops, case.order if isinstance(case.order, str) else tuple(case.order.tolist()), schedule)
    stages = tuple(stages_of(case.problem.graph, of_ops, ()).tolist())
    staged = replace(plan, schedule=replace(schedule, stages=stages))
    try:
        staged.check(case.problem)
    except InputError:  # stages that wait for each other
        return plan
    return draw(st.sampled_from((plan, staged)))
