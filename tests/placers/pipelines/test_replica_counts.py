"""Devices and layers divided at once, against all ways to divide both."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.layers import Layers
from placers.pipelines.links_between import LinksBetween
from placers.pipelines.replica_counts import DeviceRow, DivisionTables, divide, divided, row_of
from placers.pipelines.stage_costs import StageCosts, stage_costs
from tests.drawn import examples
from tests.placers.pipelines.test_cuts import LAYERS, problem_of

Stages = list[tuple[int, int, int, int]]  # the first and the last device of each, exclusive, and its layers


def every_division(devices: int, counts: list[int]) -> Iterator[Stages]:
    """All ways to divide the first devices, and all layers."""
    for stages in range(1, min(devices, LAYERS) + 1):
        for sizes in itertools.product(counts, repeat=stages):
            if sum(sizes) > devices:
                continue
            ends = np.cumsum([0, *sizes]).tolist()
            for cuts in itertools.combinations(range(1, LAYERS), stages - 1):
                layers = itertools.pairwise((0, *cuts, LAYERS))
                yield [(*both, *of) for both, of in zip(itertools.pairwise(ends), layers, strict=True)]


def seconds(
    costs: StageCosts, row: DeviceRow, stage: tuple[int, int, int, int], micro_batches: int
) -> tuple[float, float]:
    """Of one micro-batch with sending, and of each one of many."""
    begin, end, first, last = stage
    which = row.counts.tolist().index(end - begin)
    part = 1 / (micro_batches * (end - begin))
    computing, update = 0.0, 0.0
    strength = row.strength[begin:end]
    for kind, own in zip(row.kind[begin:end].tolist(), strength / strength.sum(), strict=True):
        of = (costs.forward, costs.backward, costs.forward_fixed, costs.backward_fixed, costs.update)
        forward, backward, *fixed, updating = (table[kind, last] - table[kind, first] for table in of)
        computing, update = (
            max(computing, (forward + backward) * own / micro_batches + sum(fixed)),
            max(update, updating),
        )
    if end - begin > 1:
        summed = costs.weights[last] - costs.weights[first]
        update += row.sum_latency[end, which] + row.sum_per_byte[end, which] * summed
    sent = [
        row.latency[begin] + row.per_byte[begin] * size * part if size > 0 else 0.0
        for size in (costs.entering[first, last], costs.leaving[first, last])
    ]
    return computing + sum(sent), max(computing + update / micro_batches, *sent)


@settings(max_examples=examples(25, 10), deadline=None)
@given(
    seed=st.integers(0, 99), speeds=st.lists(st.sampled_from([1.0, 2.0]), min_size=2, max_size=4),
    micro_batches=st.sampled_from([1, 2, 8]), slack=st.sampled_from([1.0, 1.1, 1.5]),
)  # fmt: skip
def test_the_best_of_all_divisions_is_found(seed: int, speeds: list[float], micro_batches: int, slack: float) -> None:
    problem = problem_of(seed, speeds, np.inf)
    used = tuple(range(len(speeds)))
    costs, devices = stage_costs(LayerGrain(problem, Layers.of(problem, LAYERS)), used)
    row = row_of(devices, LinksBetween(problem.cluster), used, micro_batches, 0)
    shape = len(used) + 1, LAYERS + 1
    tables = DivisionTables(np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.int64))
    every = [
        np.array([seconds(costs, row, stage, micro_batches) for stage in stages])
        for stages in every_division(len(used), row.counts.tolist())
    ]
    slowest = min(each[:, 1].max() for each in every)
    assert divide(costs, row, micro_batches, np.inf, tables) == pytest.approx(slowest, rel=1e-12)
    bound = slack * slowest * (1 + 1e-9)
    least = min(each[:, 0].sum() for each in every if each[:, 1].max() <= bound)
    assert divide(costs, row, micro_batches, bound, tables) == pytest.approx(least, rel=1e-12)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 99), samples=st.sampled_from([0, 12, 16]), micro_batches=st.sampled_from([1, 4]))
def test_sets_follow_the_row_and_divide_the_samples(seed: int, samples: int, micro_batches: int) -> None:
    problem = problem_of(seed, [1.0] * 5, np.inf)
    several = (4, 2, 0, 1, 3)
    costs, devices = stage_costs(LayerGrain(problem, Layers.of(problem, LAYERS)), several)
    found = list(divided(costs, devices, LinksBetween(problem.cluster), several, micro_batches, samples))
    assert found
    for sets in found:
        together = sum(sets, ())
        assert together == several[: len(together)]
        assert 1 <= len(sets) <= LAYERS
        assert not samples or all(samples % (micro_batches * len(each)) == 0 for each in sets)
