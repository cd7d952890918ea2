"""Devices run the passes of their stages in the order that a plan names: drawings, and what is refused."""

import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.expansion.expand import expand
from envs.expansion.expanded import Role
from envs.expansion.layout import Layout
from envs.expansion.pass_lists import FORWARD, PassLists
from envs.pass_orders import Ranks
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY, Schedule, Zero
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from tests.envs.drawings import drawn_rows
from tests.envs.expansion.pipelines import Pipeline, drawn, interleaved, own_order, servers, v_shaped


def run(chain: Pipeline, order: str, ranks: Ranks = ()) -> Timeline:
    return simulate(chain.problem(servers(len(ranks) or chain.stages)), chain.plan(order, ranks=ranks))


def own(folder: Path, *ranks: str) -> str:
    """The spec of an order with the passes that rows such as "0F0 0B0" write, one for each rank."""
    rows = ("".join(f"Pass({each[0]}, PassKind({each[1]!r}), {each[2:]})," for each in rank.split()) for rank in ranks)
    return own_order(folder, "(" + "".join(f"({row})," for row in rows) + ")")


# ---- drawings --------------------------------------------------------------------------------------------------------


def test_gpipe_runs_all_forward_passes_first() -> None:
    assert drawn(run(Pipeline(3, 4), "gpipe")) == [
        "F0 F1 F2 F3             B0 B1 B2 B3",
        "   F0 F1 F2 F3       B0 B1 B2 B3",
        "      F0 F1 F2 F3 B0 B1 B2 B3",
    ]


def test_early_backward_a_is_1f1b() -> None:
    assert drawn(run(Pipeline(3, 4), "early_backward_a")) == [
        "F0 F1 F2       B0 F3 B1    B2    B3",
        "   F0 F1    B0 F2 B1 F3 B2    B3",
        "      F0 B0 F1 B1 F2 B2 F3 B3",
    ]


def test_early_backward_b_begins_with_more_micro_batches() -> None:
    assert drawn(run(Pipeline(3, 6), "early_backward_b")) == [
        "F0 F1 F2 F3 F4 B0 F5 B1    B2    B3    B4    B5",
        "   F0 F1 F2 B0 F3 B1 F4 B2 F5 B3    B4    B5",
        "      F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5",
    ]


def test_a_limit_of_micro_batches_in_flight_delays_the_forward_pass() -> None:
    assert drawn(run(Pipeline(2, 3), "early_backward_b:in_flight=1")) == [
        "F0       B0 F1       B1 F2       B2",
        "   F0 B0       F1 B1       F2 B2",
    ]


def test_backward_passes_are_drawn_as_long_as_they_take() -> None:
    assert drawn(run(Pipeline(2, 3, backward=2), "early_backward_a")) == [
        "F0 F1       B0--- F2 B1---    B2---",
        "   F0 B0--- F1 B1--- F2 B2---",
    ]


def test_interleaved_stages_take_turns() -> None:
    assert drawn(run(Pipeline(4, 4), "interleaved", interleaved(2))) == [
        "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1     2B2     2B3 0B2 0B3",
        "    1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3",
    ]


def test_looped_breadth_first_runs_stage_by_stage() -> None:
    assert drawn(run(Pipeline(4, 3), "looped_bfs", interleaved(2))) == [
        "0F0 0F1 0F2 2F0 2F1 2F2         2B2 2B1 2B0 0B2 0B1 0B0",
        "    1F0 1F1 1F2 3F0 3F1 3F2 3B2 3B1 3B0 1B2 1B1 1B0",
    ]


def test_zb_h1_fills_the_bubble_with_weight_gradients() -> None:
    """As figure 2 of Qi et al. has it, with three devices: the last one ends when the first one does."""
    assert drawn(run(Pipeline(3, 4, weight_gradient=1), "zb_h1"), parts=True) == [
        "F0 F1 F2       I0 W0 F3 I1 W1 I2 W2 I3 W3",
        "   F0 F1    I0 F2 I1 W0 F3 I2 W1 I3 W2 W3",
        "      F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3",
    ]


def test_charts_tell_the_two_parts_of_a_backward_pass_apart_where_they_are_run_apart() -> None:
    chain = Pipeline(2, 2, weight_gradient=1)
    assert drawn_rows(run(chain, "zb_h1"), columns=3) == [
        "gpu:0 |F0 F1 ...I0 W0 I1 W1 |",
        "gpu:1 |...F0 I0 F1 I1 W0 W1 |",
    ]
    assert drawn_rows(run(chain, "early_backward_a"), columns=3) == [
        "gpu:0 |F0 F1 ...B0--- ...B1--- |",
        "gpu:1 |...F0 B0--- F1 B1--- ...|",
    ]


def test_interleaved_zero_bubble() -> None:
    chain = Pipeline(4, 4, weight_gradient=1)
    assert drawn(run(chain, "interleaved_zero_bubble", interleaved(2)), parts=True) == [
        "0F0 0F1 2F0 2F1     2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 2I2 2W2 2I3 2W3 0I2 0W2 0I3 0W3",
        "    1F0 1F1 3F0 3I0 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1 3F3 3I3 3W2 1I2 3W3 1I3 1W2 1W3",
    ]


def test_zb_v() -> None:
    assert drawn(run(Pipeline(4, 4, weight_gradient=1), "zb_v", v_shaped(2)), parts=True) == [
        "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3",
        "    1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3",
    ]


def test_dualpipe_v_has_whole_backward_passes_in_the_middle() -> None:
    assert drawn(run(Pipeline(4, 4, weight_gradient=1), "dualpipe_v", v_shaped(2)), parts=True) == [
        "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3I1 3W1 3F2 0I0 0W0 3I2 3W2 3F3 0I1 0W1 3I3 3W3 0I2 0W2     0I3 0W3",
        "    1F0 2F0 1F1 2F1 1F2 2I0 2W0 2F2 1I0 1W0 1F3 2I1 2W1 2F3 1I1 1W1 2I2 2W2 1I2 1W2 2I3 1I3 2W3 1W3",
    ]


def test_replicas_of_a_stage_run_the_same_passes() -> None:
    chain = Pipeline(2, 3, forward=[2, 1], backward=[2, 1])
    timeline = simulate(chain.problem(servers(3)), chain.plan("early_backward_a", replicas=[2, 1]))
    assert drawn(timeline) == [
        "F0 F1    B0 F2 B1    B2",
        "F0 F1    B0 F2 B1    B2",
        "   F0 B0 F1 B1 F2 B2",
    ]


def test_replicas_that_take_turns_run_their_micro_batches() -> None:
    chain = Pipeline(2, 4, forward=[2, 1], backward=[2, 1])
    plan = chain.plan("early_backward_b", replicas=[2, 1], sharing="turns")
    assert drawn(simulate(chain.problem(servers(3)), plan)) == [
        "F0--- F2--- B0---       B2---",
        "F1--- F3---       B1---       B3---",
        "      F0 B0 F1 B1 F2 B2 F3 B3",
    ]


def test_replicas_that_take_turns_have_as_many_in_flight_as_pipedream_says() -> None:
    """ceil(n / R) micro-batches at each of the R replicas of a stage, of n devices from that stage on."""
    chain = Pipeline(3, 6, forward=[3, 1, 1], backward=[3, 1, 1])
    plan = chain.plan("early_backward_a", replicas=[3, 1, 1], sharing="turns", update="micro_batch")
    assert drawn(simulate(chain.problem(servers(5)), plan)) == [
        "F0------ F3------    B0------          B3------",
        "F1------ F4------          B1------          B4------",
        "F2------ F5------                B2------          B5------",
        "         F0 F1    B0 F2 B1 F3 B2 F4 B3 F5 B4    B5",
        "            F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5",
    ]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 3))
def test_how_many_are_in_flight_where_replicas_take_turns(replicas: list[int], rounds: int) -> None:
    chain = Pipeline(len(replicas), rounds * int(np.lcm.reduce(replicas)))
    plan = chain.plan("early_backward_a", replicas=replicas, sharing="turns")
    lists = PassLists.of(Layout(chain.problem(servers(sum(replicas))), plan))
    for stage, count in enumerate(replicas):
        for device in range(sum(replicas[:stage]), sum(replicas[: stage + 1])):
            is_forward = lists.kind[lists.device == device] == FORWARD
            admitted = -(-sum(replicas[stage:]) // count)
            assert np.cumsum(np.where(is_forward, 1, -1)).max() == min(admitted, chain.micro_batches // count)


def test_recomputation_is_part_of_the_backward_pass() -> None:
    chain = Pipeline(2, 2)
    late = chain.plan("early_backward_a", recompute=[0, 1])
    assert drawn(simulate(chain.problem(), late)) == ["F0 F1       R0 B0    R1 B1", "   F0 R0 B0 F1 R1 B1"]
    early = chain.plan("early_backward_a", recompute=[0, 1], recompute_at="early")
    assert drawn(simulate(chain.problem(), early)) == ["F0 F1 R0    B0 R1    B1", "   F0 R0 B0 F1 R1 B1"]


def test_the_updates_of_a_micro_batch_belong_to_its_backward_pass() -> None:
    chain = Pipeline(1, 2, weight_gradient=1, update=1)
    for order, row in (("early_backward_a", "F0 I0 W0 U0 F1 I1 W1 U1"), ("gpipe", "F0 F1 I0 W0 U0 I1 W1 U1")):
        timeline = simulate(chain.problem(), chain.plan(order, update="micro_batch"))
        assert drawn(timeline, parts=True) == [row]


def test_an_order_of_a_user_is_run(tmp_path: Path) -> None:
    order = own(tmp_path, "0F0 0F1 0B0 0B1", "1F1 1B1 1F0 1B0")
    assert drawn(run(Pipeline(2, 2), order)) == ["F0 F1             B0 B1", "      F1 B1 F0 B0"]


def test_a_pass_may_wait_for_another_device_in_its_midst() -> None:
    """A backward op of the second stage reads one of the first: as a whole, each pass would wait for the other."""
    stage = (0, 1, 1, 0, 1)
    graph = OpGraph(
        "there and back", ("f0", "f1", "b1", "b0", "x"), ("toy",) * 5, np.full(5, 2.0), np.zeros(5), np.ones(5),
        np.array([(0, 1), (1, 2), (2, 3), (3, 4)]), phase=np.array([0, 0, 1, 1, 1]),
    )  # fmt: skip
    plan = Plan(tuple((each,) for each in stage), schedule=Schedule(2, stage, "gpipe"))
    assert drawn(simulate(Problem(graph, servers(2)), plan)) == [
        "F0 F1       B0       B1",
        "   F0 F1 B0------ B1------",
    ]


# ---- edges -----------------------------------------------------------------------------------------------------------


def test_as_ready_adds_nothing() -> None:
    chain = Pipeline(2, 3)
    plain, ordered = (expand(chain.problem(), chain.plan(order)).problem.graph for order in (AS_READY, "gpipe"))
    assert len(plain) == len(ordered)
    assert plain.control.sum() < ordered.control.sum()


def test_a_gate_stands_where_it_saves_edges() -> None:
    """Twenty ops side by side in each stage: 40 edges instead of 400 between two of its forward passes."""
    side, ops = 20, 40
    stage = np.arange(ops) // side
    edges = [(op, side + op) for op in range(side)]
    graph = OpGraph(
        "wide", tuple(f"op{op}" for op in range(ops)), ("toy",) * ops, np.full(ops, 2.0), np.zeros(ops), np.zeros(ops),
        np.array(edges),
    )  # fmt: skip
    schedule = Schedule(micro_batches=2, stages=tuple(stage.tolist()), order="gpipe")
    timeline = simulate(Problem(graph, servers(2)), Plan(tuple((each,) for each in stage.tolist()), schedule=schedule))
    expansion = timeline.expansion
    assert expansion is not None
    assert (expansion.role == Role.GATE).sum() == 2
    assert expansion.problem.graph.control.sum() == 2 * 2 * side
    assert timeline.step_seconds == 2 * side + 1  # the second stage waits for each op, not for the whole pass
    assert drawn(timeline)[0] == "F0" + "-" * 57 + " F1" + "-" * 57


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_an_order_without_backward_passes_is_one_for_inference(tmp_path: Path) -> None:
    chain = Pipeline(2, 3, is_training=False)
    assert drawn(run(chain, "zb_h1")) == drawn(run(chain, "gpipe")) == ["F0 F1 F2", "   F0 F1 F2"]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (("0F0 0F1 0B0 0B1", "1F0 1B0 1F1"), "never runs B1 of stage 1; each stage runs its forward pass, and its"),
        (("0F0 0F1 0B0 0B1 0B1", "1F0 1B0 1F1 1B1"), "runs B1 of stage 0 twice; each stage"),
        (("0F0 0F1 0I0 0B1", "1F0 1B0 1F1 1B1"), "never runs W0 of stage 0"),
        (("0F0 0F1 0I0 0W0 0B0 0B1", "1F0 1B0 1F1 1B1"), "runs B0 of stage 0 twice"),
        (("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B2"), "runs B2 of stage 1 on a device of stages [1], with 2 micro-batches"),
        (("0F0 0F1 0B0 0B1",), "has passes for 1 ranks of 2; expected one tuple each"),
        (
            ("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"),
            "never ends: gpu:1 runs F1 of stage 1 before B0 of stage 1, B0 of stage 0 needs B0 of stage 1, "
            "gpu:0 runs B0 of stage 0 before F1 of stage 0, F1 of stage 1 needs F1 of stage 0; name another order",
        ),
        (("0B0 0F0 0F1 0B1", "1F0 1B0 1F1 1B1"), "never ends: gpu:0 runs B0 of stage 0 before F0 of stage 0, B0 of"),
    ],
)
def test_an_order_that_cannot_be_run_is_refused_by_one_sentence(
    tmp_path: Path, rows: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        run(Pipeline(2, 2), own(tmp_path, *rows))


def test_what_gives_no_passes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must give a tuple of Pass"):
        run(Pipeline(2, 2), own_order(tmp_path, "[[3], [4]]"))


def test_a_long_wait_is_told_by_its_shortest_cycle(tmp_path: Path) -> None:
    order = own(
        tmp_path, "0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3", "1F0 1B0 1F1 1B1 1F2 1F3 1B2 1B3",
        "2F0 2B0 2F1 2F2 2B1 2F3 2B2 2B3",
    )  # fmt: skip
    with pytest.raises(InputError) as caught:
        run(Pipeline(3, 4), order)
    assert str(caught.value).partition(": ")[2] == (
        "gpu:2 runs F2 of stage 2 before B1 of stage 2, B1 of stage 1 needs B1 of stage 2, gpu:1 runs B1 of stage 1 "
        "before F2 of stage 1, F2 of stage 2 needs F2 of stage 1; name another order, or other stages"
    )


@pytest.mark.parametrize("zero", get_args(Zero))
def test_weight_gradients_apart_need_ops_of_their_own(zero: Zero) -> None:
    """A profile of layers has one op for the whole backward pass of each."""
    names = ("f0", "f1", "b1", "b0", "u1", "u0")
    graph = OpGraph(
        "profile", names, ("layer",) * 6, np.ones(6), np.zeros(6), np.ones(6),
        np.array([(0, 1), (1, 2), (2, 3), (2, 4), (3, 5)]), phase=np.array([0, 0, 1, 1, 2, 2]),
        mirror=np.array([-1, -1, 1, 0, 1, 0]), weights=np.ones(2), weight_uses=np.array([(0, 0), (1, 1)]),
    )  # fmt: skip
    stage = tuple(int(name[1]) for name in names)
    schedule = Schedule(micro_batches=2, stages=stage, order="zb_h1", zero=zero)
    plan = Plan(tuple((2 * each, 2 * each + 1) for each in stage), schedule=schedule)
    with pytest.raises(InputError, match="and stage 1 of 'profile' has no op of its own for them; use an order of"):
        simulate(Problem(graph, servers(4), "sgd"), plan)


def test_sums_of_weight_gradients_are_run_with_them() -> None:
    """Two ops use a weight: their gradients and the sum of these are all left for the second part."""
    names = ("f0", "f1", "b1", "w1", "b0", "w0", "sum", "update")
    kinds = ("toy", "toy", "toy.grad", "toy.grad_weight", "toy.grad", "toy.grad_weight", "add", "toy.update")
    graph = OpGraph(
        "tied", names, kinds, np.full(8, 2.0) * [1, 1, 1, 1, 1, 1, 1, 0], np.zeros(8), np.ones(8),
        np.array([(0, 1), (1, 2), (1, 3), (2, 4), (2, 5), (3, 6), (5, 6), (6, 7)]), weights=np.ones(1),
        weight_uses=np.array([(0, 0), (1, 0), (7, 0)]), phase=np.array([0, 0, 1, 1, 1, 1, 1, 2]),
    )  # fmt: skip
    schedule = Schedule(micro_batches=2, order="zb_h1")
    timeline = simulate(Problem(graph, servers(1)), Plan(((0,),) * 8, schedule=schedule))
    expanded = timeline.problem.graph.names
    ran = [expanded[op].partition(".")[0] for op in np.argsort(timeline.start, kind="stable")]
    of_each = ("f0", "f1", "b1", "b0", "w1", "w0", "sum")
    assert [name for name in ran if "#" in name and "update" not in name][: 2 * len(of_each)] == [
        f"{name}#{micro_batch}" for micro_batch in (0, 1) for name in of_each
    ]


@pytest.mark.parametrize(
    ("order", "ranks", "sentence"),
    [
        ("zb_v", (), "'zb_v' takes two stages on a device"),
        ("interleaved", v_shaped(2), "'interleaved' takes stages on a device that are 2 apart"),
        ("early_backward_a", v_shaped(2), "'early_backward_a' runs one stage on each device"),
        ("nonsense", (), "unknown pass order 'nonsense'"),
    ],
)
def test_an_order_for_other_ranks_is_refused(order: str, ranks: Ranks, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        run(Pipeline(4, 4), order, ranks)
