"""What every network of `placers/learned/gdp/networks` must do: logits for any number of ops and devices."""

import pytest
import torch

from envs.costs.cost_models.roofline import build as roofline
from graphs.foundation import by_name
from graphs.problem import Problem
from placers.learned.batch import Batch
from placers.learned.features import Observation, observe
from placers.learned.gdp.policy import OneShotPolicy
from tests.oracle.toys import random_graph, toy_cluster

NETWORKS = by_name.built_in("placers.learned.gdp.networks")


def observation(ops: int, devices: int) -> Observation:
    problem = Problem(random_graph(ops, seed=ops), toy_cluster(devices))
    return observe(problem, roofline().costs(problem))


@pytest.mark.parametrize("network", NETWORKS)
def test_one_network_serves_graphs_and_clusters_of_any_size(network: str) -> None:
    policy = OneShotPolicy.new(network, seed=0)
    for ops, devices in ((1, 1), (7, 2), (40, 8)):
        logits = policy.logits(Batch.of([observation(ops, devices)]))
        assert logits.shape == (1, ops, devices)
        assert torch.isfinite(logits).all()


@pytest.mark.parametrize("network", NETWORKS)
def test_a_problem_is_judged_alike_alone_and_in_a_batch(network: str) -> None:
    policy = OneShotPolicy.new(network, seed=0)
    small, large = observation(9, 2), observation(30, 5)
    together = policy.logits(Batch.of([small, large]))
    torch.testing.assert_close(together[0, :9, :2], policy.logits(Batch.of([small]))[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(together[1], policy.logits(Batch.of([large]))[0], rtol=1e-4, atol=1e-5)
    assert torch.isinf(together[0, :, 2:]).all(), "padded devices are never chosen"


@pytest.mark.parametrize("network", NETWORKS)
def test_the_order_of_ops_does_not_matter(network: str) -> None:
    policy = OneShotPolicy.new(network, seed=0)
    seen = observation(12, 3)
    turned = Observation(
        seen.units[::-1].copy(), seen.devices, seen.pairs[::-1].copy(), 11 - seen.edges
    )  # the same ops, numbered from the other end
    straight, reversed_ = (policy.logits(Batch.of([each]))[0] for each in (seen, turned))
    torch.testing.assert_close(straight, reversed_.flip(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("network", NETWORKS)
def test_equal_seeds_give_equal_weights(network: str) -> None:
    one, same, other = (OneShotPolicy.new(network, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)
