"""Training to repair: which plans are met, what is decided and paid, and that a tiny policy learns it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from envs.prepared_problem import PreparedProblem
from envs.simulation.simulator import Outcomes, Simulator
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.contract.current_plan import PlanReader
from placers.learned.gdp.policy import OneShotPolicy
from placers.learned.sequential.action import SequentialAction
from placers.learned.sequential.policy import SequentialPolicy
from placers.learned.settings import Imitation, Ppo
from tests.oracle.toys import random_graph, toy_cluster
from tests.training.interruption import updated_half_way
from training.learning.advantage import gains_over
from training.learning.ppo import PpoTrainer
from training.learning.repairs import MOST_CHANGES, plans_to_repair
from training.learning.rollouts import PpoProblem

NETWORK = "sequential:width=16,heads=2,hidden=16,sage_layers=1,repairs=true"
PROBLEMS = [Problem(random_graph(ops, seed=ops), toy_cluster(devices)) for ops, devices in ((30, 3), (12, 2), (20, 2))]


def repaired(policy: SequentialPolicy, samples: int = 6, seed: int = 0) -> tuple[Any, SequentialAction]:
    """A batch whose second problem has no plan to repair, and what a policy does with it."""
    batch = policy.stack([policy.view(problem) for problem in PROBLEMS])
    plans = [
        PlanReader(problem).read(np.arange(len(problem.units)) % len(problem.cluster)) if index != 1 else None
        for index, problem in enumerate(PROBLEMS)
    ]
    return batch, policy.repair(batch, samples, torch.Generator().manual_seed(seed), plans)


@pytest.mark.parametrize("knobs", ["", ",one_device=true,orders=true"])
def test_only_what_is_freed_changes_and_only_that_is_rated(knobs: str) -> None:
    policy = SequentialPolicy.new(NETWORK + knobs, 0)
    batch, action = repaired(policy)
    assert action.freed is not None
    assert (action.freed.seeds >= 0).all(1).tolist() == [True, False, True]
    scores = policy.score(batch, action)
    for index, problem in enumerate(PROBLEMS):
        units = len(problem.units)
        kept = action.freed.kept[index, :, :units]
        if index == 1:
            assert not kept.any()
            continue
        before = torch.arange(units) % len(problem.cluster)
        assert (action.devices[index, :, :units] == before)[kept].all()
        assert not scores.log_probability[index, :, :units][kept].any()
        assert (scores.log_probability[index, :, :units][~kept] < 0).any()
    rolled_out = action.trace.log_probability.float()
    units = rolled_out.shape[2]
    torch.testing.assert_close(scores.log_probability[:, :, :units], rolled_out, atol=1e-5, rtol=1e-5)
    of_choice = scores.mask[:, units : 2 * units].sum(1).tolist()
    assert of_choice == [1, 0, 1], "which unit is freed first is one decision"
    if action.one_device is not None:
        assert action.one_device.open.tolist() == [False, True, False], "a plan that is repaired is on its devices"


def test_the_choice_of_a_unit_has_the_probability_with_which_it_is_drawn() -> None:
    policy = SequentialPolicy.new(NETWORK, 0)
    batch, action = repaired(policy, samples=2000)
    assert action.freed is not None
    of_choice = policy.score(batch, action).log_probability[2, :, 30].detach().exp()
    seeds = action.freed.seeds[2]
    chances = {unit: float(of_choice[seeds == unit][0]) for unit in set(seeds.tolist())}
    for unit, chance in chances.items():
        assert chance == pytest.approx(float((seeds == unit).float().mean()), abs=0.03)
    assert sum(chances.values()) == pytest.approx(1.0, abs=0.01)


def test_without_a_plan_nothing_changes_by_a_bit() -> None:
    policy = SequentialPolicy.new(NETWORK, 0)
    batch = policy.stack([policy.view(problem) for problem in PROBLEMS])
    plain = policy.act(batch, 3, torch.Generator().manual_seed(1))
    same = policy.repair(batch, 3, torch.Generator().manual_seed(1), [None] * 3)
    assert torch.equal(plain.devices, same.devices)
    assert plain.freed is same.freed is None
    without = SequentialPolicy.new(NETWORK.replace(",repairs=true", ""), 0)
    assert torch.equal(without.act(batch, 3, torch.Generator().manual_seed(1)).devices, plain.devices)


def test_what_is_demonstrated_beside_repairs_is_about_all_units() -> None:
    policy = SequentialPolicy.new(NETWORK, 0)
    batch, action = repaired(policy)
    known = policy.actions_of(batch, [np.zeros(len(problem.units), np.int64) for problem in PROBLEMS])
    alone, together = policy.score(batch, known), policy.score(batch, action.cat(known))
    units = alone.entropy.shape[1] // 2
    torch.testing.assert_close(together.log_probability[:, -1, :units], alone.log_probability[:, 0, :units])
    assert not together.log_probability[:, -1, units:].any()


def test_gains_are_of_what_is_faster_and_fits() -> None:
    outcomes = Outcomes(np.array([1.0, 2.0, 4.0, 1.0]), np.zeros((4, 1)), np.array([True, True, True, False]))
    gained = np.array([np.log(2.0), 0.0, 0.0, 0.0])
    assert gains_over(2.0, outcomes) == pytest.approx((gained - gained.mean()) / gained.std())
    assert not gains_over(0.5, outcomes).any(), "nothing is gained, so nothing is learned"


def test_plans_that_are_met_are_the_best_known_or_near_it_and_fit() -> None:
    policy = SequentialPolicy.new(NETWORK, 0)
    problems = [PpoProblem(PreparedProblem(replace(problem)), policy.view) for problem in PROBLEMS]
    rng = np.random.default_rng(0)
    assert plans_to_repair(problems, 1.0, rng) == [None] * 3, "nothing is known yet"
    for problem in problems:
        problem.prepared.evaluate(np.zeros((1, len(problem.prepared.problem.units)), np.int64))
    assert plans_to_repair(problems, 0.0, rng) == [None] * 3
    moved = []
    for _ in range(40):
        for problem, plan in zip(problems, plans_to_repair(problems, 1.0, rng), strict=True):
            assert plan is not None
            assert plan.fits
            assert plan.step_seconds == Simulator(problem.prepared.problem).run(plan.placement).step_seconds
            moved.append(int((plan.placement != 0).sum()))
    assert 0.3 < np.mean(np.array(moved) == 0) < 0.7
    assert max(moved) > MOST_CHANGES / 2


def trainer(problems: list[Problem], network: str = NETWORK, **settings: Any) -> PpoTrainer[Any, Any, Any]:
    ppo = Ppo(problems_per_update=len(problems), learning_rate=0.01, final_learning_rate=0.01, **settings)
    return PpoTrainer(SequentialPolicy.new(network, 0), problems, ppo, 0, Imitation())


@pytest.mark.parametrize("network", [NETWORK, f"{NETWORK},orders=true"])
def test_a_training_that_repairs_resumes_as_if_it_had_not_stopped(network: str) -> None:
    settings = {"updates": 4, "samples": 4, "epochs": 2, "repairs": 0.5}
    whole, first, second = (trainer(PROBLEMS, network, **settings) for _ in range(3))
    for _ in range(4):
        whole.update()
    updated_half_way(first, second, 4)
    for one, other in zip(whole.policy.parameters(), second.policy.parameters(), strict=True):
        assert torch.equal(one, other)


def gain(policy: SequentialPolicy, problem: Problem) -> float:
    """Mean logarithm by which the better half of a policy's repairs of one disturbed plan are faster than it."""
    plan = PlanReader(problem).read(np.arange(len(problem.units)) % len(problem.cluster))
    batch = policy.stack([policy.view(problem)])
    devices = policy.repair(batch, 64, torch.Generator().manual_seed(0), [plan]).devices[0].numpy()
    return float(np.log(plan.step_seconds / Simulator(problem).run_batch(devices).step_seconds).mean())


def test_a_policy_learns_to_repair() -> None:
    problems = [Problem(random_graph(24, seed), toy_cluster(2)) for seed in range(3)]
    training = trainer(problems, updates=40, samples=48, epochs=2, repairs=1.0)
    policy = training.policy
    assert isinstance(policy, SequentialPolicy)
    before = [gain(policy, problem) for problem in problems]
    for problem in training.problems:  # something to begin with
        problem.prepared.evaluate(np.arange(24)[None] % 2)
    for _ in range(40):
        training.update()
    after = [gain(policy, problem) for problem in problems]
    assert np.mean(after) > np.mean(before) + 0.02


def test_a_policy_that_cannot_repair_is_refused() -> None:
    policy = OneShotPolicy.new("graphsage_transformer:width=16,sage_layers=1,transformer_layers=1,heads=2", seed=0)
    with pytest.raises(InputError, match=r"a policy of 'gdp' cannot repair plans; set ppo\.repairs to 0"):
        PpoTrainer(policy, PROBLEMS, Ppo(repairs=0.2), 0)
