"""Candidates with cheap plans: how many of which, in what order, what they cost, and that they are never worse."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.simulation.simulator import Simulator, simulate
from evaluation.commands.load_placer import load_placer
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.learned.sequential import cheap_plans as module
from placers.learned.sequential.cheap_plans import candidates_with_cheap_plans, cheap_plans, likeliest
from placers.learned.sequential.layout import renamed_by_use
from placers.learned.sequential.one_device import one_device
from placers.learned.sequential.placer import build
from placers.learned.sequential.policy import SequentialPolicy
from tests.drawn import examples
from tests.oracle.toys import random_graph, toy_cluster
from tests.placers.bold import NETWORK, bold
from tests.placers.stand_in import release
from tests.placers.test_one_device import DECIDES

PROBLEM = Problem(random_graph(20, seed=1), toy_cluster(3, memory=1e9))


@settings(max_examples=examples(15, 8), deadline=None)
@given(st.integers(0, 1000), st.integers(2, 12), st.integers(1, 4), st.sampled_from((NETWORK, DECIDES)))
def test_likelihoods_are_those_of_the_network(seed: int, ops: int, devices: int, network: str) -> None:
    problem = Problem(random_graph(ops, seed=seed), toy_cluster(devices, memory=1e9))
    policy = SequentialPolicy.new(network, seed)
    batch = policy.stack([policy.view(problem)])
    everywhere: Ints = np.full((1, ops), one_device(batch.layouts[0]))
    placements = np.concatenate([policy.drawn(batch, 4, seed), everywhere])
    scored = [
        float(policy.score(batch, policy.actions_of(batch, [each])).log_probability.sum().detach())
        for each in placements
    ]
    assert policy.likelihoods(batch, placements) == pytest.approx(scored, abs=1e-3)


def test_what_the_policy_may_not_choose_is_the_least_likely() -> None:
    policy = bold()
    problem = Problem(random_graph(10, seed=1), toy_cluster(2, memory=20.0))
    batch = policy.stack([policy.view(problem)])
    crowded, drawn = np.zeros((1, 10), np.int64), policy.decode(batch, np.ones(1), np.full(1, 0.9), 0)[0]
    assert likeliest(policy, batch, np.concatenate([crowded, drawn])).tolist()[-1] == crowded[0].tolist()


def test_a_pass_over_the_greedy_placement_is_the_second_pass() -> None:
    policy = bold(3)
    batch = policy.stack([policy.view(PROBLEM)])
    first, second = policy.decode(batch, np.ones(1), np.full(1, policy.shape.fills[0]), 0, passes=2)
    assert np.array_equal(policy.passes_over(batch, first), second)
    both = policy.passes_over(batch, np.concatenate([first, second]))
    assert np.array_equal(both[:1], second)


@pytest.mark.parametrize(
    ("count", "cheap", "passes"), [(2, 1, 0), (3, 1, 0), (4, 1, 1), (7, 1, 1), (8, 2, 2), (16, 4, 4)]
)
def test_of_many_candidates_a_quarter_are_cheap_plans_and_a_quarter_passes(count: int, cheap: int, passes: int) -> None:
    policy = bold(1)
    batch = policy.stack([policy.view(PROBLEM)])
    ranked = likeliest(policy, batch, cheap_plans(PROBLEM, 2))
    assert len(ranked) > 4
    assert (np.diff(policy.likelihoods(batch, ranked)) <= 1e-9).all()
    expected = [
        *policy.candidates(PROBLEM, count - cheap - passes, 2),
        *ranked[:cheap],
        *(policy.passes_over(batch, ranked[:passes]) if passes else []),
    ]
    found = candidates_with_cheap_plans(policy, PROBLEM, count, seed=2)
    assert {each.tobytes() for each in found} == {each.tobytes() for each in expected}
    assert len(found) == len({each.tobytes() for each in found}) <= count
    assert np.array_equal(found[0], expected[0])


def test_where_cheap_placers_agree_more_candidates_are_the_policys_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever equal devices the placers name."""
    policy = bold(1)
    plan: Ints = np.arange(20) % 3
    monkeypatch.setattr(module, "cheap_plans", lambda *_: np.stack([(plan + 1) % 3, plan, (plan + 1) % 3]))
    found = candidates_with_cheap_plans(policy, PROBLEM, 8, seed=0)
    own = policy.candidates(PROBLEM, 6, 0)
    assert np.array_equal(found[:6], own)
    assert np.array_equal(found[6], renamed_by_use(policy.view(PROBLEM)[1], plan))
    assert len(found) <= 8


def test_the_greedy_placement_needs_no_cheap_placer_and_no_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Ints:
        raise AssertionError("no cheap placer is asked")

    monkeypatch.setattr(module, "cheap_plans", refuse)
    for budget in (0, 1):
        result = build(network=NETWORK, untrained=True, cheap=True).place(PROBLEM, budget=budget)
        assert result.simulations == 0
        greedy = build(network=NETWORK, untrained=True).place(PROBLEM, budget=budget)
        assert result.plan.devices == greedy.plan.devices


def test_the_best_is_no_worse_than_the_greedy_or_any_of_the_cheap_plans_and_each_counts() -> None:
    placer = build(network=NETWORK, untrained=True, cheap=True, samples=16)
    assert placer.name == "sequential:samples=16,untrained=yes,cheap=yes"
    policy = placer.policy
    assert isinstance(policy, SequentialPolicy)
    for seed in range(3):
        problem = Problem(random_graph(20, seed=seed), toy_cluster(3, memory=1e9))
        result = placer.place(problem, seed=seed, budget=20)
        candidates = candidates_with_cheap_plans(policy, problem, 16, seed)
        assert result.simulations == len(candidates) <= 16
        batch = policy.stack([policy.view(problem)])
        cheap = likeliest(policy, batch, cheap_plans(problem, seed))[:4]
        rivals = np.concatenate([policy.candidates(problem, 1, seed), cheap])
        best = Simulator(problem).run_batch(rivals).step_seconds.min()
        assert simulate(problem, result.plan).step_seconds <= best * (1 + 1e-12)


def test_it_is_a_knob_of_the_released_policy_and_off_by_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    released = release(monkeypatch, tmp_path)
    placer, plain = load_placer("default:samples=4,cheap=yes"), load_placer("default:samples=4")
    assert placer.name == "default:samples=4,cheap=yes"
    assert placer.place(PROBLEM, budget=4).simulations <= 4
    policy = build(checkpoint=str(released)).policy
    assert policy is not None
    own = policy.candidates(PROBLEM, 4, 0)
    best = own[Simulator(PROBLEM).run_batch(own).best()]
    assert plain.place(PROBLEM, budget=4).plan.per_unit(PROBLEM).tolist() == best.tolist()


def test_same_seed_same_candidates() -> None:
    one, same = (candidates_with_cheap_plans(bold(2), PROBLEM, 16, seed=5) for _ in range(2))
    assert np.array_equal(one, same)
