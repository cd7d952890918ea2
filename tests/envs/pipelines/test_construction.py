"""Construction: every pipeline of the space can be made, and nothing else, decision by decision."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.pipelines.construction import Actions, Construction, Decision
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.pipelines.shapes import PipelineShape, shapes_of
from envs.plans.schedule import pass_order_of
from graphs.foundation.errors import InputError

ORDERS = ("early_backward_a", "gpipe", "zb_h1", "interleaved", "zb_v", "dualpipe_v")
ACTIONS = Actions((1, 2, 4), tuple(map(pass_order_of, ORDERS)), devices=4, layers=7)


def names(actions: Actions, taken: list[int]) -> list[str]:
    return [actions.name(action) for action in taken]


def test_two_stages_by_hand() -> None:
    pipeline = LayerPipeline((LayerStage(0, 3, (0,)), LayerStage(3, 7, (1, 3))), 4, "gpipe", recompute=(1,))
    construction = Construction(ACTIONS, layers=7, devices=4)
    assert names(ACTIONS, construction.towards(pipeline)) == [
        "4 micro-batches", "order gpipe",
        "device 0", "enough devices", "end after layer 2", "keep outputs",
        "device 1", "device 3", "enough devices", "end after layer 6", "recompute",
    ]  # fmt: skip
    assert construction.pipeline == pipeline
    assert construction.ended
    assert not construction.legal().any()


@pytest.mark.parametrize(
    ("order", "ranks"), [("interleaved", [(0,), (1, 2), (0,), (1, 2)]), ("zb_v", [(0,), (1, 2), (1, 2), (0,)])]
)
def test_stages_that_go_over_the_same_devices_again_by_hand(order: str, ranks: list[tuple[int, ...]]) -> None:
    stages = tuple(LayerStage(number, number + 1, devices) for number, devices in enumerate(ranks))
    construction = Construction(ACTIONS, layers=4, devices=3)
    assert names(ACTIONS, construction.towards(LayerPipeline(stages, 2, order))) == [
        "2 micro-batches", f"order {order}",
        "device 0", "enough devices", "end after layer 0", "keep outputs",
        "device 1", "device 2", "enough devices", "end after layer 1", "keep outputs",
        "the same devices again", "end after layer 2", "keep outputs", "end after layer 3", "keep outputs",
    ]  # fmt: skip


def cut(count: int, parts: int) -> st.SearchStrategy[list[int]]:
    """Where each of so many parts begins, and the last one ends."""
    inner = st.permutations(range(1, count)).map(lambda places: sorted(places[: parts - 1]))
    return inner.map(lambda places: [0, *places, count])


@st.composite
def pipelines(draw: st.DrawFn, layers: int = 7, devices: int = 4) -> LayerPipeline:
    """Any pipeline of the space that `ACTIONS` span, of a step with an unknown number of samples."""
    order, micro_batches = pass_order_of(draw(st.sampled_from(ORDERS))), draw(st.sampled_from((1, 2, 4)))
    shapes = shapes_of(order, micro_batches, devices, layers)
    if not shapes:
        order = pass_order_of("gpipe")
        shapes = shapes_of(order, micro_batches, devices, layers)
    shape = draw(st.sampled_from(shapes))
    shuffled = draw(st.permutations(range(devices)))
    used = draw(st.integers(shape.ranks, devices))
    ranks = [tuple(sorted(shuffled[first:end])) for first, end in pairwise(draw(cut(used, shape.ranks)))]
    bounds = draw(cut(layers, shape.stages))
    stages = tuple(
        LayerStage(first, end, ranks[shape.rank_of(number)]) for number, (first, end) in enumerate(pairwise(bounds))
    )
    recompute = tuple(sorted(draw(st.sets(st.integers(0, shape.stages - 1)))))
    return LayerPipeline(stages, micro_batches, order, recompute)


@given(pipelines())
def test_any_pipeline_can_be_made_and_the_same_actions_make_it_again(pipeline: LayerPipeline) -> None:
    taken = Construction(ACTIONS, layers=7, devices=4).towards(pipeline)
    again = Construction(ACTIONS, layers=7, devices=4)
    for action in taken:
        assert again.legal()[action]
        again.take(action)
    assert again.pipeline == pipeline


def every_end(construction: Construction, taken: tuple[int, ...] = ()) -> Iterator[Construction]:
    """All that any sequence of possible actions leads to."""
    made = Construction(
        construction.actions, construction.layers, construction.devices,
        samples=construction.samples, is_training=construction.is_training,
    )  # fmt: skip
    for action in taken:
        made.take(action)
    if made.ended:
        yield made
        return
    possible = np.flatnonzero(made.legal()).tolist()
    assert possible, names(made.actions, list(taken))
    for action in possible:
        yield from every_end(construction, (*taken, action))


@pytest.mark.parametrize("samples", [0, 4, 6])
def test_what_can_be_made_is_every_pipeline_by_brute_force(samples: int) -> None:
    orders = tuple(map(pass_order_of, ("early_backward_a", "interleaved", "zb_v")))
    actions = Actions((1, 4), orders, devices=3, layers=4)
    start = Construction(actions, layers=4, devices=3, samples=samples, is_training=False)
    found = {made.pipeline for made in every_end(start)}
    expected = set()
    for micro_batches, order, ranks in product((1, 4), orders, (1, 2, 3)):
        if samples % micro_batches:
            continue
        for shape in (
            PipelineShape(ranks, ranks),
            PipelineShape(ranks, 2 * ranks),
            PipelineShape(ranks, 3 * ranks),
            PipelineShape(ranks, 4 * ranks),
        ):
            expected |= set(every_one(shape, order.name, micro_batches, samples))
        expected |= set(every_one(PipelineShape(ranks, 2 * ranks, is_v=True), order.name, micro_batches, samples))
    assert found == expected


def every_one(shape: PipelineShape, order: str, micro_batches: int, samples: int) -> Iterator[LayerPipeline]:
    """All pipelines of a shape over four layers and three devices, if the order takes the shape."""
    laps = shape.stages // shape.ranks
    takes = {
        "early_backward_a": laps == 1,
        "interleaved": not shape.is_v,  # four micro-batches are equal rounds on up to three ranks
        "zb_v": laps == 2 and (shape.is_v or shape.ranks == 1),
    }
    if shape.stages > 4 or not takes[order]:
        return
    subsets = [several for count in (1, 2, 3) for several in combinations(range(3), count)]
    for ranks in permutations(subsets, shape.ranks):
        several = [len(devices) for devices in ranks]
        if len({device for devices in ranks for device in devices}) < sum(several):
            continue
        if samples and any(samples // micro_batches % replicas for replicas in several):
            continue
        for cuts in combinations((1, 2, 3), shape.stages - 1):
            stages = tuple(
                LayerStage(first, end, ranks[shape.rank_of(number)])
                for number, (first, end) in enumerate(pairwise([0, *cuts, 4]))
            )
            yield LayerPipeline(stages, micro_batches, order)


def test_replicas_that_take_turns_divide_the_micro_batches() -> None:
    construction = Construction(ACTIONS, layers=7, devices=4, samples=3, sharing="turns")
    for action in (ACTIONS.micro_batches.index(1), ACTIONS.first_order):
        construction.take(action)
    construction.take(ACTIONS.first_device)
    assert np.flatnonzero(construction.legal()).tolist() == [ACTIONS.enough], "one micro-batch has no turns"


def test_what_is_not_possible_is_refused_by_one_sentence() -> None:
    construction = Construction(ACTIONS, layers=1, devices=1, samples=6)
    assert construction.decision == Decision.MICRO_BATCHES
    with pytest.raises(InputError, match="the action is '4 micro-batches'; expected one of: 1 micro-batch, 2 micro-b"):
        construction.take(2)
    with pytest.raises(InputError, match="the action is '99'; expected one of"):
        construction.take(99)
    construction.take(0)
    with pytest.raises(InputError, match="expected one of: order early_backward_a, order gpipe, order zb_h1, order in"):
        construction.take(ACTIONS.first_order + ORDERS.index("zb_v"))  # needs two stages
    for pipeline in (
        LayerPipeline((LayerStage(0, 1, (0,)),), 3, "gpipe"),
        LayerPipeline((LayerStage(0, 1, (0,)),), 1, "looped_bfs"),
        LayerPipeline((LayerStage(0, 2, (0,)),), 1, "gpipe"),
        LayerPipeline((LayerStage(0, 1, (1,)),), 1, "gpipe"),
        LayerPipeline((), 1, "gpipe"),
    ):
        with pytest.raises(InputError, match=r"cannot be made here|expected one of"):
            Construction(ACTIONS, layers=1, devices=1).towards(pipeline)
    with pytest.raises(InputError, match="these decisions would make"):
        Construction(ACTIONS, layers=1, devices=2).towards(LayerPipeline((LayerStage(0, 1, (1, 0)),), 1, "gpipe"))
