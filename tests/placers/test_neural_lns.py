"""Plans repaired by a policy: what is freed, what may change, and a search that keeps its promises."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.costs.costs import costs_of
from envs.simulation.simulator import Simulator, simulate
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats, Ints, OpGraph
from graphs.problem import Problem
from placers.annealing import REORDER, Annealing
from placers.contract.current_plan import PlanFeature, PlanReader
from placers.learned.repair.search import RepairSearch
from placers.learned.sequential.freeing import FEWEST, MOST, free_some, scores_of
from placers.learned.sequential.layout import RolloutLayout
from placers.learned.sequential.policy import SequentialPolicy
from placers.learned.sequential.rollout import roll_out
from placers.learned.sequential.state import GREEDY, Rollouts, RolloutState, Sampling
from placers.neural_lns import NeuralLns
from tests.drawn import examples
from tests.oracle.toys import random_graph, toy_cluster, toy_graph
from tests.placers.bold import bold
from tests.placers.stand_in import stand_in

NETWORK = "sequential:width=16,heads=2,hidden=16,sage_layers=1,repairs=true"


def greedy(policy: SequentialPolicy, problem: Problem, previous: Ints, kept: Bools) -> tuple[Ints, Rollouts]:
    """(units,) devices of a greedy roll-out in which some units stay where they were, and all that it wrote."""
    batch = policy.stack([policy.view(problem)])
    layout = batch.layouts[0]
    with torch.no_grad():
        layers = policy.score_layers(layout, policy(batch.encoded)[0])
    sampling = Sampling.of(GREEDY, np.zeros((1, len(previous))), previous[None].copy(), kept[None].copy())
    rollouts = Rollouts.room_for(layout, 1, keep=True)
    roll_out(layout, layers, sampling, RolloutState.room_for(layout, layers), rollouts)
    return rollouts.placements[0], rollouts


@settings(max_examples=examples(20, 8), deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 25), st.integers(2, 4), st.sampled_from((50.0, 1e9)))
def test_units_that_are_kept_stay_and_what_is_freed_sees_them_as_if_they_had_been_decided_so(
    seed: int, ops: int, devices: int, memory: float
) -> None:
    problem, policy = Problem(random_graph(ops, seed), toy_cluster(devices, memory=memory)), bold(seed, NETWORK)
    rng = np.random.default_rng(seed)
    before, kept = rng.integers(devices, size=ops), rng.random(ops) < 0.7
    found, rollouts = greedy(policy, problem, before, kept)
    assert (found[kept] == before[kept]).all()
    assert not rollouts.log_probability[0, kept].any()
    assert (rollouts.allowed[0, kept].sum(axis=1) == 1).all()
    batch = policy.stack([policy.view(problem)])
    followed = policy.follow(batch, torch.from_numpy(found)[None, None], torch.from_numpy(before)[None, None])
    seen, only = np.zeros((ops, devices), np.bool_), followed.trace.only[0, 0].numpy()
    seen[followed.trace.states, followed.trace.devices] = True
    seen[only >= 0, only[only >= 0]] = True
    assert (seen[~kept] == rollouts.allowed[0, ~kept]).all()
    theirs = followed.trace.log_probability[0, 0].numpy()[~kept]
    assert np.allclose(rollouts.log_probability[0][~kept], theirs, atol=1e-9)


def test_freeing_all_units_is_a_whole_pass_and_freeing_none_changes_nothing() -> None:
    problem, policy = Problem(random_graph(20, seed=3), toy_cluster(3)), bold(0, NETWORK)
    before = np.random.default_rng(0).integers(3, size=20)
    assert (greedy(policy, problem, before, np.ones(20, np.bool_))[0] == before).all()
    every, none = greedy(policy, problem, before, np.zeros(20, np.bool_))[0], np.zeros((0, 20), np.bool_)
    batch = policy.stack([policy.view(problem)])
    with torch.no_grad():
        layers = policy.score_layers(batch.layouts[0], policy(batch.encoded)[0])
    rollouts = Rollouts.room_for(batch.layouts[0], 1, keep=False)
    sampling = Sampling.of(GREEDY, np.zeros((1, 20)), before[None].copy(), none)
    roll_out(batch.layouts[0], layers, sampling, RolloutState.room_for(batch.layouts[0], layers), rollouts)
    assert (rollouts.placements[0] == every).all()


def test_slack_idleness_and_cut_of_a_plan_by_hand() -> None:
    # a 1 s on the first device feeds b and c of 3 s and 1 s; c is on the other one, and d reads both on the first
    graph = toy_graph([1, 3, 1, 1], [(0, 1), (0, 2), (1, 3), (2, 3)])
    problem = Problem(graph, toy_cluster(2))
    per_byte = 1.0 / problem.cluster.bandwidth[0, 1]
    sent = graph.output_bytes[0] * per_byte
    plan = PlanReader(problem).read(np.array([0, 0, 1, 0]))
    step = plan.step_seconds
    seen = {feature: plan.features[:, feature].astype(np.float64) for feature in PlanFeature}
    back = graph.output_bytes[2] * per_byte
    late = max(4.0, 2.0 + sent + back)  # when d starts
    assert step == pytest.approx(late + 1.0)
    slack_of_c = late - back - (2.0 + sent)
    assert 1 - seen[PlanFeature.CRITICAL][2] == pytest.approx(slack_of_c / step, abs=1e-6)
    assert 1 - seen[PlanFeature.CRITICAL][3] == pytest.approx(0.0, abs=1e-6)
    assert seen[PlanFeature.WAITED] == pytest.approx([0, 0, (1 + sent) / step, (late - 4) / step], abs=1e-6)
    assert seen[PlanFeature.BEGINS] == pytest.approx([0, 1 / step, (1 + sent) / step, late / step], abs=1e-6)
    assert seen[PlanFeature.LOAD] == pytest.approx(np.array([5, 5, 1, 5]) / step)
    assert seen[PlanFeature.CUT] == pytest.approx([0.5, 0, 1, 0.5])
    assert plan.near_in_time.tolist() == [[-1, 1, -1, 1], [0, 3, 0, 2], [-1, -1, 1, 3], [1, -1, 2, -1]]


@settings(max_examples=examples(25, 10), deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 25), st.integers(1, 4))
def test_some_op_has_no_slack_and_none_has_more_than_is_left_of_the_step(seed: int, ops: int, devices: int) -> None:
    problem = Problem(random_graph(ops, seed), toy_cluster(devices))
    placement = np.random.default_rng(seed).integers(devices, size=ops)
    plan = PlanReader(problem).read(placement)
    start, finish, outcome = Simulator(problem).op_times(placement)
    timeline = Simulator(problem).timeline(placement)
    assert (start == timeline.start).all()
    assert (finish == timeline.finish).all()
    assert outcome.step_seconds == timeline.step_seconds == plan.step_seconds
    critical = plan.features[:, PlanFeature.CRITICAL]
    assert np.isfinite(plan.features).all()
    assert critical.max() == pytest.approx(1.0)
    latest = outcome.step_seconds - finish  # for an op that nothing follows
    assert ((1 - critical) * outcome.step_seconds <= latest + 1e-5 * outcome.step_seconds).all()


def test_times_under_other_priorities_are_those_of_a_simulator_with_them() -> None:
    problem = Problem(random_graph(20, seed=1), toy_cluster(2))
    placement, priorities = np.arange(20) % 2, np.random.default_rng(0).random(20)
    start, _, outcome = Simulator(problem).op_times(placement, priorities)
    ordered = Simulator(problem, order=priorities).timeline(placement)
    assert (start == ordered.start).all()
    assert outcome.step_seconds == ordered.step_seconds


def region(problem: Problem, placement: Ints, choices: int, scores: Floats | None = None) -> tuple[Ints, Bools]:
    layout, plan = RolloutLayout.of(problem, costs_of(problem)), PlanReader(problem).read(placement)
    scores = np.zeros(len(placement)) if scores is None else scores
    drawn = free_some(layout, plan, scores, choices, np.random.default_rng(0))
    return drawn.seeds, ~drawn.kept


@settings(max_examples=examples(20, 8), deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 90), st.integers(1, 3))
def test_regions_have_the_sizes_asked_for_and_their_seeds(seed: int, ops: int, devices: int) -> None:
    problem = Problem(random_graph(ops, seed), toy_cluster(devices))
    seeds, freed = region(problem, np.arange(ops) % devices, 40)
    sizes = freed.sum(axis=1)
    assert freed[np.arange(40), seeds].all()
    assert sizes.max() <= min(MOST, ops)
    assert np.mean(sizes >= min(FEWEST, ops)) > 0.9, "nearly all are as large as they were to be"


def test_the_first_unit_follows_the_scores_and_the_rest_is_near_it() -> None:
    ones = np.ones(200)
    graph = OpGraph(
        "chain", tuple(f"op{i}" for i in range(200)), ("any",) * 200,
        flops=ones, bytes_accessed=ones, output_bytes=ones, weights=np.zeros(0),
        edges=np.stack([np.arange(199), np.arange(1, 200)], axis=1), weight_uses=np.zeros((0, 2), np.int64),
    )  # fmt: skip
    chain = Problem(graph, toy_cluster(1))
    seeds, freed = region(chain, np.zeros(200, np.int64), 300, np.where(np.arange(200) == 50, 8.0, 0.0))
    share = np.exp(8) / (np.exp(8) + 199)
    assert np.mean(seeds == 50) == pytest.approx(share, abs=0.03)
    for unit, units in zip(seeds, freed, strict=True):
        spread = np.flatnonzero(units)
        assert spread[-1] - spread[0] + 1 == len(spread), "an interval of the chain"
        assert spread[0] <= unit <= spread[-1]


def test_units_that_may_run_on_one_device_alone_are_not_freed() -> None:
    graph = replace(random_graph(30, seed=6), devices=(("gpu:0",), ("gpu:1", "gpu:2"), ()) * 10)
    problem = Problem(graph, toy_cluster(3))
    placement = problem.made_allowed(np.zeros(30, np.int64))
    plan = PlanReader(problem).read(placement)
    proposals = bold(0, NETWORK).repairer(problem, threads=2).propose(plan, 30, np.random.default_rng(0))
    assert (proposals[:, ::3] == placement[::3]).all()
    assert (proposals == problem.made_allowed(proposals)).all()
    assert (proposals != placement).any()


def test_repairs_are_the_same_on_any_number_of_threads() -> None:
    problem = Problem(random_graph(40, seed=2), toy_cluster(3))
    plan = PlanReader(problem).read(np.arange(40) % 3)
    one, two, five = (
        bold(0, NETWORK).repairer(problem, threads).propose(plan, 8, np.random.default_rng(4)) for threads in (1, 2, 5)
    )
    assert (one == two).all()
    assert (one == five).all()


def test_a_choice_that_was_trained_says_something_else_than_an_untrained_one() -> None:
    problem, plain = Problem(random_graph(20, seed=1), toy_cluster(2)), SequentialPolicy.new(NETWORK, 0)
    plan = PlanReader(problem).read(np.arange(20) % 2)
    states = plain(plain.stack([plain.view(problem)]).encoded)[0]
    assert scores_of(plain.choice, states, plan) == pytest.approx(scores_of(None, states, plan), abs=1e-6)
    trained = bold(0, NETWORK).choice
    assert not np.allclose(scores_of(trained, states, plan), scores_of(None, states, plan), atol=0.01)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stand_in(tmp_path_factory.mktemp("policies") / "policy")


@pytest.mark.parametrize("moves", [0.0, 0.5, 1.0])
def test_it_finds_the_optimum_of_small_problems(policy: Path, moves: float) -> None:
    for seed in range(3):
        problem = Problem(random_graph(7, seed), toy_cluster(2, shared_out=True))
        choices = np.array(list(itertools.product(range(2), repeat=7)))
        best = Simulator(problem).run_batch(choices).step_seconds.min()
        placer = NeuralLns(policy=str(policy), moves=moves, hot=0.1, order=False)
        plan = placer.place(problem, seed=seed, budget=600).plan
        assert simulate(problem, plan).step_seconds == best


@pytest.mark.parametrize("budget", [0, 1, 2, 9, 25, 100])
@pytest.mark.parametrize("moves", [0.0, 0.5])
def test_it_uses_exactly_its_budget(policy: Path, budget: int, moves: float) -> None:
    problem = Problem(random_graph(20, seed=0), toy_cluster(3))
    assert NeuralLns(policy=str(policy), moves=moves).place(problem, budget=budget).simulations == budget


@pytest.mark.parametrize("seed", range(2))
def test_it_begins_where_annealing_from_the_policy_begins_and_is_never_worse(policy: Path, seed: int) -> None:
    problem = Problem(random_graph(40, seed), toy_cluster(3, memory=1e9))
    lns, annealing = NeuralLns(policy=str(policy)), Annealing(policy=str(policy))
    first, theirs = (placer.begin(problem, seed, 200).evaluations for placer in (lns, annealing))
    assert first.curve == theirs.curve
    assert (first.best == theirs.best).all()
    found = simulate(problem, lns.place(problem, seed=seed, budget=200).plan).step_seconds
    assert found <= np.exp(first.incumbent.value) * (1 + 1e-12)


def test_it_is_annealings_rule_that_keeps_a_repair(policy: Path) -> None:
    problem = Problem(random_graph(40, seed=8), toy_cluster(3))
    search = NeuralLns(policy=str(policy), moves=0.0, hot=1e-9, cold=1e-9, order=False).begin(problem, 0, 400)
    simulator = Simulator(problem)
    energies = [search.energy]
    while search.evaluations.simulations < 400:
        search.step(0.0, 400 - search.evaluations.simulations)
        energies.append(search.energy)
        assert np.exp(search.energy) == pytest.approx(simulator.run(search.current).step_seconds)
    assert (np.diff(energies) <= 1e-6).all(), "it is so cold that nothing worse is kept"
    assert energies[-1] < energies[0]


@pytest.mark.parametrize(
    ("moves", "order", "share"), [(1.0, True, 1.0), (0.5, True, 2.0), (0.0, True, 10.0), (0.5, False, 0.0)]
)
def test_of_all_simulations_as_many_change_the_order_as_in_annealing(
    policy: Path, moves: float, order: bool, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float] = []
    monkeypatch.setattr(RepairSearch, "take_steps", lambda self, schedule, count: shares.append(schedule.reorder))
    monkeypatch.setattr(RepairSearch, "_repair", lambda self, schedule, count: shares.append(schedule.reorder))
    search = NeuralLns(policy=str(policy), moves=moves, order=order).begin(
        Problem(random_graph(12, seed=5), toy_cluster(3)), 0, 400
    )
    search.step(0.0, 100)
    assert shares == [pytest.approx(share * REORDER)]


def test_moves_find_an_order_that_beats_every_placement_unless_the_order_may_not_change(policy: Path) -> None:
    problem = Problem(random_graph(9, seed=7), toy_cluster(2, shared_out=True))
    choices = np.array(list(itertools.product(range(2), repeat=9)))
    best = Simulator(problem).run_batch(choices).step_seconds.min()
    for order in (False, True):
        placer = NeuralLns(policy=str(policy), hot=0.1, order=order)
        plans = [placer.place(problem, seed=seed, budget=800).plan for seed in range(4)]
        assert (min(simulate(problem, plan).step_seconds for plan in plans) < best) == order


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"moves": 1.5}, "moves is 1.5; expected a share from 0 to 1"),
        ({"hot": 0.1, "cold": 0.2}, "expected 0 < cold <= hot"),
        ({"policy": "metis"}, "'metis' cannot repair plans"),
        ({"policy": "gdp:untrained=yes"}, "cannot repair plans"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(knobs: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        NeuralLns(**knobs)  # type: ignore[arg-type]
