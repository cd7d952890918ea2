"""What is no plan for a problem is refused in one sentence, which names what is wrong and what to do."""

import re
from dataclasses import replace

import numpy as np
import pytest

from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from envs.plans.stages import stages_of
from graphs.foundation.errors import InputError
from graphs.op_graph.batch_law import BatchLaw
from graphs.problem import Problem
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.oracle.toys import toy_cluster, toy_graph

CHAIN = toy_graph([1, 1, 1], [(0, 1), (1, 2)])  # a -> b -> c
ON = ((0,), (0,), (1,))


def refusal(plan: Plan, problem: Problem | None = None) -> str:
    with pytest.raises(InputError) as caught:
        plan.check(problem or Problem(CHAIN, toy_cluster(3)))
    return str(caught.value)


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (((0,), (3,), (0,)), "op 'b' is placed on device 3; cluster 'toy3' has devices 0 to 2"),
        (((0,), (1, -1), (0,)), "op 'b' is placed on device -1; cluster 'toy3' has devices 0 to 2"),
        (((0,), (), (0,)), "op 'b' is placed on no device; give each op at least one"),
        (((0,), (2, 1, 2), (0,)), "op 'b' is placed on 'gpu:2' twice; give each of its replicas a device of its own"),
        (((0,), (0,)), "this plan is for another graph: it places 2 ops, 'toy' has 3; place this graph"),
    ],
)
def test_devices_are_known_and_distinct(devices: tuple[tuple[int, ...], ...], expected: str) -> None:
    assert refusal(Plan(devices)) == expected


def test_every_replica_is_where_ties_and_the_graph_allow() -> None:
    tied = replace(CHAIN, group=np.array([0, -1, 0]))
    sentence = refusal(Plan(((0, 1), (2,), (0, 2))), Problem(tied, toy_cluster(3)))
    both = "they are on 'gpu:0', 'gpu:2' and 'gpu:0', 'gpu:1'"
    assert sentence == f"op 'c' must share a device with 'a', but {both}; give both the same"
    bound = replace(CHAIN, devices=((), ("gpu:0", "gpu:1"), ()))
    sentence = refusal(Plan(((2,), (0, 2), (1,))), Problem(bound, toy_cluster(3)))
    assert sentence == "op 'b' is placed on 'gpu:2'; the graph allows gpu:0, gpu:1"
    Plan(((2,), (0, 1), (1,))).check(Problem(bound, toy_cluster(3)))


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Schedule(stages=(0, 0)), "gives 2 ops a stage, 'toy' has 3 ops; give one for each"),
        (Schedule(stages=(0, 0, 2)), "has stages 0, 2; number them 0, 1, 2, ... without gaps"),
        (
            Schedule(stages=(0, 1, 1)),
            "'b' and 'c' of stage 1 are on 'gpu:0' and 'gpu:1'; a stage is on the same devices",
        ),
        (
            Schedule(stages=(1, 1, 0)),
            "op 'b' of stage 1 feeds op 'c' of stage 0; number stages in the order in which they run",
        ),
        (
            Schedule(recompute=(2,)),
            "recomputes stage 2, but the plan has stages 0 to 1; name stages of the plan",
        ),
    ],
)
def test_stages_are_parts_of_the_graph_in_its_order(schedule: Schedule, expected: str) -> None:
    assert refusal(Plan(ON, schedule=schedule)).endswith(expected)


def test_stages_that_wait_for_each_other_are_named() -> None:
    graph = toy_graph([1] * 4, [(0, 1), (1, 2), (2, 3)])
    problem, plan = Problem(graph, toy_cluster(3)), Plan(((0,), (1,), (2,), (0,)))
    assert refusal(replace(plan, schedule=Schedule(stages=(0, 1, 2, 0))), problem) == (
        "stages wait for each other, 0 -> 1 -> 2 -> 0: op 'c' of stage 2 feeds op 'd' of stage 0; "
        "put the ops of such stages into one"
    )
    # ops on the same devices are a stage unless stages are given: as an op placement, that is nothing to refuse
    for schedule in (Schedule(), Schedule(micro_batches=4)):
        replace(plan, schedule=schedule).check(problem)
    assert "wait for each other" in refusal(replace(plan, schedule=Schedule(order="gpipe")), problem)


def test_tied_ops_are_of_one_stage() -> None:
    tied = replace(CHAIN, group=np.array([0, -1, 0]))
    plan = Plan(((0,), (0,), (0,)), schedule=Schedule(stages=(0, 0, 1)))
    sentence = refusal(plan, Problem(tied, toy_cluster(1)))
    assert sentence == "ops 'a' and 'c' are tied, but in stages 0 and 1; put them into the same"


def test_replicas_that_take_turns_divide_the_micro_batches() -> None:
    chain = Pipeline(2, 3)
    plan = chain.plan(replicas=(1, 2), sharing="turns")
    assert refusal(plan, chain.problem(servers(3))) == (
        "the 2 replicas of stage 1 take turns, and do not divide 3 micro-batches; take a multiple of 2"
    )
    chain.plan(replicas=(1, 3), sharing="turns").check(chain.problem(servers(4)))


def test_more_copies_than_memory_holds_are_refused() -> None:
    plan = Plan(ON, schedule=Schedule(micro_batches=10**30))
    assert re.search("micro-batches of each; at most 5,000,000 are timed: take fewer micro-batches", refusal(plan))


def test_the_order_of_passes_is_known() -> None:
    with pytest.raises(InputError, match="unknown pass order 'gpype'"):
        Schedule(order="gpype")


def test_unequal_shares_are_of_replicas_and_divide_the_samples() -> None:
    chain = Pipeline(2, 2)
    problem = chain.problem(servers(4))
    for shares, expected in (
        (((3, 1, 1),), "stage 0 has 2 replicas, and the shares 3:1:1; give one for each"),
        (((), (3, 1)), "stage 1 has 1 replica, and the shares 3:1; give one for each"),
        (((3, 1), (), (3, 1)), "the schedule gives 3 stages shares, the plan has 2"),
    ):
        with pytest.raises(InputError, match=re.escape(expected)):
            chain.plan(replicas=(2, 1), shares=shares).check(problem)
    known = replace(problem, graph=replace(problem.graph, batch_law=BatchLaw(8)))
    chain.plan(replicas=(2, 1), shares=((3, 1),)).check(known)
    with pytest.raises(InputError, match="take 4:1 of the 4 samples of a micro-batch, which are not 5 equal parts"):
        chain.plan(replicas=(2, 1), shares=((4, 1),)).check(known)


def test_equal_shares_are_none() -> None:
    assert Schedule(shares=((2, 2), ())) == Schedule()
    assert Schedule(shares=((6, 2),)) == Schedule(shares=((3, 1),))
    with pytest.raises(InputError, match="the share 0; expected a whole number of parts"):
        Schedule(shares=((1, 0),))
    with pytest.raises(InputError, match="have no shares"):
        Schedule(4, sharing="turns", shares=((3, 1),))


@pytest.mark.parametrize(
    "wrong", [{"sharing": "turn"}, {"update": "now"}, {"recompute_at": "soon"}, {"all_reduce": "star"}]
)
def test_a_schedule_has_known_values(wrong: dict[str, str]) -> None:
    ((key, value),) = wrong.items()
    with pytest.raises(InputError, match=f"a schedule has {key} '{value}'; expected '"):
        Schedule(**wrong)  # type: ignore[arg-type]


def test_stages_that_are_not_given_are_numbered_as_they_run() -> None:
    graph = toy_graph([1] * 4, [(3, 1), (1, 2), (2, 0)])  # d -> b -> c -> a
    assert stages_of(graph, ((2,), (1,), (1,), (0,)), ()).tolist() == [2, 1, 1, 0]
    circle = ((1,), (1,), (0,), (0,))
    assert stages_of(graph, circle, ()).tolist() == [0, 0, 1, 1]
    assert stages_of(graph, circle, (1, 0, 1, 0)).tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("micro_batches", "replicas", "expected"),
    [
        (5, 1, "5 micro-batches do not divide the 12 samples of 'toy'; take a number that does, or another `batch`"),
        (3, 3, "the 3 replicas of stage 1 do not divide the 4 samples of a micro-batch; take fewer micro-batches"),
        (3, 2, ""),
        (12, 1, ""),
    ],
)
def test_micro_batches_and_replicas_divide_the_samples_if_they_are_known(
    micro_batches: int, replicas: int, expected: str
) -> None:
    known = Problem(replace(CHAIN, batch_law=BatchLaw(12)), toy_cluster(4))
    plan = Plan(((0,), (0,), tuple(range(1, 1 + replicas))), schedule=Schedule(micro_batches=micro_batches))
    if expected:
        assert refusal(plan, known).startswith(expected)
    else:
        plan.check(known)
    plan.check(Problem(CHAIN, toy_cluster(4)))


def test_replicas_that_take_turns_need_not_divide_a_micro_batch() -> None:
    known = Problem(replace(CHAIN, batch_law=BatchLaw(12)), toy_cluster(4))
    Plan(((0,), (0,), (1, 2, 3)), schedule=Schedule(micro_batches=3, sharing="turns")).check(known)
