"""Pipelines whose stages are divided, with micro-batches, run shard by shard: the model as a whole."""

import math
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from envs.expansion.expand import expand
from envs.expansion.expanded import Role
from envs.plans.plan import Plan
from envs.plans.schedule import AllReduce, Schedule
from graphs.problem import Problem
from tests.envs.sharded_steps.sharded_checks import check, divided_at_random
from tests.envs.sharded_steps.small_models import Perceptron, Trained, as_whole
from tests.oracle.toys import toy_cluster

KINDS: tuple[AllReduce, ...] = get_args(AllReduce)
LATER = ("third", "tanh", "mse_loss", "loss")  # ops of the second stage


def perceptron() -> Trained:
    torch.manual_seed(0)
    return as_whole(Perceptron(6, 10, 7, 5).double(), (torch.randn(12, 6).double(), torch.randn(12, 5).double()))


class Shared(nn.Module):
    """The first and the last layer have a weight in common, and the two between them another one."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.first, self.second = nn.Embedding(12, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight

    def forward(self, words: Tensor) -> Tensor:
        """The mean square of what it says of each word."""
        x = torch.relu(self.first(self.words(words)))
        return (torch.tanh(self.second(x)) @ self.words.weight.T).pow(2).mean()


@pytest.mark.parametrize("seed", range(12))
def test_stages_may_share_weights(seed: int) -> None:
    """Gradients of one stage go on to another one to be added to; new values are brought back."""
    torch.manual_seed(0)
    whole, micro_batches = as_whole(Shared().double(), (torch.randint(12, (8, 3)),)), 1 + seed % 2
    graph, mesh = whole.graph, ((2,), (2, 2))[seed % 3 > 1]
    first = tuple(range(math.prod(mesh)))
    second = tuple(device + len(first) for device in first) if seed % 4 < 2 else (len(first),)
    place = np.argsort(graph.topological_order)
    begins = place[2 + seed % 3]  # of the second stage: after the embedding, the first product, or relu
    forward = np.where(graph.mirror < 0, np.arange(len(graph)), graph.mirror)
    stages = tuple((place[forward] >= begins).astype(int).tolist())
    drawn = divided_at_random(graph, mesh, np.random.default_rng(seed), micro_batches)
    devices = tuple(second if stage else first for stage in stages)
    split = tuple(each if len(several) > 1 else () for each, several in zip(drawn, devices, strict=True))
    schedule = Schedule(micro_batches, stages, "gpipe", all_reduce=KINDS[seed % len(KINDS)])
    problem = Problem(graph, toy_cluster(len(first) + len(second)), optimizer="sgd")
    check(whole, expand(problem, Plan(devices, None, schedule, split, mesh)), 1e-11)


@pytest.mark.parametrize("recompute", [(), (0, 1)])
@pytest.mark.parametrize("seed", range(8))
def test_divided_stages_compute_what_the_model_does(seed: int, recompute: tuple[int, ...]) -> None:
    """The mean of the loss is over all micro-batches. The second stage is on one device, or on as many as the first."""
    whole, mesh, micro_batches = perceptron(), ((2,), (2, 2))[seed % 2], 1 + seed % 3
    first = tuple(range(math.prod(mesh)))
    second = tuple(device + len(first) for device in first) if seed % 4 < 2 else (len(first),)
    graph = whole.graph
    stages = tuple(int(name.startswith(LATER)) for name in graph.names)
    drawn = divided_at_random(graph, mesh, np.random.default_rng(seed), micro_batches)
    devices = tuple(second if stage else first for stage in stages)
    split = tuple(each if len(several) > 1 else () for each, several in zip(drawn, devices, strict=True))
    schedule = Schedule(micro_batches, stages, "early_backward_a", recompute, all_reduce=KINDS[seed % len(KINDS)])
    problem = Problem(graph, toy_cluster(len(first) + len(second)), optimizer="sgd")
    expansion = expand(problem, Plan(devices, None, schedule, split, mesh))
    check(whole, expansion, 1e-11)
    assert Role.RECOMPUTED in expansion.role or not recompute
