"""Small models of families, divided at random and run shard by shard: each is the model as a whole.

Among them are weights that many ops share, numbers by which others are divided, products of two weights, and parts of
tensors in another order of dimensions.
"""

import math

import numpy as np
import pytest
import torch

from envs.expansion.expand import expand
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from graphs.capture.training_step import training_step
from graphs.problem import Problem
from tests.envs.sharded_steps.sharded_checks import check, divided_at_random
from tests.envs.sharded_steps.small_models import Trained
from tests.graphs.notation.test_factored import SMALL, small_model
from tests.oracle.toys import toy_cluster

MANY_OPS = {"gnmt", "xlnet"}
ALIKE = {"rnnlm", "vit"}  # gnmt, and the transformer
CASES = [
    *(pytest.param(family, (2, 2), marks=pytest.mark.slow if family in MANY_OPS | ALIKE else ()) for family in SMALL),
    *((family, (2,)) for family in sorted(MANY_OPS)),
]


@pytest.mark.parametrize(("family", "mesh"), CASES)
def test_a_family_divided_at_random_is_the_model(family: str, mesh: tuple[int, ...]) -> None:
    builder, forward, module, inputs = small_model(family)
    graph, given = training_step(forward), builder.given()
    loss = module(*inputs).sum()
    weights = [given[-1 - number] for number in range(len(graph.weights))]
    gradients = [each.to_dense() for each in torch.autograd.grad(loss, weights)]
    whole = Trained(graph, {number: each.detach() for number, each in given.items()}, loss.detach(), gradients)
    split = divided_at_random(graph, mesh, np.random.default_rng(0))
    devices = tuple(range(math.prod(mesh)))
    plan = Plan((devices,) * len(graph), None, Schedule(all_reduce="direct"), split, mesh)
    check(whole, expand(Problem(graph, toy_cluster(len(devices)), optimizer="sgd"), plan), 1e-8)
