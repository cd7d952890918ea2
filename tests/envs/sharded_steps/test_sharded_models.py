"""Captured models run shard by shard: loss, gradients and new weights are those of the model as a whole."""

import math
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch

from envs.expansion.expand import expand
from envs.expansion.expanded import Role
from envs.plans.mesh import length
from envs.plans.plan import Plan
from envs.plans.schedule import AllReduce, Schedule
from graphs.foundation import by_name
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.splits.cuts import joint
from placers.splits.described_step import plan_of, split_graph_of
from placers.splits.mesh import best_mesh
from placers.splits.options import TOFU, Splitting
from placers.splits.pricing import Prices, Pricing
from tests.envs.expansion.test_collectives import two_servers
from tests.envs.sharded_steps.sharded_checks import check, divided_at_random
from tests.envs.sharded_steps.small_models import MODELS, as_whole, residual, trained
from tests.oracle.sharded.arrivals import MissingPart
from tests.oracle.sharded.sharded_step import ShardedStep
from tests.oracle.toys import toy_cluster

ROUNDING = 1e-5  # of float32, of the largest number of a gradient
PLACERS = ("tofu", "optcnn", "tensor_parallel")


def problem_of(graph: OpGraph, devices: int) -> Problem:
    return Problem(graph, two_servers(2) if devices == 4 else toy_cluster(devices), optimizer="sgd")


def placed(problem: Problem, placer: str) -> Plan:
    plan: Plan = by_name.build("placers", placer).place(problem).plan
    return plan


def least_bytes(problem: Problem) -> Plan:
    """As Tofu, but along all axes at once."""
    devices = range(len(problem.cluster))
    splitting = Splitting(split_graph_of(problem), best_mesh(problem.cluster, devices), TOFU)
    return plan_of(splitting, joint(Pricing(splitting, Prices.bytes(len(splitting.mesh))), math.inf), devices)


# ---- plans that are searched -----------------------------------------------------------------------------


SEARCHED = [
    (model, search)
    for model in MODELS
    for search in (*PLACERS, "least bytes")
    if model + search != "residualtensor_parallel"
]


@pytest.mark.parametrize(
    ("model", "search", "devices"),
    [
        pytest.param(*each, devices, marks=() if devices == 3 + number % 2 else pytest.mark.slow)
        for number, each in enumerate(SEARCHED)
        for devices in (2, 3, 4)
    ],
)
def test_a_model_under_a_searched_plan_is_the_model(model: str, search: str, devices: int) -> None:
    """9 samples, layers of 6, 10, 7 and 5, and images of 18 x 14: few parts are as large as others."""
    whole = trained(model)
    problem = problem_of(whole.graph, devices)
    plan = least_bytes(problem) if search == "least bytes" else placed(problem, search)
    assert len({index for each in plan.split for index in each}) > 1
    check(whole, expand(problem, plan), ROUNDING)


@pytest.mark.parametrize("replicas", [2, 3])
def test_replicas_normalise_over_their_own_part_of_the_batch(replicas: int) -> None:
    """As in PyTorch's data parallelism, which averages their gradients."""
    module, (images, labels) = residual()
    whole = as_whole(module, (images, labels))
    parts = [as_whole(module, each) for each in zip(images.chunk(replicas), labels.chunk(replicas), strict=True)]
    means = [torch.stack(each).mean(0) for each in zip(*(part.gradients for part in parts), strict=True)]
    expected = replace(whole, loss=torch.stack([part.loss for part in parts]).mean(), gradients=means)
    problem = problem_of(whole.graph, replicas)
    plan = Plan((tuple(range(replicas)),) * len(whole.graph), split=((),) * len(whole.graph))
    check(expected, expand(problem, plan), ROUNDING)


# ---- plans at random -------------------------------------------------------------------------------------


def at_random(graph: OpGraph, seed: int) -> tuple[Problem, Plan]:
    """A plan over one or two axes, of equal parts or not."""
    mesh = ((2,), (3,), (2, 2), (4,), ((2.0, 1.0),))[seed % 5]
    devices = math.prod(map(length, mesh))
    schedule = Schedule(all_reduce=get_args(AllReduce)[seed % 4])
    split = divided_at_random(graph, mesh, np.random.default_rng(seed))
    plan = Plan((tuple(range(devices)),) * len(graph), None, schedule, split, mesh)
    return problem_of(graph, devices), plan


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("model", MODELS)
def test_a_model_divided_at_random_is_the_model(model: str, seed: int) -> None:
    """In double precision: what is left is rounding."""
    whole = trained(model, torch.float64)
    problem, plan = at_random(whole.graph, seed)
    check(whole, expand(problem, plan), 1e-11)


@pytest.mark.parametrize("model", MODELS)
def test_what_is_sent_is_as_large_as_what_is_held(model: str) -> None:
    """What is held in the room that is set aside for gradients takes none of its own, and is not sent."""
    whole = trained(model)
    problem, plan = at_random(whole.graph, 1)
    expansion = expand(problem, plan)
    graph, sent = expansion.problem.graph, expansion.problem.graph.output_bytes
    producer, consumer = graph.edges[~graph.control].T
    leaves = set(producer[expansion.placement[producer] != expansion.placement[consumer]].tolist())
    checked = 0
    for op, held in ShardedStep(expansion, whole.given).arrivals.held.items():
        size = sum(part.values.numel() * part.values.element_size() for part in held)
        if op in expansion.pieces and (sent[op] or op in leaves):
            assert sent[op] == pytest.approx(size)
            checked += 1
        elif op in leaves and expansion.role[op] == Role.WORK:
            assert len(held) == 1
            assert sent[op] == pytest.approx(size)
            checked += 1
    assert checked > 20


def test_results_of_an_op_that_are_alike_are_sent_each() -> None:
    """The gradients of a scale and of a shift: summands of both go to the device that updates a part of both."""
    graph = trained("block").graph
    [op] = [op for op, name in enumerate(graph.names) if name.endswith("native_layer_norm_1.grad_weight")]
    pieces = expand(problem := problem_of(graph, 2), placed(problem, "tofu")).pieces.values()
    sent = [(piece.source.result, piece.box) for piece in pieces if piece.source.op == op]
    assert sorted(box for result, box in sent if result == 0) == sorted(box for result, box in sent if result == 1)
    assert len(sent) == 2 * 2 * 2  # of both, each device sends its half, and adds up the other


# ---- what is wrong shows ---------------------------------------------------------------------------------


def test_an_edge_that_is_missing_is_found() -> None:
    """Without the edge by which a piece arrives, or a summand, its reader lacks it."""
    whole = trained("block")
    expansion = expand(*at_random(whole.graph, 1))
    graph = expansion.problem.graph
    holds = np.array([role == Role.WORK or op in expansion.pieces for op, role in enumerate(expansion.role)])
    apart = expansion.placement[graph.edges[:, 0]] != expansion.placement[graph.edges[:, 1]]
    found = 0
    for edge in np.flatnonzero(apart & holds[graph.edges].all(axis=1) & ~graph.control)[::60].tolist():
        kept = np.arange(len(graph.edges)) != edge
        less = replace(graph, edges=graph.edges[kept], control=graph.control[kept])
        lacking = replace(expansion, problem=replace(expansion.problem, graph=less))
        with pytest.raises((MissingPart, AssertionError)):
            check(whole, lacking, ROUNDING)
        found += 1
    assert found > 2
