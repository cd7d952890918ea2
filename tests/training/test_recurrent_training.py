"""Training ColocRL and HDP by REINFORCE: they learn, and are for one number of devices."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from envs.simulation.simulator import Outcomes, simulate
from graphs.cluster import Cluster, Device
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.learned.colocrl.policy import ColocRlPolicy
from placers.learned.hdp.policy import HdpPolicy
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.settings import Ppo
from tests.oracle.toys import Toy, random_graph, toy_cluster, toy_graph
from training.learning.advantage import DECAY, MovingAverage
from training.learning.ppo import PpoMetrics, PpoTrainer
from training.recipe import Recipe, load_recipe
from training.runs.finetune import FineTuned, FineTuner
from training.runs.train import train

SPECS = {"colocrl": "colocrl:devices=2,hidden=32,positions=12", "hdp": "hdp:devices=2,hidden=32,groups=4"}
REINFORCE = {
    "epochs": 1, "baseline": "moving_average", "learning_rate": 3e-3, "entropy": 0.0, "final_entropy": 0.0,
    "weight_decay": 0.0,
}  # fmt: skip


def untrained(name: str) -> LearnedPlacer:
    return LearnedPlacer(by_name.module("placers", name).new_policy(SPECS[name], 0), name)


def recipe(name: str, updates: int) -> Recipe:
    ppo: dict[str, Any] = {**REINFORCE, "updates": updates, "samples": 4, "problems_per_update": 2}
    return Recipe(placer=name, network=SPECS[name], ppo=Ppo(**ppo))


def problems() -> list[Problem]:
    return [Problem(random_graph(ops, seed=ops), toy_cluster(2, memory=1e4)) for ops in (6, 9, 12)]


def weights(policy: Any) -> torch.Tensor:
    return torch.cat([value.flatten() for value in policy.state_dict().values()])


def test_a_moving_average_compares_with_what_came_before() -> None:
    baseline, all_count = MovingAverage(), np.ones(2, np.bool_)
    assert baseline.compare(np.array([-1.0, -3.0]), all_count).tolist() == [1.0, -1.0], "at first, with their own mean"
    assert baseline.compare(np.array([-1.0, -1.0]), all_count).tolist() == [1.0, 1.0]
    later = DECAY * -2.0 + (1 - DECAY) * -1.0
    assert baseline.value == pytest.approx(later)
    assert baseline.compare(np.array([0.0, -9.0]), np.array([True, False])).tolist() == pytest.approx([-later, 0.0])
    assert baseline.value == pytest.approx(DECAY * later), "what does not count does not move it"
    before = baseline.value
    assert baseline.compare(np.array([5.0, 5.0]), ~all_count).tolist() == [0.0, 0.0]
    assert baseline.value == before


def test_samples_that_do_not_fit_may_stop_to_count() -> None:
    problem = problems()[0]
    settings = Ppo(updates=9, only_fitting_after=1, baseline="moving_average")
    trainer = PpoTrainer(ColocRlPolicy.new(SPECS["colocrl"], 0), [problem], settings, seed=0)
    outcomes = Outcomes(np.array([4.0, 4.0]), np.zeros((2, 2)), np.array([True, False]))
    only = trainer.problems[0]
    assert trainer.advantages(only, outcomes, trainer.rewards(only, outcomes)).all()
    trainer.update()
    assert (trainer.advantages(only, outcomes, trainer.rewards(only, outcomes)) != 0).tolist() == [True, False]


@pytest.mark.parametrize("name", SPECS)
def test_reinforce_learns_to_use_the_faster_device(name: str) -> None:
    slow, fast = (Device(f"gpu:{i}", "gpu", speed, 1.0, 100.0) for i, speed in enumerate((1.0, 4.0)))
    apart = np.ones((2, 2))
    cluster = Cluster("unequal", (slow, fast), apart, apart, np.array([[0, 1], [2, 3]]))
    problem = Problem(toy_graph([4, 4, 4, 4], [(0, 1), (1, 2), (2, 3)]), cluster)
    start = untrained(name)
    ppo: dict[str, Any] = {**REINFORCE, "updates": 80, "samples": 16}
    policy: Any = start.policy
    trainer = PpoTrainer(policy, [problem], Ppo(**ppo), seed=0)
    metrics: list[PpoMetrics] = [trainer.update() for _ in range(80)]
    assert simulate(problem, start.place(problem).plan).step_seconds == 4.0
    assert metrics[0].clip_fraction == 0, "with one epoch nothing is clipped: this is REINFORCE"
    assert metrics[-1].step_over_bound < metrics[0].step_over_bound


@pytest.mark.parametrize("name", SPECS)
def test_finetuning_an_untrained_placer_finds_the_known_optimum(name: str, four_ops_two_devices: Toy) -> None:
    problem = four_ops_two_devices.problem
    results: list[FineTuned] = []
    start: LearnedPlacer = by_name.build("placers", f"{name}:hidden=16,untrained=yes")
    plan = FineTuner(start, on_tuned=results.append).place(problem, budget=200).plan
    assert simulate(problem, plan).step_seconds == four_ops_two_devices.best_seconds
    assert not torch.equal(weights(results[0].policy), weights(start.policy_for(problem)))


@pytest.mark.parametrize("name", SPECS)
def test_the_placer_of_a_run_is_that_of_its_folder(name: str, tmp_path: Path) -> None:
    trained = train(recipe(name, 2), problems(), out=tmp_path)
    assert trained.name == f"{name}:checkpoint={tmp_path}"
    again = by_name.build("placers", trained.name)
    assert again.place(problems()[2]) == trained.place(problems()[2])


@pytest.mark.parametrize("name", SPECS)
def test_training_on_another_number_of_devices_is_refused(name: str, tmp_path: Path) -> None:
    three = [*problems(), Problem(random_graph(6, seed=0), toy_cluster(3))]
    with pytest.raises(InputError, match="is for 2 devices, cluster 'toy3' has 3"):
        train(recipe(name, 2), three, out=tmp_path / "run")
    assert not (tmp_path / "run").exists(), "nothing is left behind that could not be resumed"


@pytest.mark.parametrize("name", SPECS)
def test_the_recipe_is_for_its_clusters(name: str) -> None:
    chosen = load_recipe(name)
    policy = ColocRlPolicy.new(chosen.network, 0) if name == "colocrl" else HdpPolicy.new(chosen.network, 0)
    devices = policy.shape.devices
    assert chosen.placer == name
    assert {*chosen.problems.clusters, *chosen.problems.test_clusters} == {f"p100:devices={devices}"}
