"""What DTensor is told of a plan is what the plan says: the parts of weights, and what it cannot be told."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from envs.expansion.layout import Layout
from envs.expansion.shards.shards import Partition
from envs.expansion.shards.stored_weights import StoredWeights
from envs.plans.mesh import coordinates
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from envs.running.partitioned.tensor_placements import Placements, TensorPlacements
from graphs.descriptions.descriptions import descriptions_of
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.optcnn import build as optcnn
from placers.parallel import Parallel
from placers.tensor_parallel import TensorParallel
from placers.tofu import build as tofu
from tests.envs.placed_models.models import captured
from tests.oracle.sharded.boxed import slices

PLACERS = (TensorParallel(), TensorParallel(others="batch"), tofu(), optcnn())


def problem_of(name: str, devices: int) -> Problem:
    return Problem(captured(name), load_cluster(f"v100x{devices}"))


def part(tensor: Tensor, placements: Placements, mesh: tuple[int, ...], at: tuple[int, ...]) -> Tensor:
    """What a device has of a tensor, axis by axis."""
    for placement, parts, place in zip(placements, mesh, at, strict=True):
        if isinstance(placement, _StridedShard):
            pieces = tensor.chunk(int(placement.split_factor), placement.dim)
            tensor = torch.cat([piece.chunk(parts, placement.dim)[place] for piece in pieces], placement.dim)
        elif isinstance(placement, Shard):
            tensor = tensor.chunk(parts, placement.dim)[place]
    return tensor


@pytest.mark.parametrize(
    ("name", "devices"), [("mlp", 2), ("mlp", 4), ("gpt", 2), ("gpt", 4), ("conv", 2), ("experts", 4)]
)
def test_devices_have_the_parts_of_weights_that_the_simulator_says_they_store(name: str, devices: int) -> None:
    problem = problem_of(name, devices)
    said, was_divided = 0, False
    for placer in PLACERS:
        plan = placer.place(problem).plan
        try:
            placements = TensorPlacements(problem, plan)
        except InputError:
            continue
        stored = StoredWeights(Partition(Layout(problem, plan)))
        for number, weight in enumerate(problem.graph.weight_names):
            numbers = torch.arange(torch.Size(placements.shapes[weight]).numel()).reshape(placements.shapes[weight])
            factored = numbers.reshape([each.size for each in stored.shape[number]])
            for device, at in zip(placements.devices, coordinates(placements.mesh), strict=True):
                [box] = stored.by_device[number][device]
                ours = part(numbers, placements.stored[weight], placements.mesh, at)
                assert ours.flatten().tolist() == factored[slices(box)].flatten().tolist()
                was_divided |= ours.numel() < numbers.numel()
        said += 1
    assert said >= 2  # ten classes of the experts' head are no four equal parts
    assert was_divided


def test_heads_of_query_key_and_value_are_divided_alike() -> None:
    problem = problem_of("gpt", 4)
    placements = TensorPlacements(problem, Parallel(tp=2).place(problem).plan)
    assert placements.mesh == (2, 2)
    assert placements.stored["blocks.0.qkv.weight"] == (Replicate(), _StridedShard(0, split_factor=3))
    assert placements.stored["blocks.0.out.weight"] == (Replicate(), Shard(1))
    assert placements.stored["words.weight"] == (Replicate(), Shard(0))  # of the vocabulary
    assert [each[0] for each in placements.inputs.values()] == [Shard(0)]  # replicas divide the samples


# ---- refused -----------------------------------------------------------------------------------------------------


def columns(problem: Problem, mesh: tuple[int | tuple[float, ...], ...], devices: tuple[int, ...]) -> Plan:
    """All layers by their outputs, all else whole."""
    split = tuple(
        ("m",) * len(mesh) if each is not None and "m" in each.operator.sizes else ("",) * len(mesh)
        for each in descriptions_of(problem.graph)
    )
    return Plan((devices,) * len(problem.graph), split=split, mesh=mesh)


def test_unequal_parts_are_refused() -> None:
    problem = problem_of("mlp", 4)
    assert TensorPlacements(problem, columns(problem, (2, 2), (0, 1, 2, 3))).stored["0.weight"] == (
        Shard(0),
        Shard(0),
    )
    with pytest.raises(InputError, match=r"op '0/addmm' is divided over a mesh with unequal parts"):
        TensorPlacements(problem, columns(problem, ((3.0, 1.0),), (0, 1)))
    with pytest.raises(InputError, match=r"op '0/addmm' divides 16 of index 'm' into 3 unequal parts"):
        TensorPlacements(problem, columns(problem, (3,), (0, 1, 2)))


def test_ops_on_some_of_the_devices_are_refused() -> None:
    problem = problem_of("mlp", 4)
    plan = columns(problem, (2, 2), (0, 1, 2, 3))
    devices = tuple(
        (0, 1) if name.startswith("2/") else several
        for name, several in zip(problem.graph.names, plan.devices, strict=True)
    )
    split = tuple(each[:1] if len(several) == 2 else each for each, several in zip(plan.split, devices, strict=True))
    with pytest.raises(InputError, match=r"op '2/addmm_1' is on devices \(0, 1\)"):
        TensorPlacements(problem, replace(plan, devices=devices, split=split))


def test_a_weight_that_is_read_in_two_ways_is_refused() -> None:
    problem = problem_of("gpt", 2)
    with pytest.raises(InputError, match=r"'words/embedding' and 'head/mm' read other parts of weight 'words.weight'"):
        TensorPlacements(problem, tofu().place(problem).plan)


def test_two_axes_on_one_dimension_are_refused_where_they_divide_factors_of_it() -> None:
    problem = problem_of("conv", 4)
    with pytest.raises(InputError, match=r"'last/convolution_2.update' divides a dimension of weight 'last.weight'"):
        TensorPlacements(problem, tofu().place(problem).plan)


def test_micro_batches_are_refused() -> None:
    problem = problem_of("mlp", 2)
    plan = replace(columns(problem, (2,), (0, 1)), schedule=Schedule(micro_batches=2))
    with pytest.raises(InputError, match="2 micro-batches"):
        TensorPlacements(problem, plan)
