"""Labels: searched from the policy on, kept as the policy would name them, and never worse than before."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.prepared_problem import PreparedProblem
from envs.simulation.simulator import Simulator
from graphs.cluster import Cluster, Device
from graphs.foundation import by_name
from graphs.foundation.engine import Engine
from graphs.foundation.errors import InputError
from graphs.foundation.items import ThisProcess, Threads
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.learned.distinct import distinct
from placers.learned.sequential.policy import SequentialPolicy
from placers.learned.settings import Imitation, Ppo
from tests.drawn import examples
from tests.oracle.toys import random_graph, toy_cluster, toy_graph
from tests.placers.bold import NETWORK, bold
from training.learning.labels.equal_labels import keep_likeliest, renamings
from training.learning.labels.forced_decoding import likelihoods
from training.learning.labels.improvement import improve_labels
from training.learning.labels.schedule import LabelSchedule
from training.learning.ppo import PpoTrainer
from training.learning.rollouts import PpoProblem
from training.runs.run_folder import RunFolder

SEARCHED = Imitation(simulations=60, updates=6, weight=0.5, again=1, preference=0.1)


def two_servers(latency: float = 0.0) -> Cluster:
    """Devices 0 and 1 next to each other, 2 and 3 likewise, and slow links between the servers."""
    bandwidth = np.full((4, 4), 0.5)
    bandwidth[:2, :2] = bandwidth[2:, 2:] = 2.0
    devices = tuple(Device(f"gpu:{i}", "gpu", 1.0, 1.0, 1e4) for i in range(4))
    return Cluster("servers", devices, np.full((4, 4), latency), bandwidth, np.arange(16).reshape(4, 4))


def posed(policy: SequentialPolicy, problem: Problem) -> PpoProblem[Any]:
    return PpoProblem(PreparedProblem(problem), policy.view)


def all_placements(problem: Problem) -> Ints:
    return np.array(list(product(range(len(problem.cluster)), repeat=len(problem.units))))


def least_seconds(problem: Problem) -> float:
    outcomes = Simulator(problem).run_batch(all_placements(problem))
    return float(outcomes.step_seconds[outcomes.fits].min())


@settings(max_examples=examples(15, 8), deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 20))
def test_equal_servers_change_places_at_no_cost(seed: int, ops: int) -> None:
    problem = Problem(random_graph(ops, seed=seed), two_servers(latency=0.25))
    placement = np.random.default_rng(seed).integers(4, size=ops)
    found = renamings(problem, placement)
    assert found.tolist() == [np.array([2, 3, 0, 1])[placement].tolist()]
    simulator = Simulator(problem)
    assert simulator.run(found[0]).step_seconds == pytest.approx(simulator.run(placement).step_seconds, rel=1e-12)


def test_servers_that_differ_do_not_change_places() -> None:
    cluster = two_servers()
    quick = cluster.bandwidth.copy()
    quick[2:, 2:] = 8.0
    other = Cluster("unlike", cluster.devices, cluster.latency, quick, cluster.channel)
    problem = Problem(random_graph(5, seed=0), other)
    assert renamings(problem, np.zeros(5, np.int64)).shape == (0, 5)


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 10_000))
def test_of_equally_fast_placements_the_likeliest_is_the_label(seed: int) -> None:
    problem, policy = Problem(random_graph(4, seed=seed), two_servers()), bold(seed)
    known = posed(policy, problem)
    everything = all_placements(problem)
    outcomes = known.prepared.evaluate(everything)
    best = known.prepared.incumbent.value
    equal = everything[outcomes.fits & (outcomes.step_seconds <= best * (1 + 1e-9))]
    found = equal[np.random.default_rng(seed).permutation(len(equal))[:6]]
    keep_likeliest(policy, known, found)
    label = known.prepared.incumbent.placement
    assert label is not None
    assert Simulator(problem).run(label).step_seconds == pytest.approx(best, rel=1e-9)
    likely, others = (likelihoods(policy, known.view, each) for each in (label[None], found))
    assert likely[0] >= others.max() - 1e-6


def test_a_slower_placement_never_becomes_the_label_however_likely() -> None:
    problem, policy = Problem(toy_graph([1, 3, 3, 1], [(0, 1), (0, 2), (1, 3), (2, 3)]), toy_cluster(2)), bold()
    known = posed(policy, problem)
    known.prepared.evaluate(np.array([[0, 0, 1, 1]]))
    keep_likeliest(policy, known, all_placements(problem))
    assert known.prepared.incumbent.placement is not None
    assert Simulator(problem).run(known.prepared.incumbent.placement).step_seconds == 6.0


def test_labels_of_small_problems_are_optimal_and_take_the_simulations_that_they_should() -> None:
    policy = bold()
    problems = [posed(policy, Problem(random_graph(6, seed=seed), toy_cluster(3, memory=1e4))) for seed in range(6)]
    rule = Imitation(simulations=300, again=1)
    assert improve_labels(policy, problems, rule, seed=0) == 6 * 300
    values = [each.prepared.incumbent.value for each in problems]
    np.testing.assert_allclose(values, [least_seconds(each.prepared.problem) for each in problems], rtol=1e-12)


def test_a_search_begins_at_the_policy() -> None:
    problem, policy = Problem(random_graph(30, seed=4), toy_cluster(4, memory=1e4)), bold()
    few = Imitation(simulations=4, again=1)
    known = posed(policy, problem)
    known.prepared.evaluate(np.zeros((1, 30), np.int64))
    improve_labels(policy, [known], few, seed=0)
    greedy = policy.candidates(problem, 2, 0)
    best = Simulator(problem).run_batch(greedy).step_seconds.min()
    assert known.prepared.incumbent.value <= best


def test_labels_do_not_depend_on_what_searches_them() -> None:
    def labels(engine: Engine) -> list[list[int]]:
        policy = bold()
        problems = [posed(policy, Problem(random_graph(15, seed=seed), toy_cluster(3))) for seed in range(4)]
        for _ in range(2):
            improve_labels(policy, problems, SEARCHED, 1, engine)
        return [np.asarray(each.prepared.incumbent.placement).tolist() for each in problems]

    one_after_another = labels(ThisProcess())
    assert labels(Threads()) == one_after_another


def test_a_label_is_searched_ever_less_often_where_that_is_in_vain() -> None:
    schedule, waits = LabelSchedule(), []
    for value in (5.0, 4.0, 4.0, 4.0 * (1 - 1e-12), 4.0, 3.0, 3.0):
        assert schedule.searches == 0 or not schedule.is_due()
        schedule.met += schedule.wait
        assert schedule.is_due()
        schedule.searched(value, 2, 8, 1e-9)
        waits.append(schedule.wait)
    assert waits == [2, 2, 4, 8, 8, 2, 4]


def test_problems_where_nothing_fits_are_searched_less_often_too() -> None:
    policy = bold()
    known = posed(policy, Problem(random_graph(5, seed=1), toy_cluster(2, memory=0.5)))
    improve_labels(policy, [known], SEARCHED, seed=0)
    assert known.prepared.incumbent.placement is None
    assert known.schedule.wait == SEARCHED.again
    improve_labels(policy, [known], SEARCHED, seed=0)
    assert known.schedule.wait == 2 * SEARCHED.again


@pytest.mark.parametrize("placer", ["sequential", "gdp"])
def test_a_run_that_is_resumed_finds_the_same_labels(placer: str, tmp_path: Path) -> None:
    gdp = "graphsage_transformer:width=16,sage_layers=1,transformer_layers=1,heads=2"
    network = {"sequential": NETWORK, "gdp": gdp}[placer]
    problems = [Problem(random_graph(ops, seed=ops), toy_cluster(3, memory=1e4)) for ops in (8, 12, 16)]
    ppo = Ppo(updates=6, samples=4, problems_per_update=2, epochs=1)

    def new() -> Any:
        policy: Any = by_name.module("placers", placer).new_policy(network, 0)
        return PpoTrainer(policy, problems, ppo, 3, SEARCHED)

    def run(trainer: Any, imitated: int, updates: int) -> Any:
        for _ in range(imitated):
            trainer.imitate()
        for _ in range(updates):
            trainer.update()
        return trainer

    whole, stopped, resumed = run(new(), 4, 4), run(new(), 4, 1), new()
    RunFolder(tmp_path).save(stopped)
    RunFolder(tmp_path).restore(resumed)
    run(resumed, 0, 3)
    assert resumed.simulations == whole.simulations
    for one, other in zip(resumed.problems, whole.problems, strict=True):
        assert one.schedule == other.schedule
        assert one.prepared.incumbent.placement.tolist() == other.prepared.incumbent.placement.tolist()
    for one, other in zip(resumed.policy.parameters(), whole.policy.parameters(), strict=True):
        assert torch.equal(one, other)


def test_labels_that_are_searched_again_need_simulations() -> None:
    with pytest.raises(InputError, match="a search has no simulations; give it some"):
        Imitation(again=3)


def test_distinct_placements_stay_in_their_order() -> None:
    rows = np.array([[1, 2], [0, 0], [1, 2], [3, 1]])
    assert distinct(rows).tolist() == [[1, 2], [0, 0], [3, 1]]
    assert distinct(np.zeros((0, 2), np.int64)).shape == (0, 2)


@pytest.mark.slow
def test_a_policy_that_learns_its_labels_places_small_problems_optimally() -> None:
    problems = [Problem(random_graph(7, seed=seed), toy_cluster(2 + seed % 2, memory=1e4)) for seed in range(8)]
    optimum = [least_seconds(problem) for problem in problems]
    policy = SequentialPolicy.new(NETWORK, 0)
    rule = Imitation(simulations=100, updates=100, weight=1.0, again=4, preference=0.3)
    ppo = Ppo(updates=200, samples=8, problems_per_update=8, reward="log", learning_rate=5e-3)
    trainer = PpoTrainer(policy, problems, ppo, 0, rule)
    for _ in range(rule.updates):
        trainer.imitate()
    for _ in range(ppo.updates):
        trainer.update()
    labels = [each.prepared.incumbent.value for each in trainer.problems]
    np.testing.assert_allclose(labels, optimum, rtol=1e-12)
    greedy = [Simulator(each).run(policy.candidates(each, 1, 0)[0]).step_seconds for each in problems]
    assert sum(np.isclose(greedy, optimum, rtol=1e-9)) >= 7
