"""Cuts of a step over a mesh: exact per axis, better if refined, best if joint; with seconds, and within memory."""

import itertools
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.plans.mesh import prime_factors
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.notation.operator import Operator, Statistic, tensor
from placers.splits.bucket_elimination import least
from placers.splits.cuts import SplitAssignment, described, joint, recursive, refined, searched, uniform
from placers.splits.elimination_order import _min_fill, min_fill_order
from placers.splits.memory_limit import least_within
from placers.splits.mesh import best_mesh, prices_of_links
from placers.splits.options import TOFU, SplitRules, Splitting
from placers.splits.pricing import Prices, Pricing
from placers.splits.split_graph import SplitGraph, SplitOp, SplitTensor
from tests.drawn import examples
from tests.placers.splits.networks import PRODUCT, Step, lstm, mlp, pointwise, product, wide_resnet

DIVIDED = SplitRules(whole_ops=False)


def some_step(seed: int, *, coarsened: bool = False) -> SplitGraph:
    """The step of a few products, sums and activations, of which some results have several readers."""
    rng = np.random.default_rng(seed)
    step = Step(coarsened)
    batch, width = int(rng.integers(2, 9)) * 2, int(rng.integers(2, 9)) * 2
    data = step.tensor("data", batch, width, stored=True)
    made = [data]
    for layer in range(int(rng.integers(1, 3))):
        read = made[int(rng.integers(len(made)))]
        if rng.random() < 0.7:
            weight = step.tensor(f"w{layer}", width, width, stored=True)
            made += step.forward(f"fc{layer}", product(batch, width, width), read, weight, needs=PRODUCT)
        else:
            made += step.forward(f"sum{layer}", pointwise((batch, width), 2), read, made[-1], needs=(0,))
    return step.backward(made[-1], [data] if rng.random() < 0.5 else [])


@settings(max_examples=examples(60, 9), deadline=None)
@given(st.integers(0, 99), st.sampled_from([TOFU, DIVIDED, SplitRules()]), st.booleans())
def test_each_cut_is_that_of_brute_force(seed: int, rules: SplitRules, coarsened: bool) -> None:
    splitting = Splitting(some_step(seed, coarsened=coarsened), (2, 2), rules)
    pricing = Pricing(splitting, Prices.elements(2))
    chosen, total = None, 0.0
    for axis in range(2):
        options = splitting.further(chosen)
        costs = pricing.costs(options, axis)
        found = least(costs)
        if np.prod(costs.choices.astype(float)) <= 2e3:
            every = itertools.product(*(range(count) for count in costs.choices))
            assert found.cost == pytest.approx(min(costs.cost(each) for each in every), abs=1e-9)
        chosen = [several[choice] for several, choice in zip(options, found.chosen, strict=True)]
        total += found.cost
    assert recursive(pricing).options == tuple(chosen or [])
    assert recursive(pricing).cost == pytest.approx(total, abs=1e-9)  # what the axes add is the cost of all


@settings(max_examples=examples(25, 8), deadline=None)
@given(st.integers(0, 99), st.sampled_from([TOFU, DIVIDED]), st.sampled_from([(2, 2), (3, 2)]))
def test_joint_cuts_are_the_least_and_refined_ones_between(seed: int, rules: SplitRules, mesh: tuple[int, ...]) -> None:
    pricing = Pricing(Splitting(some_step(seed), mesh, rules), Prices.bytes(len(mesh)))
    greedy = recursive(pricing)
    better, best, same = refined(pricing, greedy), joint(pricing), uniform(pricing)
    assert best.cost <= better.cost + 1e-6 <= greedy.cost + 2e-6
    assert best.cost <= same.cost + 1e-6
    for cuts in (greedy, better, best, same):
        assert described(pricing, cuts.options).cost == pytest.approx(cuts.cost, rel=1e-9)


@settings(max_examples=examples(25, 8), deadline=None)
@given(st.integers(0, 99), st.sampled_from([(2,), (4,), (2, 2)]), st.sampled_from([np.inf, 0.6]))
def test_nothing_is_solved_after_cuts_that_are_known_to_cost_least(
    seed: int, mesh: tuple[int, ...], share: float
) -> None:
    """Along one axis, or of joint cuts that need no price for bytes, one search is enough; and none is better."""
    pricing = Pricing(Splitting(some_step(seed), mesh, SplitRules()), Prices.bytes(len(mesh)))
    limit = share * joint(pricing).held
    others = [recursive(pricing, limit), uniform(pricing, limit), joint(pricing, limit)]
    with mock.patch("placers.splits.cuts.least_within", wraps=least_within) as solved:
        found = searched(pricing, limit)
    assert solved.call_count == 1 or (len(mesh) > 1 and not others[-1].is_least)
    assert found.fits or not any(cuts.fits for cuts in others)
    if found.fits:
        assert found.cost <= min(cuts.cost for cuts in others if cuts.fits) * (1 + 1e-9)


def test_an_order_is_found_once_for_all_prices_of_what_is_divided() -> None:
    pricing = Pricing(Splitting(some_step(7), (2, 2)), Prices.bytes(2))
    with mock.patch("placers.splits.elimination_order._min_fill", wraps=_min_fill) as ordered:
        cuts = [joint(pricing.repriced(share)) for share in (0.5, 1.0, 0.25)]
        assert ordered.call_count <= 1
    assert [each.cost for each in cuts] == [
        pytest.approx(joint(Pricing(pricing.splitting, replace(Prices.bytes(2), gradients=share))).cost)
        for share in (0.5, 1.0, 0.25)
    ]


def test_two_layers_are_divided_by_columns_and_then_by_rows() -> None:
    """Megatron's rule: one sum after two products forward, one backward; each weight is held once."""
    step = Step()
    batch, width = 16, 512
    data = step.tensor("data", batch, width, stored=True)
    first, second = (step.tensor(name, width, width, stored=True) for name in ("first", "second"))
    [hidden] = step.forward("up", product(batch, width, width), data, first, needs=PRODUCT)
    [active] = step.forward("act", pointwise((batch, width)), hidden, needs=(0,))
    [last] = step.forward("down", product(batch, width, width), active, second, needs=PRODUCT)
    graph = step.backward(last)
    splitting = Splitting(graph, (4,), DIVIDED)
    pricing = Pricing(splitting, Prices.bytes(1))
    cuts = recursive(pricing)
    by = dict(zip([op.name for op in graph.ops], cuts.of_ops(splitting), strict=True))
    assert (by["up"], by["act"], by["down"]) == (("m",), ("d1",), ("k",))
    assert (by["up.grad1"], by["down.grad1"]) == (("m",), ("k",))
    assert [cuts.options[splitting.of_tensor[weight]] for weight in (first, second)] == [("d0",), ("d1",)]


def test_convolutions_of_large_images_are_divided_by_the_batch() -> None:
    graph = wide_resnet((1, 1, 1, 1), 1, 64)
    splitting = Splitting(graph, (2, 2, 2), DIVIDED)
    cuts = recursive(Pricing(splitting, Prices.bytes(3)))
    convolutions = [
        option for op, option in zip(graph.ops, cuts.of_ops(splitting), strict=True)
        if "kh" in op.operator.sizes and op.name.startswith(("stem", "0."))
    ]  # fmt: skip
    assert len(convolutions) > 10
    assert set(convolutions) <= {("n", "n", "n")}


def test_it_is_never_behind_one_device() -> None:
    """Where links are slow, the first axis does not know that the others will have to move as much again."""
    cluster = by_name.build("graphs.clusters", "v100_servers:servers=2,devices=4,gbps=10")
    graph = lstm(2, 6, 64, 16)
    splitting = Splitting(graph, (2, 2, 2))
    pricing = Pricing(splitting, prices_of_links(cluster, range(8), (2, 2, 2)))
    best = searched(pricing).cost
    assert best <= sum(op.seconds for op in graph.ops) * (1 + 1e-9)
    first, same = recursive(pricing), uniform(pricing)
    assert best <= min(first.cost, same.cost, refined(pricing, first).cost, refined(pricing, same).cost)


def data_parallel(pricing: Pricing, index: str) -> SplitAssignment:
    """Every op by the index of the batch, every weight whole."""
    options = []
    for members in pricing.splitting.variables:
        name = pricing.splitting.graph.tensors[members[0].number].name
        by = index if not members[0].is_layout else "" if name.startswith("w") else "d0"
        options.append((by,) * len(pricing.splitting.mesh))
    return described(pricing, options)


def test_a_batch_divided_by_hand_moves_each_gradient_twice_to_all_others() -> None:
    graph = mlp(3, 64, 32)
    pricing = Pricing(Splitting(graph, (2, 2, 2)), Prices.bytes(3))
    cuts = data_parallel(pricing, "n")
    weights = sum(t.element_bytes * 64 * 64 for t in graph.tensors if t.name.startswith("w"))
    assert cuts.cost == 2 * 7 * weights
    assert recursive(Pricing(Splitting(graph, (2, 2, 2), DIVIDED), Prices.bytes(3))).cost <= cuts.cost


def test_the_wide_resnet_of_tofu() -> None:
    apart, graph = wide_resnet(), wide_resnet(coarsened=True)
    assert len(apart.ops) == len(graph.ops) == 873
    weights = [t for t in graph.tensors if t.stored and "weight" in t.name]
    assert len(weights) == 156
    assert sum(t.held_bytes for t in weights) / 2 == pytest.approx(23.3e9, rel=0.01)  # what the authors ran
    for steps, width in ((apart, 5), (graph, 3)):
        splitting = Splitting(steps, (2, 2, 2), DIVIDED)
        assert min_fill_order([len(several) for several in splitting.further()], splitting.pairs).width == width
    cuts = recursive(Pricing(splitting, Prices.elements(3)))
    assert cuts.held <= sum(t.held_bytes for t in graph.tensors) / 8 * 1.15


def test_time_steps_that_are_tied_are_few_variables() -> None:
    graph = lstm()
    splitting = Splitting(graph, (2, 2, 2), TOFU)
    assert len(graph.ops) > 1600
    assert len(splitting.variables) < 240
    few = [Pricing(Splitting(lstm(2, steps, 64, 16), (2,), DIVIDED), Prices.elements(1)) for steps in (4, 6, 8)]
    options = recursive(few[0]).options
    costs = [described(pricing, options).cost for pricing in few]
    assert costs[2] - costs[1] == pytest.approx(costs[1] - costs[0])  # each step counts
    pricing = Pricing(splitting, Prices.elements(3))
    assert joint(pricing).cost <= recursive(pricing).cost


def test_time_steps_that_are_not_tied_are_refused_where_they_are_too_many() -> None:
    widths = []
    for steps in (2, 3, 4):
        splitting = Splitting(lstm(4, steps, 64, 16, tied=False), (2,), DIVIDED)
        widths.append(min_fill_order([len(several) for several in splitting.further()], splitting.pairs).width)
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]
    many = Pricing(Splitting(lstm(7, 9, 64, 16, tied=False), (2,), TOFU), Prices.elements(1))
    with pytest.raises(InputError, match=r"the exact search would need tables of .* bytes"):
        recursive(many)


def test_what_is_held_is_kept_to_a_limit_or_it_is_said_that_it_cannot_be() -> None:
    graph = mlp(3, 256, 64)
    pricing = Pricing(Splitting(graph, (2, 2)), Prices.bytes(2))
    free = recursive(pricing)
    weights = sum(t.held_bytes for t in graph.tensors if t.name.startswith("w"))
    assert free.held > weights  # all is computed everywhere: nothing moves
    limit = free.held / 3
    for cuts in (recursive(pricing, limit), refined(pricing, recursive(pricing, limit), limit), joint(pricing, limit)):
        assert cuts.fits
        assert cuts.held <= limit
        assert cuts.cost > free.cost
    assert not recursive(pricing, free.held / 5).fits


def test_axes_between_servers_are_the_outermost_and_cost_more() -> None:
    cluster = by_name.build("graphs.clusters", "v100_servers:servers=2,devices=6,gbps=25")
    assert best_mesh(cluster, range(12)) == (2, 3, 2)
    prices = prices_of_links(cluster, range(12), (2, 3, 2))
    assert prices.per_byte[0] == pytest.approx(1 / (2 * 25e9 / 8))  # two cards, each for what its server sends
    within = cluster.bandwidth[0, 1]
    assert prices.per_byte[1:] == pytest.approx((1 / (12 * within),) * 2)  # twelve devices send side by side
    assert prices.per_message[0] == pytest.approx(6 * cluster.latency[0, 6])
    with pytest.raises(InputError, match="a mesh of 2 x 2 has 4 devices, got 12"):
        prices_of_links(cluster, range(12), (2, 2))
    assert [prime_factors(number) for number in (1, 8, 12, 7)] == [(), (2, 2, 2), (3, 2, 2), (7,)]


def test_an_all_reduce_takes_what_a_ring_takes() -> None:
    cluster = by_name.build("graphs.clusters", "p2_8xlarge:links=tofu,devices=8")
    prices = prices_of_links(cluster, range(8), (8,))
    weight = 1e6
    assert 2 * 7 * weight * prices.per_byte[0] == pytest.approx(2 * 7 / 8 * weight / cluster.bandwidth[0, 1])


def test_slow_links_between_servers_are_spared() -> None:
    """In seconds, what passes between servers is less than where bytes alone count."""
    cluster = by_name.build("graphs.clusters", "v100_servers:servers=2,devices=4,gbps=10")
    graph = mlp(3, 1024, 512)
    mesh = best_mesh(cluster, range(8))
    assert mesh == (2, 2, 2)
    prices = prices_of_links(cluster, range(8), mesh)
    splitting = Splitting(graph, mesh, DIVIDED)
    in_seconds = Pricing(splitting, prices)
    by_bytes = refined(Pricing(splitting, Prices.bytes(3)), recursive(Pricing(splitting, Prices.bytes(3))))
    best = refined(in_seconds, recursive(in_seconds))
    assert best.cost <= described(in_seconds, by_bytes.options).cost


def test_ops_that_take_less_time_than_messages_send_none() -> None:
    cluster = by_name.build("graphs.clusters", "v100_servers:servers=2,devices=4,gbps=10")
    graph = mlp(4, 8, 8)
    splitting = Splitting(graph, (2, 2, 2))
    cuts = recursive(Pricing(splitting, prices_of_links(cluster, range(8), (2, 2, 2))))
    assert cuts.cost < cluster.latency[0, 1]


def test_statistics_of_a_divided_row_are_paid_for() -> None:
    rows = tensor((8, 8), "b", "c")
    softmax = Operator({"b": 8, "c": 8}, (rows,), (rows,), statistics=(Statistic(("b",), 2, 1),))
    tensors = (SplitTensor("x", (8, 8), stored=True), SplitTensor("y", (8, 8), stored=True))
    graph = SplitGraph("softmax", tensors, (SplitOp("softmax", softmax, (0,), (1,)),))
    pricing = Pricing(Splitting(graph, (2,)), Prices.elements(1))
    both = [[("d1",)], [("d1",)]]
    assert pricing.costs([[("c",)], *both]).cost([0, 0, 0]) == 2 * 2 * 8
    assert pricing.costs([[("b",)], [("d0",)], [("d0",)]]).cost([0, 0, 0]) == 0


def test_operators_and_tensors_that_do_not_fit_are_refused_with_their_names() -> None:
    data = SplitTensor("data", (4, 4), stored=True)
    with pytest.raises(
        InputError, match="op 'relu' reads 'data', of shape \\(4, 4\\), where its operator has \\(4, 5\\)"
    ):
        SplitGraph("g", (data,), (SplitOp("relu", pointwise((4, 5)), (0,), (-1,)),))
    with pytest.raises(InputError, match="op 'relu' reads 2 tensors, its operator 1"):
        SplitGraph("g", (data,), (SplitOp("relu", pointwise((4, 4)), (0, 0), (-1,)),))
    with pytest.raises(InputError, match="prices for 2 axes; the mesh has 1"):
        Pricing(Splitting(SplitGraph("g", (data,), ()), (2,)), Prices.bytes(2))
