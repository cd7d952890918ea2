"""Layers that are computed again: the choice is that of an exhaustive search, and the engine sees what it saves."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.layers import Layers, sums_before
from envs.pipelines.pipeline import LayerPipeline, LayerStage, Span
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from envs.simulation.simulator import simulate
from graphs.op_graph import Floats
from graphs.op_graph.batch_law import BatchLaw
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from placers.pipelines.any_layers_again import with_any_layers_again
from placers.pipelines.layers_again import LayersAgain
from placers.pipelines.pipeline_formula import PipelineFormula
from tests.drawn import examples
from tests.envs.expansion.test_recompute import chain_of_blocks
from tests.oracle.toys import toy_cluster
from tests.placers.pipelines.test_cuts import unequal


def drawn(seed: int, sizes: list[int]) -> LayersAgain:
    """Layers in blocks of these sizes, the first of which is outside of blocks, and outputs that some layers share."""
    rng, count = np.random.default_rng(seed), sum(sizes)
    saved = np.zeros((count + 1, count + 1))
    for first, end in combinations(range(count + 1), 2):
        saved[first, end] = rng.integers(0, 4) * (end > first + 1)
    saved = np.cumsum(np.cumsum(saved[::-1], axis=0)[::-1], axis=1)
    begin = np.repeat(np.cumsum([0, *sizes[:-1]]), sizes)
    begin[: sizes[0]] = count
    return LayersAgain(sums_before(rng.integers(1, 6, count).astype(np.float64)), saved, begin)


def all_choices(again: LayersAgain, layer: int = 0) -> list[list[Span]]:
    """Of the spans that the layers from one on may have."""
    count = len(again.begin)
    if layer == count:
        return [[]]
    found = all_choices(again, layer + 1)
    for end in range(layer + 1, count + 1):
        if again.begin[layer] <= layer and again.begin[end - 1] == again.begin[layer]:
            found += [[(layer, end), *others] for others in all_choices(again, end)]
    return found


@settings(max_examples=examples(40, 15))
@given(
    seed=st.integers(0, 999), sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4), share=st.floats(0.01, 1.2)
)  # fmt: skip
def test_no_other_choice_saves_as_much_in_less_time(seed: int, sizes: list[int], share: float) -> None:
    again = drawn(seed, sizes)
    needed = max(share * again.of_spans(again.blocks)[1], 1.0)
    enough = [each for each in map(again.of_spans, all_choices(again)) if each[1] >= needed * (1 - 1e-3)]
    found = again.least(needed)
    if found is None:
        assert not enough
    else:
        seconds, saved = again.of_spans(found)
        assert saved >= needed * (1 - 1e-3)
        assert seconds == pytest.approx(min(enough)[0])


@pytest.mark.parametrize("span", [(0, 3), (3, 6), (1, 3), (6, 8), (4, 5)])
def test_the_engine_holds_as_much_less_as_is_said(span: Span) -> None:
    """While the last block, which is not computed again, is whole."""
    problem = Problem(chain_of_blocks(4, (20.0, 28.0, 4.0)), toy_cluster(1))
    layers = Layers.of(problem, len(problem.graph))
    again, on = LayersAgain.of(problem, layers), ((0,),) * len(problem.graph)
    stage = np.searchsorted(span, layers.of_unit, side="right")
    stage = (stage - stage.min())[problem.graph.units]
    at = int(stage.min()) if span[0] == 0 else 1
    kept, less = (
        simulate(problem, Plan(on, PROGRAM, Schedule(2, tuple(stage.tolist()), "early_backward_a", recompute)))
        for recompute in ((), (at,))
    )
    seconds, saved = again.of_spans([span])
    assert less.step_seconds - kept.step_seconds == pytest.approx(seconds)
    assert kept.peak_bytes[0] - less.peak_bytes[0] == pytest.approx(saved / 2)


def test_of_equal_blocks_the_first_are_computed_again_and_of_a_block_what_saves_most_in_its_time() -> None:
    problem = Problem(chain_of_blocks(4, (20.0, 28.0, 4.0)), toy_cluster(1))
    again = LayersAgain.of(problem, Layers.of(problem, len(problem.graph)))
    assert again.blocks == [(0, 3), (3, 6), (6, 9), (9, 12)]
    assert again.least(2 * 48.0) == [(0, 3), (3, 6)]
    assert again.least(28.0) == [(1, 3)]
    assert again.least(4 * 48.0 + 1) is None


@pytest.mark.parametrize(
    ("memory", "again", "peaks"),
    [
        (26.0, [], (26.0, 14.0)),
        (19.0, [(1, 3)], (26.0 - 2 * 28.0 / 8, 14.0)),
        (14.0, [(0, 3)], (26.0 - 2 * 48.0 / 8, 14.0)),
        (11.5, [(0, 3), (4, 6), (6, 8)], (26.0 - 2 * (48.0 + 28.0 - 4.0) / 8 + 2.0, 14.0 - 20.0 / 8)),
    ],
)
def test_the_first_device_of_1f1b_computes_again_most_and_what_costs_it_least(
    memory: float, again: list[Span], peaks: tuple[float, float]
) -> None:
    """It holds two of eight micro-batches, the last one of them: blocks of 20 + 28 + 4 bytes for the whole batch."""
    graph = replace(chain_of_blocks(4, (20.0, 28.0, 4.0)), batch_law=BatchLaw(samples=8))
    problem = Problem(graph, unequal([1.0, 1.0], [memory, memory]), "sgd")
    layers = Layers.of(problem, len(graph))
    whole = LayerPipeline((LayerStage(0, 6, (0,)), LayerStage(6, len(layers), (1,))), 8)
    found = dict[LayerPipeline, tuple[float, Floats]]()

    def judged(one: LayerPipeline) -> tuple[float, Floats]:
        timeline = simulate(problem, one.plan(problem, layers))
        return found.setdefault(one, (timeline.step_seconds, timeline.peak_bytes - memory))

    with_any_layers_again([whole], np.inf, PipelineFormula(LayerGrain(problem, layers), (0, 1)), judged)
    fitting = {one: seconds for one, (seconds, over) in found.items() if (over <= 0).all()}
    best = min(fitting, key=fitting.__getitem__)
    assert best.again(layers) == again
    assert (found[best][1] + memory).tolist() == list(peaks)
