"""What holds of any pipeline whose passes are in an order: they run whole, one after the other, in that order."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.expansion.expanded import Role
from envs.pass_orders import Pass, Passes, PassKind, Ranks
from envs.plans.plan import Plan
from envs.plans.schedule import pass_order_of
from envs.simulation.simulator import simulate
from graphs.op_graph import Phase
from graphs.problem import Problem
from tests.drawn import examples
from tests.envs.expansion.pipelines import Pipeline, interleaved, servers, v_shaped
from tests.oracle import oracle, simpy_oracle

SHAPES: dict[str, Callable[[int], Ranks]] = {
    **dict.fromkeys(("gpipe", "early_backward_a", "early_backward_b", "early_backward_b:in_flight=2", "zb_h1", "zb_h2"),
                    lambda ranks: interleaved(ranks, 1)),
    **dict.fromkeys(("gpipe", "interleaved", "looped_bfs", "interleaved_zero_bubble"), interleaved),
    **dict.fromkeys(("zb_v", "dualpipe_v", "v_half", "v_min"), v_shaped),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Case:
    """A pipeline, and a plan through it."""

    ranks: Ranks
    order: str
    problem: Problem
    plan: Plan


@st.composite
def cases(draw: st.DrawFn) -> Case:
    order = draw(st.sampled_from(sorted(SHAPES)))
    count = draw(st.integers(1, 3))
    ranks = SHAPES[order](count)
    stages = sum(map(len, ranks))
    replicas = draw(st.lists(st.integers(1, 2), min_size=count, max_size=count))
    micro_batches = 2 * count * draw(st.integers(1, 2))  # which every order accepts
    seconds = st.sampled_from((0.5, 1.0, 2.0, 3.0))
    of_stages = st.lists(seconds, min_size=stages, max_size=stages)
    size = st.sampled_from((0.0, 1.0, 2.0))
    chain = Pipeline(
        stages, micro_batches, forward=draw(of_stages), backward=draw(of_stages), weight_gradient=draw(seconds),
        activation=draw(size), gradient=draw(size), weights=draw(size), update=draw(size),
        is_training=draw(st.integers(0, 4)) > 0,
    )  # fmt: skip
    cluster = servers(
        sum(replicas), bandwidth=draw(st.sampled_from((np.inf, 1.0))), launch=draw(st.sampled_from((0, 0.25)))
    )
    plan = chain.plan(
        order, ranks=ranks, replicas=replicas, sharing=draw(st.sampled_from(("split", "turns"))),
        recompute=sorted(draw(st.sets(st.integers(0, stages - 1)))) if chain.is_training else (),
        recompute_at=draw(st.sampled_from(("late", "early"))),
    )  # fmt: skip
    return Case(ranks, order, chain.problem(cluster), plan)


def ordered(case: Case) -> Passes:
    """The passes of each rank; replicas in turns are places of a longer pipeline, of which a rank has the first's."""
    order, micro_batches = pass_order_of(case.order).built, case.plan.schedule.micro_batches
    if case.plan.schedule.sharing == "split" or any(len(stages) > 1 for stages in case.ranks):
        return order.passes(case.ranks, micro_batches)
    replicas = [len(case.plan.devices[stage]) for (stage,) in case.ranks]
    places = order.passes(tuple((place,) for place in range(sum(replicas))), micro_batches)
    first = [sum(replicas[:rank]) for rank in range(len(replicas))]
    return tuple(
        tuple(each._replace(stage=stage) for each in places[place])
        for (stage,), place in zip(case.ranks, first, strict=True)
    )


@settings(max_examples=examples(60, 9))
@given(cases())
def test_each_device_runs_its_passes_one_after_the_other(case: Case) -> None:
    timeline = simulate(case.problem, case.plan)
    expansion = timeline.expansion
    assert expansion is not None
    phase, kinds = case.problem.graph.phase, case.problem.graph.kinds
    spans: dict[tuple[int, Pass], list[tuple[float, float]]] = {}
    for op in np.flatnonzero((expansion.role <= Role.RECOMPUTED) & (expansion.micro_batch >= 0)).tolist():
        is_weight = kinds[expansion.origin[op]].endswith(".grad_weight")
        is_forward = phase[expansion.origin[op]] == Phase.FORWARD and expansion.role[op] == Role.WORK
        kind = PassKind.FORWARD if is_forward else (PassKind.INPUT_GRADIENT, PassKind.WEIGHT_GRADIENT)[is_weight]
        of_pass = Pass(int(expansion.stage[op]), kind, int(expansion.micro_batch[op]))
        spans.setdefault((int(expansion.placement[op]), of_pass), []).append((timeline.start[op], timeline.finish[op]))
    ran = 0
    for stages, passes in zip(case.ranks, ordered(case), strict=True):
        for device in case.plan.devices[stages[0]]:
            until = 0.0
            for each in passes:
                parts = (
                    (PassKind.INPUT_GRADIENT, PassKind.WEIGHT_GRADIENT)
                    if each.kind == PassKind.BACKWARD
                    else (each.kind,)
                )
                times = [span for kind in parts for span in spans.pop((device, each._replace(kind=kind)), ())]
                ran += len(times)
                assert all(start >= until for start, _ in times)
                until = max((until, *(finish for _, finish in times)))
    assert not spans  # every op that runs for each micro-batch belongs to a pass
    assert ran > 0


@settings(max_examples=examples(60, 9))
@given(cases())
def test_both_oracles_agree_with_the_engine(case: Case) -> None:
    timeline = simulate(case.problem, case.plan)
    expansion = timeline.expansion
    assert expansion is not None
    problem = expansion.problem
    assert problem.op_seconds is not None
    given = problem, problem.op_seconds.tolist(), expansion.placement.tolist(), expansion.order
    expected, other = oracle.simulate(*given), simpy_oracle.simulate(*given)
    assert timeline.start.tolist() == expected.start == other.start
    assert timeline.finish.tolist() == expected.finish == other.finish
    assert timeline.peak_bytes.tolist() == expected.peak_bytes
