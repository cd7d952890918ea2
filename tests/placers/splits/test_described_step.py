"""Cuts of a problem's step become a plan, which moves in the simulator what the search says."""

import math
from dataclasses import replace

import numpy as np
import pytest

from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from graphs.op_graph import OpGraph, Phase
from graphs.op_graph.subgraph import subgraph
from graphs.problem import Problem
from placers.splits.bucket_elimination import least
from placers.splits.cuts import described, joint, recursive, refined, searched
from placers.splits.described_step import plan_of, split_graph_of
from placers.splits.mesh import prices_of_links
from placers.splits.node_elimination import least_by_node_elimination
from placers.splits.options import SplitRules, Splitting
from placers.splits.parts import Option
from placers.splits.pricing import Prices, Pricing
from placers.splits.time_steps import tied_steps
from tests.envs.expansion.divided_graphs import convolutions, mlp
from tests.envs.expansion.test_divided_bytes import columns_and_rows, moved_bytes, problem

DIVIDED = SplitRules(whole_ops=False)
NETS = {
    "mlp": mlp([64, 128, 96, 64], 32).graph,
    "convolutions": convolutions(8, [8, 8, 16], 16).graph,
    "normalised features": mlp([64, 128, 96, 64], 32, "n").graph,
    "normalised batch": mlp([64, 128, 96, 64], 32, "o").graph,
}


def cut(given: Problem, mesh: tuple[int, ...], *, coarsened: bool = True) -> Pricing:
    """Bytes of cuts over a mesh."""
    return Pricing(Splitting(split_graph_of(given, coarsened=coarsened), mesh, DIVIDED), Prices.bytes(len(mesh)))


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("mesh", [(2,), (3,), (4,), (2, 2)])
def test_the_bytes_of_the_search_are_those_of_the_simulator(net: str, mesh: tuple[int, ...]) -> None:
    devices = math.prod(mesh)
    given = problem(NETS[net], devices)
    for coarsened in (True, False):
        pricing = cut(given, mesh, coarsened=coarsened)
        cuts = refined(pricing, recursive(pricing))
        timeline = simulate(given, plan_of(pricing.splitting, cuts, range(devices)))
        assert moved_bytes(timeline) == pytest.approx(cuts.cost, rel=1e-9)


@pytest.mark.parametrize("net", NETS)
def test_bytes_of_any_indices_are_nearly_those_of_the_simulator(net: str) -> None:
    """Where layouts are chosen well; an op that reads what it divides in two ways may fetch more, or share more."""
    mesh, rng = (2, 2), np.random.default_rng(0)
    given = problem(NETS[net], 4)
    pricing = cut(given, mesh)
    for _ in range(10):
        options = [
            several if members[0].is_layout else [several[int(rng.integers(len(several)))]]
            for several, members in zip(pricing.splitting.joint(), pricing.splitting.variables, strict=True)
        ]
        chosen = least(pricing.costs(options)).chosen.tolist()
        cuts = described(pricing, [several[choice] for several, choice in zip(options, chosen, strict=True)])
        timeline = simulate(given, plan_of(pricing.splitting, cuts, range(4)))
        assert 0.95 <= moved_bytes(timeline) / cuts.cost <= 1.3


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_within_their_memory_it_moves_no_more_than_the_batch_or_columns_and_rows(devices: int) -> None:
    graph = mlp([1024] * 6, 64).graph
    given = problem(graph, devices)
    pricing = Pricing(Splitting(split_graph_of(given, coarsened=False), (devices,)), Prices.bytes(1))
    for split in (
        (("n",) if "n" in each.operator.sizes else ("",) for each in graph.described if each),
        columns_and_rows(graph),
    ):
        by, options = list(split), list[list[Option]]()
        for members, several in zip(pricing.splitting.variables, pricing.splitting.joint(), strict=True):
            options.append(several if members[0].is_layout else [by[members[0].number]])
        chosen = least(pricing.costs(options)).chosen.tolist()
        rival = described(pricing, [several[choice] for several, choice in zip(options, chosen, strict=True)])
        rival_bytes = moved_bytes(simulate(given, Plan((tuple(range(devices)),) * len(graph), split=tuple(by))))
        assert rival_bytes == pytest.approx(rival.cost)
        best = searched(pricing, rival.held)
        assert best.fits
        assert moved_bytes(simulate(given, plan_of(pricing.splitting, best, range(devices)))) <= rival_bytes


def test_weights_are_held_as_their_updates_divide_them() -> None:
    graph = NETS["mlp"]
    given = problem(graph, 4)
    pricing = cut(given, (4,))
    limit = given.weight_state_bytes.sum() / 4 * 1.01 + 32 * (64 + 2 * 128 + 2 * 96 + 2 * 64) * 4 / 3
    cuts = joint(pricing, limit)
    assert cuts.fits
    timeline = simulate(given, plan_of(pricing.splitting, cuts, range(4)))
    assert timeline.held_bytes.max() <= limit
    assert timeline.held_bytes.max() == given.weight_memory.bytes.sum() / 4
    assert timeline.peak_bytes.max() >= given.weight_state_bytes.sum() / 4  # with gradients


def test_a_forward_pass_has_layouts_for_its_weights() -> None:
    graph = subgraph(NETS["mlp"], NETS["mlp"].phase == Phase.FORWARD)
    splitting = Splitting(split_graph_of(problem(graph, 4)), (2, 2), DIVIDED)
    assert [splitting.graph.tensors[number].stored for number in splitting.of_tensor] == [True] * 3
    assert recursive(Pricing(splitting, Prices.bytes(2))).cost == 0.0  # all by the batch, weights whole


def test_optcnns_eliminations_find_the_same_seconds() -> None:
    graph = subgraph(NETS["convolutions"], NETS["convolutions"].phase == Phase.FORWARD)
    given = problem(graph, 4)
    splitting = Splitting(split_graph_of(given), (4,))
    pricing = Pricing(splitting, prices_of_links(given.cluster, range(4), (4,)))
    assert joint(pricing, solve=least_by_node_elimination).cost == pytest.approx(joint(pricing).cost, rel=1e-9)


def unrolled(steps: int) -> OpGraph:
    """A cell of two products and three activations, which reads its weight in each step but the first."""
    names, edges, uses = ["start"], list[tuple[int, int]](), list[tuple[int, int]]()
    for _ in range(steps):
        for call in ("cell.gates/mm", "cell/add", "cell/tanh", "cell/tanh", "cell/tanh"):
            place = sum(name.rpartition("_")[0] == call or name == call for name in names)
            names.append(f"{call}_{place}" if place else call)
            edges.append((len(names) - 2, len(names) - 1))
        uses.append((len(names) - 5, 0))
    count = len(names)
    costs = np.ones(count)
    return OpGraph(
        "unrolled", tuple(names), ("toy",) * count, costs, costs, costs, np.array(edges), weights=np.ones(1),
        weight_uses=np.array(uses),
    )  # fmt: skip


def test_time_steps_are_tied_position_by_position() -> None:
    keys = tied_steps(unrolled(4))
    assert keys[0] == (0,)
    groups = [keys[1 + 5 * step : 6 + 5 * step] for step in range(4)]
    assert groups == [groups[0]] * 4
    assert len(set(groups[0])) == 5  # three activations of a step, each by itself
    assert tied_steps(NETS["mlp"]) == [(op,) for op in range(len(NETS["mlp"]))]


def test_an_op_without_a_description_is_done_everywhere_and_reads_all() -> None:
    net = NETS["mlp"]
    op = net.names.index("relu1")
    graph = replace(net, described=tuple(None if each == op else d for each, d in enumerate(net.described)))
    given = problem(graph, 4)
    pricing = cut(given, (4,))
    cuts = recursive(pricing)
    assert cuts.of_ops(pricing.splitting)[op] == ("",)
    assert cuts.cost > recursive(cut(problem(net, 4), (4,))).cost
    timeline = simulate(given, plan_of(pricing.splitting, cuts, range(4)))
    assert timeline.step_seconds > 0
