"""Training with samples made to fit: what such a sample is paid, and that a run of them resumes as it was."""

from typing import Any

import numpy as np
import pytest
import torch

from envs.prepared_problem import PreparedProblem
from envs.simulation.simulator import Simulator
from graphs.foundation.items import Threads
from graphs.problem import Problem
from placers.learned.sequential.policy import SequentialPolicy
from placers.learned.settings import Imitation, Ppo
from tests.oracle.toys import random_graph, toy_cluster, toy_graph
from tests.training.interruption import updated_half_way
from training.learning.advantage import OVERFULL, rewards
from training.learning.fitted_samples import made_to_fit
from training.learning.ppo import PpoTrainer

TWO = Problem(toy_graph([1, 2], [(0, 1)], output_bytes=[1, 1], weights=[10, 10], weight_uses=[(0, 0), (1, 1)]),
              toy_cluster(2, memory=15), "none")  # fmt: skip
TOGETHER, APART, BACK = np.array([[0, 0], [0, 1], [1, 0]])
NETWORK = "sequential:width=16,heads=2,hidden=16,sage_layers=1"


def test_a_sample_is_paid_for_the_plan_that_it_becomes() -> None:
    prepared = PreparedProblem(TWO)
    drawn = prepared.outcomes(np.stack([TOGETHER, APART]))
    assert drawn.fits.tolist() == [False, True], "the weights of both are 20 bytes"
    (paid,), simulations = made_to_fit([prepared], [np.stack([TOGETHER, APART])], [drawn], 64, Threads())
    assert 2 < simulations <= 65
    seconds = Simulator(TWO).run_batch(np.stack([APART, BACK])).step_seconds
    assert seconds[0] == seconds[1], "there are but two plans that fit, as fast as each other"
    assert paid.step_seconds.tolist() == seconds.tolist()
    assert paid.fits.all()
    assert not drawn.fits.all(), "what was drawn is reported as it was"
    assert prepared.incumbent.value == seconds[0]
    memory, bound = TWO.cluster.memory_bytes, prepared.lower_bound
    of_pair = rewards(paid, memory, bound, lambda ratio: -np.log(ratio))
    full = float(drawn.peak_bytes[0].max() / 15)
    assert of_pair[1] - of_pair[0] == pytest.approx(-OVERFULL * full)
    assert of_pair[1] == pytest.approx(-np.log(seconds[0] / bound))


def test_what_cannot_be_made_to_fit_is_paid_as_before() -> None:
    small = Problem(TWO.graph, toy_cluster(2, memory=5), "none")
    prepared = PreparedProblem(small)
    drawn = prepared.outcomes(TOGETHER[None])
    (paid,), simulations = made_to_fit([prepared], [TOGETHER[None]], [drawn], 64, Threads())
    assert simulations == 64
    assert not paid.fits.any()
    assert prepared.incumbent.placement is None


def trainer(first_fit: int = 64) -> PpoTrainer[Any, Any, Any]:
    problems = [Problem(random_graph(12, seed), toy_cluster(2, memory=20.0), "sgd") for seed in range(3)]
    ppo = Ppo(updates=4, problems_per_update=2, samples=6, epochs=2, first_fit=first_fit)
    return PpoTrainer(SequentialPolicy.new(NETWORK, 0), problems, ppo, 0, Imitation())


def test_a_training_resumes_as_if_it_had_not_stopped() -> None:
    whole, first, second, without = trainer(), trainer(), trainer(), trainer(0)
    fitting = [whole.update().fitting for _ in range(4)]
    updated_half_way(first, second, 4)
    for _ in range(4):
        without.update()
    assert 0 < min(fitting) < 1, "some samples overflow"
    assert whole.simulations > without.simulations == 4 * 2 * 6
    of_whole, of_second, of_without = (
        torch.cat([weight.flatten() for weight in each.policy.parameters()]) for each in (whole, second, without)
    )
    assert torch.equal(of_whole, of_second)
    assert not torch.equal(of_whole, of_without), "they are paid otherwise"
