"""Cuts by formula, against all cuts there are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.layers import Layers
from graphs.cluster import Cluster, Device
from graphs.problem import Problem
from placers.pipelines.pipeline_formula import PipelineFormula
from placers.pipelines.proposals import LONG, NEAR, Proposer
from tests.papers.test_dapple import chain_of

LAYERS = 7


def unequal(speeds: list[float], memories: list[float]) -> Cluster:
    """Devices in a row, of these speeds."""
    devices = tuple(
        Device(f"gpu:{number}", "gpu", speed, speed, memory)
        for number, (speed, memory) in enumerate(zip(speeds, memories, strict=True))
    )
    count = len(devices)
    channel = np.arange(count * count).reshape(count, count)
    return Cluster("unequal", devices, np.zeros((count, count)), np.full((count, count), 8.0), channel)


def problem_of(seed: int, speeds: list[float], memory: float) -> Problem:
    """A chain of layers whose times are in proportion to the devices' speeds."""
    rng = np.random.default_rng(seed)
    seconds, sizes, weights = (rng.uniform(low, high, LAYERS).tolist() for low, high in ((1, 9), (0, 4), (0, 9)))
    graph = chain_of(seconds, sizes, weights).graph()
    cluster = unequal(speeds, [memory] * len(speeds))
    return Problem(graph, cluster, "sgd", graph.measured_seconds[:, None] / np.array(speeds))


def proposer_of(problem: Problem, used: Sequence[int]) -> Proposer:
    return Proposer(PipelineFormula(LayerGrain(problem, Layers.of(problem, LAYERS)), used))


@settings(max_examples=20)
@given(
    seed=st.integers(0, 99), speeds=st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=2, max_size=4),
    micro_batches=st.sampled_from([1, 2, 8]),
)  # fmt: skip
def test_cuts_are_near_the_best_by_the_formula(seed: int, speeds: list[float], micro_batches: int) -> None:
    problem = problem_of(seed, speeds, np.inf)
    used = tuple(range(len(speeds)))
    proposer = proposer_of(problem, used)
    sets = tuple((device,) for device in used)
    found = proposer.cut(sets, micro_batches)
    assert found.seconds == pytest.approx(proposer.formula.estimates(found.pipeline)[0], rel=1e-12)
    least = min(
        proposer.formula.estimates(proposer.pipeline(sets, (0, *cuts, LAYERS), micro_batches))[0]
        for cuts in itertools.combinations(range(1, LAYERS), len(sets) - 1)
    )
    assert least <= found.seconds * (1 + 1e-12)
    assert found.seconds <= least * 1.15  # 1.09 at most of 1,200 such problems


@settings(max_examples=20)
@given(seed=st.integers(0, 99), memory=st.floats(10.0, 200.0))
def test_cuts_keep_to_the_memory_if_any_do(seed: int, memory: float) -> None:
    problem = problem_of(seed, [1.0, 2.0, 1.0], memory)
    proposer = proposer_of(problem, (0, 1, 2))
    sets = ((0,), (1,), (2,))
    found = proposer.cut(sets, 4)
    full = min(
        proposer.formula.estimates(proposer.pipeline(sets, (0, *cuts, LAYERS), 4))[1]
        for cuts in itertools.combinations(range(1, LAYERS), 2)
    )
    assert (found.full <= 1) == (full <= 1)
    assert np.isfinite(found.seconds) == (full <= 1)
    if full > 1:
        assert found.full == pytest.approx(full, rel=1e-9)


def test_pipelines_of_others_are_cut_on_devices_that_the_proposer_does_not_use() -> None:
    """A CPU next to a GPU: plans of other placers have stages on it, and folded they have twice as many."""
    problem = problem_of(3, [3.0, 1.0], np.inf)
    grain = LayerGrain(problem, Layers.of(problem, LAYERS))
    on_one, on_both = (Proposer(PipelineFormula(grain, used)) for used in ((0,), (0, 1)))
    given_to_both = on_both.cut(((0,), (1,)), 2).pipeline
    assert on_one.formula.estimates(given_to_both) == on_both.formula.estimates(given_to_both)
    folded = on_one.folded(given_to_both)
    assert folded == on_both.folded(given_to_both)
    assert {len(each.stages) for each in folded} == {4}
    for each in folded:
        ends = [0, *(stage.end for stage in each.stages)]
        assert ends[-1] == LAYERS
        assert [stage.first for stage in each.stages] == ends[:-1]


def test_sequences_around_one_have_a_device_elsewhere_or_a_set_joined_or_divided() -> None:
    problem = problem_of(3, [1.0, 1.0, 1.0, 2.0], np.inf)
    proposer = proposer_of(problem, (0, 1, 2, 3))
    moved = {((0,), (1, 2, 3)), ((0, 1, 3), (2,)), ((0, 1, 2), (3,))}  # of devices alike the last one
    divided = {((0,), (1,), (2, 3)), ((0, 1), (2,), (3,))}
    assert set(proposer._around(((0, 1), (2, 3)))) == moved | divided | {((0, 1, 2, 3),)}
    alone = {((0,), (1, 2, 3)), ((0, 1), (2, 3)), ((0, 1, 2), (3,))}
    assert set(proposer._around(((0, 1, 2, 3),))) == alone
    wide = proposer_of(problem_of(3, [1.0] * 6, np.inf), range(6))
    joined = {((0, 1, 2, 3), (4, 5)), ((0, 1), (2, 3, 4, 5))}
    assert {each for each in wide._around(((0, 1), (2, 3), (4, 5))) if len(each) == 2} == joined


def test_in_a_long_sequence_a_device_moves_to_places_near_it_alone() -> None:
    problem = problem_of(3, [1.0] * 10, np.inf)
    proposer = proposer_of(problem, range(10))
    for stages in (LONG, LONG + 1):
        sets = tuple((device,) for device in range(stages))
        moved = {next(each for each in found if len(each) > 1) for found in proposer._around(sets)}
        apart = {other - device for device, other in moved}
        assert apart == set(range(1, stages if stages == LONG else NEAR + 1))


def test_buffers_are_as_long_as_what_is_written_to_them() -> None:
    problem = problem_of(3, [1.0], np.inf)
    proposer = proposer_of(problem, (0,))
    for stages in (1, LAYERS, 3):
        found = proposer.cut(((0,),) * stages, 2).pipeline
        assert len(found.stages) == stages
        assert proposer.formula.estimates(found)[0] == pytest.approx(proposer.cut(((0,),) * stages, 2).seconds)
    with pytest.raises(ValueError, match=f"{LAYERS} layers cannot be cut into {LAYERS + 1} stages"):
        proposer.cut(((0,),) * (LAYERS + 1), 2)
