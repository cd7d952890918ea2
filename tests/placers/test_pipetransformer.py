"""PipeTransformer: its balance, and its plans against the published ones."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.costs.costs import unit_seconds
from envs.simulation.simulator import simulate
from evaluation.commands.load_placer import load_placer
from graphs.descriptions.another_batch import with_batch
from graphs.files.load import load_cluster, load_graph
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.transforms.freezing import first_layers, freeze_layers
from placers.pipelines.published.auto_dp import groups
from placers.pipelines.published.auto_pipe import balance, micro_batches, shortened, stage_sizes
from placers.pipelines.published.sub_layers import SubLayers
from placers.pipetransformer import PipeTransformer

EMBEDDING, ATTENTION, MLP, NORM, HEAD = 0.742656, 2.363904, 4.723968, 0.001536, 0.769  # ViT-B/16, millions
VIT = [EMBEDDING, *[ATTENTION, MLP] * 12, NORM, HEAD]
PUBLISHED = {  # alpha -> frozen layers, and devices of a pipeline, by epoch
    1 / 5: ((0, 3, 5, 6, 8, 9, 9, 10, 10, 11), (8, 8, 4, 4, 4, 2, 2, 2, 2, 1)),
    1 / 4: ((0, 3, 6, 7, 9, 10, 10, 11, 11, 12), (8, 8, 4, 4, 2, 2, 2, 1, 1, 1)),
    1 / 3: ((0, 4, 7, 9, 10, 11, 11, 12, 12, 12), (8, 8, 4, 2, 2, 1, 1, 1, 1, 1)),
    2 / 5: ((0, 5, 8, 10, 11, 12, 12, 12, 12, 12), (8, 4, 4, 2, 1, 1, 1, 1, 1, 1)),
    1 / 2: ((0, 6, 9, 11, 12, 12, 12, 12, 12, 12), (8, 4, 2, 1, 1, 1, 1, 1, 1, 1)),
}


def active(frozen: int) -> Sequence[float]:
    """Sizes of the sub-layers that are still trained: the embedding freezes with the first layer."""
    return VIT[1 + 2 * frozen :] if frozen else VIT


def test_the_logged_balance_of_vit() -> None:
    """As the released program logs it for ViT-B/16 on four GPUs."""
    assert len(VIT) == 27
    assert sum(VIT) == pytest.approx(86.567656, abs=1e-9)
    assert balance(VIT, 4) == (7, 6, 6, 8)
    assert stage_sizes(VIT, 4) == pytest.approx((22.006272, 21.263616, 21.263616, 22.034152), abs=1e-9)


@pytest.mark.parametrize("alpha", PUBLISHED)
def test_pipelines_shorten_as_published(alpha: float) -> None:
    length, most = 8, max(stage_sizes(VIT, 8))
    for frozen, devices in zip(*PUBLISHED[alpha], strict=True):
        length = shortened(active(frozen), length, most) if frozen else length
        assert length == devices
        assert micro_batches(length) == (4 if length == 1 else 16)


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=30), st.integers(1, 12))
def test_a_balance_has_every_sub_layer_once(sizes: list[float], devices: int) -> None:
    counts = balance(sizes, devices)
    assert len(counts) == devices
    assert sum(counts) == len(sizes)
    assert sum(stage_sizes(sizes, devices)) == pytest.approx(sum(sizes))


def test_a_pipeline_is_halved_while_no_stage_becomes_larger() -> None:
    most = max(stage_sizes([1.0] * 8, 8))
    assert shortened([1.0] * 8, 8, most) == 8
    assert shortened([1.0] * 4, 8, most) == 4
    assert shortened([1.0], 8, most) == 1
    assert shortened([1.0], 6, most) == 3  # only even numbers are halved


def test_active_ranks_and_groups() -> None:
    assert groups(16, 8, 8).training == (0, 8)
    assert groups(16, 8, 4).training == (0, 1, 8, 9)
    assert groups(16, 8, 2).training == (0, 1, 2, 3, 8, 9, 10, 11)
    assert groups(16, 8, 1).training == groups(16, 8, 1).message == tuple(range(16))
    assert groups(16, 8, 4).devices[1] == (4, 5, 6, 7)
    with pytest.raises(InputError, match="cannot all be used"):
        groups(12, 8, 4)


def test_sub_layers_of_a_captured_model_are_attention_and_mlp() -> None:
    problem = Problem(load_graph("vit:layers=3,width=32,heads=2,image=32,batch=4"), load_cluster("pipetransformer"))
    layers = SubLayers.of(problem)
    attention, mlp = (3 + 1) * 32 * 33 + 64, 2 * 32 * 4 * 32 + 5 * 32 + 64
    sizes = [*[attention, mlp] * 3, 64, 33000]
    assert layers.sizes[1:].tolist() == pytest.approx(np.array(sizes) / 1e6)
    assert len(layers.sizes) == 9
    units = problem.units
    assert {len(set(layers.of_unit[problem.graph.units[[op]]])) for op in range(len(problem.graph))} == {1}
    assert layers.of_unit[units.order].tolist() == sorted(layers.of_unit[units.order].tolist())


def test_the_plan_of_vit_by_frozen_layers() -> None:
    """The plans of alpha 1/3: pipelines of 8, 8, 4, 2, 1 devices, all devices busy, frozen layers on the first."""
    cluster = load_cluster("pipetransformer")
    whole = with_batch(load_graph("vit:layers=12,width=768,heads=12,image=32,batch=16", with_law=True), 256)
    for frozen, devices in zip(*PUBLISHED[1 / 3], strict=True):
        problem = Problem(freeze_layers(whole, frozen), cluster)
        plan = PipeTransformer().place(problem).plan
        assert {len(several) for several in plan.devices} == {16 // devices}
        assert sorted({device for several in plan.devices for device in several}) == list(range(16))
        of_frozen = {plan.devices[op] for op in np.flatnonzero(first_layers(problem.graph, frozen)).tolist()}
        assert of_frozen <= {tuple(range(0, 16, devices))}
        assert simulate(problem, plan).fits


def test_balanced_by_time_frozen_layers_are_spread() -> None:
    """By parameters the first stage has all frozen layers; by time no stage is longer than it has to be."""
    cluster = load_cluster("pipetransformer:servers=1,devices=4")
    whole = load_graph("vit:layers=12,width=768,heads=12,image=32,batch=16", with_law=True)
    problem = Problem(freeze_layers(with_batch(whole, 64), 8), cluster)
    seconds = unit_seconds(problem)[:, 0]
    longest = {}
    for balance_by in ("parameters", "time"):
        plan = load_placer(f"pipetransformer:devices=4,balance={balance_by}").place(problem).plan
        stage = np.zeros(problem.graph.num_units, np.int64)
        stage[problem.graph.units] = plan.schedule.stages
        longest[balance_by] = np.bincount(stage, seconds).max()
    layers = SubLayers.of(problem)
    each = np.bincount(layers.of_unit, seconds)
    assert longest["time"] < longest["parameters"]
    assert longest["time"] == pytest.approx(
        min(max(part.sum() for part in np.split(each, cuts)) for cuts in combinations(range(1, len(each)), 3))
    )


@pytest.mark.parametrize(
    ("cluster", "note"),
    [
        ("v100:devices=1", "1 pipeline of 1 device, 4 micro-batches"),
        ("p100:devices=3", "1 pipeline of 3 devices, 4 micro-batches"),
        ("p100:devices=8", "2 pipelines of 4 devices, 2 micro-batches"),  # a model of seven sub-layers
    ],
)
def test_pipelines_are_no_longer_than_a_server_or_the_model(cluster: str, note: str) -> None:
    problem = Problem(load_graph("vit:layers=2,width=32,heads=2,image=32,batch=4"), load_cluster(cluster))
    assert len(SubLayers.of(problem).sizes) == 7
    found = PipeTransformer().place(problem)
    assert found.notes == (note,)
    assert simulate(problem, found.plan).fits


def test_the_placer_says_what_it_cannot_do() -> None:
    problem = Problem(load_graph("vit:layers=3,width=32,heads=2,image=32,batch=4"), load_cluster("pipetransformer"))
    with pytest.raises(InputError, match="cannot be divided into"):
        PipeTransformer(micro_batches=3).place(problem)
    with pytest.raises(InputError, match="need more than the 16"):
        PipeTransformer(devices=8, pipelines=3).place(problem)
    with pytest.raises(InputError, match="expected at least 0"):
        PipeTransformer(first=-1)
