"""Blocks as torchgpipe and lingvo cut them: published examples, and what each promises."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs.formats.pipedream import load_layer_profile
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints
from placers.gpipe import GPipe
from placers.pipelines.cutting.balance import block_partition, histogram_partition
from placers.pipelines.cutting.chain import least_bottleneck
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.papers.pipedream_profiles import DATA

COSTS = st.lists(st.floats(0, 100), min_size=1, max_size=30)


def sums(costs: Floats, block: Ints, blocks: int) -> Floats:
    return np.bincount(block, costs, blocks).astype(np.float64)


def test_the_examples_of_torchgpipe() -> None:
    assert block_partition(np.arange(1.0, 7.0), 2).tolist() == [0, 0, 0, 0, 1, 1]
    assert block_partition(np.zeros(2), 2).tolist() == [0, 1]
    for blocks in (0, 3):
        with pytest.raises(InputError, match=f"2 layers cannot be cut into {blocks} blocks"):
            block_partition(np.ones(2), blocks)


@given(COSTS, st.integers(1, 8))
def test_blocks_differ_by_no_more_than_the_costliest_layer_and_are_no_better_than_the_best(
    costs: list[float], blocks: int
) -> None:
    values = np.array(costs)
    blocks = min(blocks, len(values))
    found = block_partition(values, blocks)
    assert (np.diff(found) >= 0).all()
    scaled = (values - values.min()) / (np.ptp(values) or 1.0)
    each = sums(scaled, found, blocks)
    assert each.max() <= each.min() + 1 + 1e-9
    nothing = np.zeros(len(values))
    best = least_bottleneck(np.repeat(values[:, None], blocks, axis=1), nothing, nothing, np.zeros(blocks))
    assert best is not None
    assert sums(values, found, blocks).max() >= sums(values, best, blocks).max() * (1 - 1e-9)


def test_a_histogram_may_leave_blocks_empty() -> None:
    assert histogram_partition(np.array([1.0, 1.0, 1.0, 1.0]), 2).tolist() == [0, 1, 1, 1]  # half is in the next
    assert histogram_partition(np.array([1.0, 98.0, 1.0]), 4).tolist() == [0, 3, 3]
    assert histogram_partition(np.zeros(3), 3).tolist() == [1, 2, 2]


@given(COSTS, st.integers(1, 8))
def test_a_histogram_goes_on_from_block_to_block(costs: list[float], blocks: int) -> None:
    found = histogram_partition(np.array(costs), blocks)
    assert (np.diff(found) >= 0).all()
    assert found[-1] == blocks - 1


@pytest.mark.parametrize(
    ("partition", "on_two", "on_three"),
    [
        ("block", [0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 2]),  # of three, the first takes two layers, the second then one
        ("histogram", [0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 2, 2]),
    ],
)
def test_gpipe_cuts_as_either(partition: Literal["block", "histogram"], on_two: list[int], on_three: list[int]) -> None:
    """Layers of 1, 2, ..., 6 seconds on two devices and on three."""
    pipeline = Pipeline(6, forward=[1, 2, 3, 4, 5, 6], backward=0.0)
    for devices, expected in ((2, on_two), (3, on_three)):
        plan = GPipe(partition=partition).place(pipeline.problem(servers(devices))).plan
        assert list(plan.schedule.stages[:6]) == expected


@pytest.mark.parametrize(
    ("model", "ratios"),  # in 4 blocks, then in 8: torchgpipe's and lingvo's
    [
        ("vgg16", (1.1429, 1.0753, 1.1200, 1.1200)),
        ("resnet50", (1.0928, 1.0141, 1.1327, 1.0582)),
        ("gnmt", (1.0817, 1.0940, 1.0133, 1.3592)),
        ("inception_v3", (1.0881, 1.0455, 1.2882, 1.1506)),
    ],
)
def test_how_far_profiles_in_their_order_are_from_the_least_bottleneck(model: str, ratios: tuple[float, ...]) -> None:
    if not (DATA / f"{model}.txt").is_file():
        pytest.skip("the profiles of PipeDream are not at hand")
    layers = sorted(load_layer_profile(DATA / f"{model}.txt").layers, key=lambda layer: int(layer.id[len("node") :]))
    costs = np.array([layer.forward_seconds + layer.backward_seconds for layer in layers])
    found = []
    for blocks in (4, 8):
        nothing = np.zeros(len(costs))
        best = least_bottleneck(np.repeat(costs[:, None], blocks, axis=1), nothing, nothing, np.zeros(blocks))
        assert best is not None
        least = sums(costs, best, blocks).max()
        found += [
            sums(costs, cut(costs, blocks), blocks).max() / least for cut in (block_partition, histogram_partition)
        ]
    assert found == pytest.approx(ratios, abs=5e-5)
