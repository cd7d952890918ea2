"""Forced decoding: what a decoder thinks of given placements, and which it cannot choose at all."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.simulation.held_memory import HeldMemory
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.annealing import Annealing
from placers.learned.sequential.policy import SequentialPolicy
from placers.learned.sequential.state import FILLED
from tests.oracle.toys import random_graph, toy_cluster, toy_graph
from training.learning.labels.forced_decoding import IMPOSSIBLE, likelihoods

NETWORK = "sequential:width=16,heads=2,hidden=16,sage_layers=1"


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 15), st.integers(1, 4))
def test_placements_that_were_drawn_are_as_likely_as_when_they_were_drawn(seed: int, ops: int, devices: int) -> None:
    problem = Problem(random_graph(ops, seed=seed), toy_cluster(devices, memory=1e4))
    policy = SequentialPolicy.new(NETWORK, seed)
    view = policy.view(problem)
    batch = policy.stack([view])
    first = torch.from_numpy(policy.decode(batch, np.ones(5), np.full(5, 0.9), seed)[0])[None]
    drawn = policy.follow(batch, first, torch.full_like(first, -1))
    found = likelihoods(policy, view, first[0].numpy())
    expected = drawn.trace.log_probability[0].mean(dim=1).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_names_of_equal_devices_do_not_matter() -> None:
    problem = Problem(random_graph(12, seed=1), toy_cluster(3, memory=1e4))
    policy = SequentialPolicy.new(NETWORK, 0)
    placement = np.random.default_rng(0).integers(3, size=12)
    likelihood = likelihoods(policy, policy.view(problem), np.stack([placement, (placement + 1) % 3]))
    assert likelihood[0] == pytest.approx(likelihood[1], abs=1e-6)


def test_a_device_that_is_full_by_estimate_cannot_be_chosen() -> None:
    graph = toy_graph([1, 1, 1], [(0, 1), (1, 2)], weights=[50, 30, 50], weight_uses=[(0, 0), (1, 1), (2, 2)])
    problem = Problem(graph, toy_cluster(2, memory=101.0))
    policy = SequentialPolicy.new(NETWORK, 0)
    found = likelihoods(policy, policy.view(problem), np.array([[0, 1, 1], [0, 0, 0], [0, 0, 1]]))
    assert (found < IMPOSSIBLE / 10).tolist() == [False, True, False]


def best_known(problem: Problem) -> Ints:
    return Annealing(order=False).place(problem, budget=1000).plan.per_unit(problem)


@pytest.mark.parametrize("slack", [1.02, 1.3, 100.0])
def test_only_memory_keeps_the_decoder_from_the_best_known_placements(slack: float) -> None:
    """Where weights fill the devices, about a third of these placements need more than the estimate may fill."""
    policy = SequentialPolicy.new(NETWORK, 0)
    expressible, overfull = [], []
    for seed in range(6):
        graph, devices = random_graph(18, seed=seed), 2 + seed % 3
        graph = replace(
            graph, output_bytes=graph.output_bytes / 100
        )  # weights alone count, of which estimates are exact
        problem = Problem(graph, toy_cluster(devices, memory=graph.weights.sum() * slack / devices + 1))
        best, held = best_known(problem), HeldMemory.of(problem)
        overfull.append(bool((held.on_devices(best) > FILLED * held.limits).any()))
        expressible.append(bool(likelihoods(policy, policy.view(problem), best[None])[0] > IMPOSSIBLE / 100))
    assert all(can or full for can, full in zip(expressible, overfull, strict=True))
    assert any(overfull) == (slack < 2.0)
