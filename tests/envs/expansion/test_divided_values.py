"""Every shard of every tensor of a divided graph equals the part of the whole one that it is."""

import numpy as np
import pytest

from envs.expansion.expand import expand
from envs.expansion.expanded import Expansion, Role
from envs.plans.mesh import Mesh, shards
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from graphs.problem import Problem
from tests.drawn import examples
from tests.envs.expansion.divided_computing import Sharded, Whole
from tests.envs.expansion.divided_graphs import Net, convolutions, mlp, random_split
from tests.oracle.toys import toy_cluster

MESHES: tuple[Mesh, ...] = ((2,), (3,), (2, 2), (2, 2, 2), ((3, 1), 2))


def expanded(net: Net, mesh: Mesh, seed: int, micro_batches: int = 1, **by: str) -> Expansion:
    """A net whose ops are divided at random, but for those whose names begin with a key: along one index, once."""
    devices, graph = shards(mesh), net.graph
    split = tuple(
        next(((index, *[""] * (len(mesh) - 1)) for kind, index in by.items() if name.startswith(kind)), at_random)
        for name, at_random in zip(graph.names, random_split(graph, mesh, np.random.default_rng(seed)), strict=True)
    )
    plan = Plan(
        (tuple(range(devices)),) * len(graph),
        None,
        Schedule(micro_batches, all_reduce="direct"),
        split=split,
        mesh=mesh,
    )
    return expand(Problem(graph, toy_cluster(devices), optimizer="sgd"), plan)


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("seed", range(examples(30, 6)))
def test_a_training_step_of_a_perceptron_is_the_same_divided_at_random(mesh: Mesh, seed: int) -> None:
    micro_batches = 1 + seed % 2
    net = mlp([8, 4, 8][: 2 + seed % 3], 8 * micro_batches)
    sharded = Sharded(Whole(net, micro_batches, seed), expanded(net, mesh, seed, micro_batches))
    assert sharded.checked >= shards(mesh) * 2


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("seed", range(examples(12, 4)))
def test_what_is_normalised_is_the_same_divided_at_random(mesh: Mesh, seed: int) -> None:
    """Over features, or over the batch, forward and backward: each shard goes on with the sum over all."""
    micro_batches = 1 + seed % 2
    per, summed_over = ("n", "o") if seed // 2 % 2 else ("o", "n")
    whole = Whole(mlp([8, 4, 8], 8 * micro_batches, per), micro_batches, seed)
    by = {"centre": summed_over} if seed % 3 else {}
    sharded = Sharded(whole, expanded(whole.net, mesh, seed, micro_batches, **by))
    assert sharded.checked >= shards(mesh) * 2
    centres = sum(name.startswith("centre") for name in whole.net.names)
    assert len(sharded.waiting) == shards(mesh) * centres * micro_batches or not by


@pytest.mark.parametrize("mesh", [(2,), (4,), (2, 2), (3,)])
@pytest.mark.parametrize("seed", range(examples(30, 6)))
def test_convolutions_are_the_same_divided_at_random(mesh: Mesh, seed: int) -> None:
    """Windows read halos, and write gradients that overlap."""
    net = convolutions(4, [4, 4, 4], 4)
    sharded = Sharded(Whole(net, 1, seed), expanded(net, mesh, seed))
    assert sharded.checked >= shards(mesh) * 2


@pytest.mark.parametrize("recompute", [(), (0, 1)])
@pytest.mark.parametrize("seed", range(8))
def test_divided_stages_of_a_pipeline_compute_the_same(seed: int, recompute: tuple[int, ...]) -> None:
    """Four devices, then two or one; each stage is divided at random, for every micro-batch alike."""
    rng = np.random.default_rng(seed)
    net, micro_batches = mlp([4, 8, 4, 8], 8), 2
    graph = net.graph
    layers = [int("".join(filter(str.isdigit, name)) or 0) for name in graph.names]
    stages = tuple(int(layer >= 2) for layer in layers)
    later = (4, 5) if seed % 2 else (4,)
    devices = tuple(later if stage else (0, 1, 2, 3) for stage in stages)
    first, second = (random_split(graph, mesh, rng) for mesh in ((2, 2), (len(later),)))
    split = tuple(first[op] if not stage else second[op] if len(later) > 1 else () for op, stage in enumerate(stages))
    schedule = Schedule(micro_batches, stages, "early_backward_a", recompute, all_reduce="direct")
    plan = Plan(devices, None, schedule, split, (2, 2))
    expansion = expand(Problem(graph, toy_cluster(6), optimizer="sgd"), plan)
    assert Sharded(Whole(net, micro_batches, seed), expansion).checked > 40
    assert Role.RECOMPUTED in expansion.role or not recompute
