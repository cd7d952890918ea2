"""Copies of ops: one of each is the op placement itself, and several read from each other what they must."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from envs.expansion.expand import expand
from envs.expansion.expanded import Role
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule, Shares, Sharing
from envs.simulation.simulator import Simulator, simulate
from graphs.files.load import load_graph
from graphs.problem import Problem
from tests.drawn import examples
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.oracle.strategies import Case, cases
from tests.oracle.toys import random_graph, toy_cluster, toy_graph

RULES = ("longest_path", "fifo", "program")
brief = settings(max_examples=examples(300, 30), deadline=None, suppress_health_check=list(HealthCheck))


def check_the_same(problem: Problem, plan: Plan) -> None:
    """An expansion into one copy of each op takes what the op placement takes, to the bit."""
    expected, expansion = simulate(problem, plan), expand(problem, plan)
    found = Simulator(expansion.problem, order=expansion.order).timeline(expansion.placement)
    assert found.start.tolist() == expected.start.tolist()
    assert found.finish.tolist() == expected.finish.tolist()
    assert found.step_seconds == expected.step_seconds
    assert found.peak_bytes.tolist() == expected.peak_bytes.tolist()
    assert found.held_bytes.tolist() == expected.held_bytes.tolist()
    assert expansion.problem.graph.names == problem.graph.names
    assert expansion.origin.tolist() == list(range(len(problem.graph)))


@brief
@given(cases())
def test_one_micro_batch_without_replicas_is_the_op_placement(case: Case) -> None:
    for placement in case.placements:
        check_the_same(case.problem, Plan.of_units(case.problem, placement, order=case.order))


@pytest.mark.parametrize("order", RULES)
def test_it_is_so_under_every_rule_and_for_larger_graphs(order: str) -> None:
    for seed in range(5):
        problem = Problem(random_graph(80, seed), toy_cluster(4, launch=0.5, gap=0.25, shared_out=True))
        check_the_same(problem, Plan.of(np.random.default_rng(seed).integers(0, 4, 80), order=order))


@pytest.mark.parametrize("order", RULES)
def test_it_is_so_for_a_captured_training_step(order: str) -> None:
    problem = Problem(load_graph("transformer:layers=2"), toy_cluster(3, launch=1e-6))
    units = problem.graph.num_units
    check_the_same(problem, Plan.of_units(problem, np.arange(units) * 3 // units, order=order))


# ---- replicas -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("producers", "consumers"), [(2, 3), (1, 4), (3, 1), (2, 2), (4, 6)])
@pytest.mark.parametrize("micro_batches", [1, 2, 4])
def test_what_is_sent_is_what_is_read_and_no_more(producers: int, consumers: int, micro_batches: int) -> None:
    chain = Pipeline(2, micro_batches, activation=48.0, is_training=False)
    plan = chain.plan(replicas=[producers, consumers])
    timeline = simulate(chain.problem(servers(producers + consumers, bandwidth=1.0)), plan)
    expansion = timeline.expansion
    assert expansion is not None
    graph = expansion.problem.graph
    moved = graph.moved_bytes[timeline.transfers.output]
    assert moved.sum() == pytest.approx(48 * micro_batches, rel=1e-12)
    into = [moved[timeline.transfers.destination == producers + replica].sum() for replica in range(consumers)]
    assert into == pytest.approx([48 * micro_batches / consumers] * consumers)
    out_of = [moved[timeline.transfers.source == replica].sum() for replica in range(producers)]
    assert out_of == pytest.approx([48 * micro_batches / producers] * producers)
    is_slice = expansion.role == Role.SLICE
    assert is_slice.any() == (producers % consumers != 0)


@pytest.mark.parametrize(("shares", "moved"), [(((3, 1), (1, 3)), 24), (((3, 1), (3, 1)), 0), (((), (3, 1)), 12)])
def test_replicas_with_unequal_shares_send_what_the_others_do_not_have(shares: tuple[Shares, ...], moved: int) -> None:
    """Both stages are on the same devices."""
    chain = Pipeline(2, 2, activation=48.0, is_training=False)
    plan = chain.plan(ranks=((0, 1),), replicas=2, shares=shares)
    timeline = simulate(chain.problem(servers(2, bandwidth=1.0)), plan)
    assert timeline.problem.graph.moved_bytes[timeline.transfers.output].sum() == pytest.approx(2 * moved)


def test_shares_by_speed_finish_together() -> None:
    """The first device is three times as fast; both send half of the weights' gradients twice."""
    chain = Pipeline(1, forward=6.0, backward=12.0, weights=10.0)
    even = servers(2, bandwidth=5.0)
    fast = replace(even.devices[0], flops_per_second=3.0)
    problem = chain.problem(replace(even, devices=(fast, even.devices[1])))
    by_speed, equal = (chain.plan(replicas=2, shares=shares) for shares in (((3, 1),), ()))
    assert simulate(problem, by_speed).step_seconds == pytest.approx(18 / 4 + 2 * 5 / 5)
    assert simulate(problem, equal).step_seconds == pytest.approx(18 / 2 + 2 * 5 / 5)


@pytest.mark.parametrize(("sharing", "ahead"), [("split", 1), ("turns", 2)])
@pytest.mark.parametrize("micro_batches", range(2, 17, 2))
def test_replicas_that_split_micro_batches_beat_those_that_take_turns_as_in_dapples_figure_8(
    sharing: Sharing, ahead: int, micro_batches: int
) -> None:
    """Two devices share a stage that takes twice as long as the next."""
    chain = Pipeline(2, micro_batches, forward=(2.0, 1.0), backward=(4.0, 2.0))
    plan = chain.plan("gpipe", replicas=(2, 1), sharing=sharing)
    timeline = simulate(chain.problem(servers(3)), plan)
    assert timeline.step_seconds == pytest.approx(3 * (micro_batches + ahead), abs=1e-9)


def test_without_an_order_of_passes_earlier_micro_batches_go_first() -> None:
    """By the order of ops alone, the first stage would run a for all micro-batches before b."""
    names = ("a", "b", "c", "d")
    graph = toy_graph([3] * 4, [(0, 1), (1, 2), (2, 3)], output_bytes=[0] * 4)
    plan = Plan(((0,), (0,), (1,), (1,)), schedule=Schedule(3))
    timeline = simulate(Problem(graph, toy_cluster(2)), plan)
    expansion = timeline.expansion
    assert expansion is not None
    on_first = np.flatnonzero(expansion.placement == 0)
    in_turn = on_first[np.argsort(timeline.start[on_first])]
    ran = [f"{names[expansion.origin[op]]}{expansion.micro_batch[op]}" for op in in_turn.tolist()]
    assert ran == ["a0", "b0", "a1", "b1", "a2", "b2"]
    assert timeline.step_seconds == 8  # 4 ops of a second each, and 2 seconds for each further micro-batch
