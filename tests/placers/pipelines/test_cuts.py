"""Cuts by formula, against all cuts there are."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.layers import Layers
from envs.plans.schedule import BUCKET_BYTES
from graphs.cluster import Cluster, Device
from graphs.op_graph import Floats
from graphs.problem import Problem
from placers.pipelines.cuts import ALL, BOUNDS, NEARLY_FULL, NEEDED, CutFormula, StagePlaces
from placers.pipelines.pipeline_formula import PipelineFormula
from placers.pipelines.proposals import LONG, NEAR, Proposer
from placers.pipelines.stage_costs import StageCosts
from tests.drawn import examples
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


@settings(max_examples=examples(20, 8))
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


@settings(max_examples=examples(20, 8))
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


@dataclass(frozen=True)
class StageTimes:
    """Seconds of a stage, and how full its devices are, in plain Python."""

    forward: float
    backward: float
    update: float  # with the sum of gradients
    there: float
    back: float
    sending: float  # of the busier way
    filled: float


@dataclass(frozen=True)
class PlainFormula:
    """The formula as `placers.pipelines.cuts` states it, for layers and places that are drawn."""

    costs: StageCosts
    places: StagePlaces
    micro_batches: int

    @classmethod
    def drawn(cls, seed: int, stages: int, micro_batches: int) -> PlainFormula:
        """Layers on two kinds of devices; some weights, outputs and places are none."""
        rng = np.random.default_rng(seed)

        def some(low: float, high: float, *shape: int) -> Floats:
            return np.asarray(rng.uniform(low, high, shape) * (rng.random(shape) < 0.7))

        def before(values: Floats) -> Floats:
            return np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(values, axis=-1)], axis=-1)

        seconds = [before(some(low, high, 2, LAYERS)) for low, high in ((4, 9), (0, 1), (5, 18), (0, 1), (0, 5))]
        held = [before(some(0, most, LAYERS)) for most in (2 * BUCKET_BYTES, 9, 9)]
        passing = [some(0, 60, LAYERS + 1, LAYERS + 1) for _ in range(2)]  # enough to fill a device
        has_kind = rng.random((stages, 2)) < 0.5
        has_kind[~has_kind.any(axis=1)] = True
        turns = rng.random() < 0.5
        replicas = rng.integers(1, 4, stages).astype(np.float64)
        latency, per_byte = some(0, 1, 2, stages), some(0, 0.2, 4, stages)
        places = StagePlaces(
            has_kind,
            np.ones(stages) if turns else 1 / replicas,
            rng.uniform(0.1, 1.0, (stages, 2)),
            replicas if turns else np.ones(stages),
            rng.uniform(10, 90, stages),
            rng.integers(1, micro_batches + 1, stages).astype(np.float64),
            latency[0],
            per_byte[0],
            per_byte[1],
            latency[1],
            per_byte[2],
            per_byte[3],
            some(0, 2, stages),
            some(0, 4 / BUCKET_BYTES, stages),
            rng.choice([0, 0, 0, ALL, ALL, NEEDED, NEEDED, 2], stages),
        )
        blocks = [before(some(0, 20, LAYERS)), some(0, 9, LAYERS + 1, LAYERS + 1)]
        return cls(StageCosts(*seconds, *held, *passing, *blocks), places, micro_batches)

    def stage(self, stage: int, first: int, end: int) -> StageTimes:
        """Of a stage that has the layers from one to before another."""
        costs, places, count = self.costs, self.places, self.micro_batches
        cut = self.cut(stage, first, end)
        forward, backward, update = [], [], []
        for kind in np.flatnonzero(places.has_kind[stage]):
            of = (costs.forward, costs.forward_fixed, costs.backward, costs.backward_fixed, costs.update)
            there, there_fixed, back, back_fixed, updating = (table[kind, end] - table[kind, first] for table in of)
            own = places.of_kind[stage, kind] / count
            forward.append(there * own + there_fixed)
            again, again_fixed = (table[kind, cut] - table[kind, first] for table in of[:2])
            backward.append(back * own + back_fixed + again * own + again_fixed)
            update.append(updating)
        summed, summing = costs.weights[end] - costs.weights[first], 0.0
        if summed > 0:  # the last bucket is complete when the backward pass ends, the others are summed meanwhile
            buckets = math.ceil(summed / BUCKET_BYTES)
            whole = places.sum_latency[stage] + places.sum_per_byte[stage] * summed
            summing = max(whole / buckets, whole - max(backward) * (buckets - 1) / buckets)
        sent, returned = costs.entering[first, end] / count, costs.leaving[first, end] / count
        ways = [
            (latency[stage] + each[stage] * size, latency[stage] + busy[stage] * size) if size > 0 else (0.0, 0.0)
            for size, latency, each, busy in (
                (sent, places.forward_latency, places.forward_per_byte, places.forward_busy),
                (returned, places.backward_latency, places.backward_per_byte, places.backward_busy),
            )
        ]
        filled = self.filled(stage, first, cut, end)
        return StageTimes(
            max(forward),
            max(backward),
            max(update) + summing,
            ways[0][0],
            ways[1][0],
            max(ways[0][1], ways[1][1]),
            filled,
        )

    def filled(self, stage: int, first: int, cut: int, end: int) -> float:
        """Of a stage whose layers before a cut are computed again, micro-batch by micro-batch, and block by block."""
        costs, places = self.costs, self.places
        share, flying = places.share[stage] / self.micro_batches, places.flying[stage]
        entering = (costs.entering[first, end] if cut > first else 0) + (
            costs.entering[cut, end] if first < cut < end else 0
        )
        inside = costs.kept[cut] - costs.kept[first]
        if places.again[stage] != ALL and cut > first:
            entering += costs.borders[cut] - costs.borders[first + 1]
            inside = costs.inside[first, cut]
        waiting = (costs.kept[end] - costs.kept[cut] + entering) * share * flying
        return float((costs.held[end] - costs.held[first] + waiting + inside * share) / places.limit[stage])

    def cut(self, stage: int, first: int, end: int) -> int:
        """The first layer that keeps what it makes: as given, or by bisection over those with which the stage fits."""
        given = int(self.places.again[stage])
        if given != NEEDED:
            return min(first + given, end)
        layers = range(first, end)
        return first + bisect.bisect_left(layers, 1, key=lambda cut: self.filled(stage, first, cut, end) <= NEARLY_FULL)

    def stages(self, cuts: Sequence[int]) -> list[StageTimes]:
        """Of all stages."""
        return [self.stage(stage, *ends) for stage, ends in enumerate(itertools.pairwise(cuts))]

    def slowest(self, cuts: Sequence[int]) -> float:
        """Seconds of each of many micro-batches, with its share of the update."""
        times = [0.0]
        for each, rate in zip(self.stages(cuts), self.places.rate.tolist(), strict=True):
            times += [(each.forward + each.backward) / rate + each.update / self.micro_batches, each.sending]
        return max(times)

    def one(self, cuts: Sequence[int]) -> float:
        """Seconds of one micro-batch, forward and back."""
        return sum(each.forward + each.backward + each.there + each.back for each in self.stages(cuts))

    def fullest(self, cuts: Sequence[int]) -> float:
        """What the fullest device needs over what it has."""
        return max(each.filled for each in self.stages(cuts))

    def step(self, cuts: Sequence[int]) -> float:
        """Seconds of a step."""
        stages, times, ended = self.stages(cuts), list[float](), list[float]()
        for number, each in enumerate(stages):
            before, after = stages[:number], stages[number + 1 :]
            up = sum(e.forward + e.backward + e.there + e.back for e in before) + each.there + each.back
            down = sum(e.forward + e.backward + e.there + e.back for e in after)
            count, flying = self.micro_batches / float(self.places.rate[number]), float(self.places.flying[number])
            times.append(up + count * (each.forward + each.backward) + max(0, down - (flying - 1) * each.forward))
            late = count * each.forward + max(count - flying, 0) * each.backward + down + each.backward
            times += [up + late, self.one(cuts) + (self.micro_batches - 1) * each.sending]
            ended.append(sum(e.backward for e in before) + sum(e.back for e in stages[: number + 1]))
        return max(max(times) - earlier + each.update for earlier, each in zip(ended, stages, strict=True))

    def all_cuts(self) -> list[tuple[int, ...]]:
        """Those that keep to the memory."""
        inner = itertools.combinations(range(1, LAYERS), len(self.places.share) - 1)
        return [cuts for each in inner if self.fullest(cuts := (0, *each, LAYERS)) <= 1]


drawn_formulas = st.builds(PlainFormula.drawn, st.integers(0, 9999), st.integers(1, 4), st.sampled_from([1, 2, 5, 8]))


@given(plain=drawn_formulas)
def test_the_formula_is_the_one_that_is_stated(plain: PlainFormula) -> None:
    formula = CutFormula(plain.costs)
    for cuts in itertools.islice(itertools.combinations(range(1, LAYERS), len(plain.places.share) - 1), 9):
        ends = (0, *cuts, LAYERS)
        seconds, full = formula.estimated(plain.places, np.array(ends), plain.micro_batches)
        assert seconds == pytest.approx(plain.step(ends), rel=1e-9)
        assert full == pytest.approx(plain.fullest(ends), rel=1e-9)
        filled = formula.filled(plain.places, np.array(ends), plain.micro_batches)
        assert filled == pytest.approx([each.filled for each in plain.stages(ends)], rel=1e-9)


@given(plain=drawn_formulas)
def test_quick_cuts_have_the_fastest_slowest_stage(plain: PlainFormula) -> None:
    found, _, seconds, full = CutFormula(plain.costs).cut(plain.places, plain.micro_batches, thorough=False)
    every = plain.all_cuts()
    assert np.isfinite(seconds) == bool(every)
    if every:
        least = min(plain.slowest(cuts) for cuts in every)
        assert plain.slowest(found) == pytest.approx(least, rel=1e-9)
        assert seconds == pytest.approx(plain.step(found), rel=1e-9)
        assert full == pytest.approx(plain.fullest(found), rel=1e-9)


@given(plain=drawn_formulas)
def test_thorough_cuts_are_the_best_of_all_bounds_and_no_move_makes_them_better(plain: PlainFormula) -> None:
    found, _, seconds, _ = CutFormula(plain.costs).cut(plain.places, plain.micro_batches, thorough=True)
    every = plain.all_cuts()
    if not every:
        assert seconds == np.inf
        return
    assert seconds == pytest.approx(plain.step(found), rel=1e-9)
    assert tuple(found) in every
    least = min(plain.slowest(cuts) for cuts in every)
    for bound in BOUNDS:
        within = [cuts for cuts in every if plain.slowest(cuts) <= bound * least * (1 + 2e-9)]
        assert seconds <= plain.step(min(within, key=plain.one)) * (1 + 1e-9)
    for place in range(1, len(found) - 1):
        for by in (-3, -2, -1, 1, 2, 3):
            moved = (*found[:place], found[place] + by, *found[place + 1 :])
            if moved in every:
                assert seconds <= plain.step(moved) * (1 + 2e-9)
