"""GDP's network: segments with a cache, superposition, and an ablation for each of its ingredients."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs.costs.cost_models.roofline import build as roofline
from graphs.files.load import load_graph
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.learned.batch import Batch
from placers.learned.features import Observation, observe
from placers.learned.gdp.networks.graphsage_transformer import GraphSageTransformer, PlacementLayer, build
from placers.learned.gdp.segments import Segments, topological_order
from tests.drawn import examples
from tests.oracle.toys import random_graph, toy_cluster

SMALL: dict[str, Any] = {"width": 16, "heads": 2}
ALONE: dict[str, Any] = {**SMALL, "sage_layers": 0}  # units know of each other by attention alone


def network(**knobs: Any) -> GraphSageTransformer:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build(**knobs)


def observation(ops: int, devices: int) -> Observation:
    problem = Problem(random_graph(ops, seed=ops), toy_cluster(devices))
    return observe(problem, roofline().costs(problem))


def batch(*sizes: tuple[int, int]) -> Batch:
    return Batch.of([observation(ops, devices) for ops, devices in sizes])


def changed(units: Tensor, which: slice) -> Tensor:
    """The features of some units of every problem, all different."""
    other = units.clone()
    other[:, which] = units[:, which].flip(-1) + 1.0
    return other


def first(modules: torch.nn.ModuleList) -> PlacementLayer:
    assert isinstance(modules[0], PlacementLayer)
    return modules[0]


def gate(layer: torch.nn.Module, x0: Tensor) -> Tensor:
    """c(x0) of a placement layer, or of the network if they share it."""
    assert isinstance(layer.condition, torch.nn.Linear)
    return 2 * torch.sigmoid(layer.condition(x0))


def ordered(edges: Tensor, mask: Tensor) -> Tensor:
    order = topological_order(edges, mask)
    assert order is not None
    return order


# ---- segments ------------------------------------------------------------------------------------------------


@given(
    problems=st.integers(1, 3), units=st.integers(1, 20), length=st.integers(0, 25), memory=st.integers(0, 4),
)  # fmt: skip
def test_joining_the_segments_gives_the_sequences_back(problems: int, units: int, length: int, memory: int) -> None:
    sequences = torch.arange(problems * units * 2.0).view(problems, units, 2)
    segments = Segments.of(units, length, memory)
    assert torch.equal(segments.join(segments.cut(sequences)), sequences)


def test_a_segment_remembers_those_before_it_in_its_own_sequence() -> None:
    sequences = torch.arange(1, 15).view(2, 7)
    rows = (segments := Segments.of(7, length=3, memory=2)).cut(sequences)
    assert rows.tolist() == [[1, 2, 3], [4, 5, 6], [7, 0, 0], [8, 9, 10], [11, 12, 13], [14, 0, 0]]
    blank = [0, 0, 0]
    assert segments.before(rows).tolist() == [
        blank + blank, [*blank, 1, 2, 3], [1, 2, 3, 4, 5, 6], blank + blank, [*blank, 8, 9, 10], [8, 9, 10, 11, 12, 13],
    ]  # fmt: skip


@settings(max_examples=examples(40, 9), deadline=None)
@given(data=st.data(), units=st.integers(1, 20), length=st.integers(1, 25), memory=st.integers(0, 4))
def test_a_layer_is_full_attention_with_the_other_segments_masked(
    data: st.DataObject, units: int, length: int, memory: int
) -> None:
    mask = torch.arange(units) < torch.tensor([[units], [data.draw(st.integers(1, units))]])
    generator = torch.Generator().manual_seed(units)
    x, x0 = (torch.randn(2, units, 16, generator=generator) for _ in range(2))
    segments = Segments.of(units, length, memory)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = PlacementLayer(16, heads=2, superposition=True)
    rows = layer(segments.cut(x), segments.cut(x0), segments, segments.visible(mask))
    number = torch.arange(units) // length
    back = number[:, None] - number[None, :]
    hidden = (back < 0) | (back > memory)
    every_head = (hidden | ~mask[:, None, :]).repeat_interleave(2, dim=0)
    every_head &= ~every_head.all(dim=-1, keepdim=True)  # padded units must see something
    expected = layer.attention(gate(layer, x0) * x, src_mask=every_head)
    torch.testing.assert_close(segments.join(rows)[mask], expected[mask], rtol=1e-4, atol=1e-5)
    assert segments.visible(mask).any(dim=1).all(), "a softmax needs a key"
    assert torch.isfinite(rows).all(), "not even padding may be NaN: its gradient would spread"


@pytest.mark.parametrize("segment", [30, 31, 1000])
def test_one_segment_over_the_whole_graph_is_full_attention(segment: int) -> None:
    problems = batch((9, 2), (30, 5))
    full = network(**SMALL)
    assert torch.equal(network(**SMALL, segment=segment)(problems), full(problems))
    layer = first(full.placement)
    x = torch.randn(2, 30, 16, generator=torch.Generator().manual_seed(0))
    whole = Segments.of(30, 0, 1)
    theirs = layer.attention(gate(layer, x) * x, src_key_padding_mask=~problems.unit_mask)
    assert torch.equal(layer(x, x, whole, whole.visible(problems.unit_mask)), theirs)


def test_segments_change_neither_the_weights_nor_their_names() -> None:
    default, segmented = network().state_dict(), network(segment=16, memory_segments=2).state_dict()
    assert list(default) == list(segmented)
    assert all(torch.equal(default[key], segmented[key]) for key in default)
    assert {"in_order", "sage.2.join.lin_l.weight", "placement.1.condition.weight"} < default.keys()
    assert len(default) == 66


def test_no_unit_depends_on_later_segments() -> None:
    problems = batch((20, 3))
    segmented = network(**ALONE, segment=5)
    before = segmented(problems)[0]
    after = segmented(replace(problems, units=changed(problems.units, slice(10, 20))))[0]
    torch.testing.assert_close(after[:10], before[:10], rtol=0, atol=0)
    assert not torch.isclose(after[10:], before[10:]).all(dim=-1).any()


@pytest.mark.parametrize(("layers", "memory", "reach"), [(1, 0, 0), (1, 1, 1), (2, 1, 2), (1, 2, 2), (3, 1, 3)])
def test_every_layer_reaches_as_many_segments_further_back_as_it_remembers(
    layers: int, memory: int, reach: int
) -> None:
    problems = batch((25, 2))
    segmented = network(**ALONE, segment=5, memory_segments=memory, transformer_layers=layers)
    before = segmented(problems)[0]
    after = segmented(replace(problems, units=changed(problems.units, slice(0, 5))))[0]
    moved = (after != before).any(dim=-1).view(5, 5).any(dim=1)
    assert moved.tolist() == [segment <= reach for segment in range(5)]


def test_no_gradient_passes_through_the_cache() -> None:
    problems = batch((20, 3))
    units = problems.units.requires_grad_()
    segmented = network(**ALONE, segment=5)
    segmented(replace(problems, units=units))[0, 5:10].sum().backward()
    assert units.grad is not None
    assert not units.grad[0, :5].any()
    assert units.grad[0, 5:10].any(dim=-1).all()
    assert not units.grad[0, 10:].any()


def test_the_weights_learn_from_what_is_in_the_cache() -> None:
    problems = batch((10, 3))
    gradients = []
    for memory in (0, 1):
        segmented = network(**ALONE, segment=5, memory_segments=memory, transformer_layers=1)
        segmented(problems)[0, 5:].square().sum().backward()
        gradient = first(segmented.placement).attention.self_attn.in_proj_weight.grad
        assert gradient is not None
        gradients.append(gradient)
    assert not torch.allclose(gradients[0], gradients[1])


def test_a_problem_is_rated_alike_alone_and_in_a_batch() -> None:
    segmented = network(**SMALL, segment=4, memory_segments=2)
    together = segmented(batch((9, 2), (30, 5), (3, 1)))
    for i, (ops, devices) in enumerate(((9, 2), (30, 5), (3, 1))):
        alone = segmented(batch((ops, devices)))[0]
        torch.testing.assert_close(together[i, :ops, :devices], alone, rtol=1e-4, atol=1e-5)
        assert torch.isinf(together[i, :, devices:]).all(), "padded devices are never chosen"
    together.masked_fill(torch.isinf(together), 0.0).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in segmented.parameters() if p.grad is not None)


# ---- order ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["inception:batch=2", "rnnlm:steps=4"])
def test_captured_graphs_number_their_units_in_topological_order(family: str) -> None:
    problem = Problem(load_graph(family), toy_cluster(2))
    seen = Batch.of([observe(problem, roofline().costs(problem))])
    assert seen.edges.shape[1] > 0
    assert topological_order(seen.edges, seen.unit_mask) is None


def test_units_are_put_in_topological_order_where_their_numbers_are_not() -> None:
    mask = torch.tensor([[True] * 4, [True] * 3 + [False]])
    edges = torch.tensor([[3, 0, 4], [0, 2, 5]])  # 3 -> 0 -> 2 and 1 free; 0 -> 1 and 2 free
    assert torch.equal(ordered(edges, mask), torch.tensor([[1, 3, 0, 2], [0, 1, 2, 3]]))
    cyclic = torch.tensor([[2, 1, 5, 6], [1, 2, 6, 5]])  # 0 free, 1 <-> 2; 0 free, 1 <-> 2, and padding comes last
    assert torch.equal(ordered(cyclic, mask), torch.tensor([[0, 3, 1, 2], [0, 1, 2, 3]]))


@settings(max_examples=examples(20, 8), deadline=None)
@given(numbers=st.permutations(range(12)))
def test_a_chain_is_rated_alike_however_it_is_numbered(numbers: list[int]) -> None:
    seen = observation(12, 3)
    chain = torch.arange(11).numpy()
    straight = Observation(seen.units, seen.devices, seen.pairs, chain[:, None] + [[0, 1]])
    place = torch.tensor(numbers).argsort()
    mixed = Observation(seen.units[numbers], seen.devices, seen.pairs[numbers], place.numpy()[straight.edges])
    segmented = network(**SMALL, segment=5)
    expected = segmented(Batch.of([straight]))[0][numbers]
    torch.testing.assert_close(segmented(Batch.of([mixed]))[0], expected, rtol=1e-4, atol=1e-5)


# ---- superposition and the other ingredients -------------------------------------------------------------------


def test_superposition_multiplies_the_input_of_every_layer_by_a_function_of_the_graph_embedding() -> None:
    problems = batch((6, 2))
    full = network(**SMALL)
    x = x0 = full.embedded(problems)
    for layer in full.placement:
        assert isinstance(layer, PlacementLayer)
        x = layer.attention(gate(layer, x0) * x)
    torch.testing.assert_close(full.placed(x0, problems), x)


def test_a_shared_condition_is_one_layer_for_all() -> None:
    problems = batch((6, 2))
    shared = network(**SMALL, shared_condition=True)
    assert [key for key in shared.state_dict() if "condition" in key] == ["condition.weight", "condition.bias"]
    x = x0 = shared.embedded(problems)
    for layer in shared.placement:
        assert isinstance(layer, PlacementLayer)
        x = layer.attention(gate(shared, x0) * x)
    torch.testing.assert_close(shared.placed(x0, problems), x)


@pytest.mark.parametrize(
    ("knob", "gone"),
    [
        ({"superposition": False}, "condition"),
        ({"superposition": False, "shared_condition": True}, "condition"),
        ({"transformer_layers": 0}, "placement"),
        ({"sage_layers": 0}, "sage"),
        ({"in_order": False}, "in_order"),
    ],
)
def test_each_ingredient_can_be_left_out(knob: dict[str, Any], gone: str) -> None:
    without = network(**SMALL, segment=4, **knob)
    assert not [key for key in without.state_dict() if gone in key]
    assert torch.isfinite(without(batch((10, 3)))).all()


def test_without_attention_units_know_their_neighbourhood_only() -> None:
    problems = batch((8, 2))
    lonely = network(**ALONE, transformer_layers=0)
    before = lonely(problems)[0]
    after = lonely(replace(problems, units=changed(problems.units, slice(3, 4))))[0]
    assert (after != before).any(dim=-1).tolist() == [unit == 3 for unit in range(8)]


def test_without_the_split_in_order_a_new_policy_is_close_to_uniform() -> None:
    problems = batch((40, 4))
    spread = [network(in_order=in_order)(problems).softmax(-1).std(dim=-1).mean() for in_order in (False, True)]
    assert spread[0] < 0.05 < 0.15 < spread[1]


def test_the_aggregators_differ() -> None:
    problems = batch((12, 2))
    assert not torch.allclose(network(**SMALL)(problems), network(**SMALL, aggregator="mean")(problems))


def test_permuting_the_devices_permutes_the_logits() -> None:
    problems = batch((15, 4))
    order = [2, 0, 3, 1]
    permuted = replace(problems, devices=problems.devices[:, order], pairs=problems.pairs[:, :, order])
    segmented = network(**SMALL, segment=4)
    torch.testing.assert_close(segmented(permuted), segmented(problems)[:, :, order])


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("segment=-1", "expected segment to be at least 0, got -1"),
        ("memory_segments=-2", "expected memory_segments to be at least 0, got -2"),
        ("heads=3", "width=64 cannot be divided among heads=3"),
        ("heads=0", "width=64 cannot be divided among heads=0"),
        ("aggregator=maximum", r"unknown aggregator 'maximum'; did you mean 'max'\?"),
    ],
)
def test_impossible_knobs_are_refused(spec: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        by_name.build("placers.learned.gdp.networks", f"graphsage_transformer:{spec}")
