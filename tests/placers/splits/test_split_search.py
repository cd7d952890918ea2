"""The search for splits: behind no rival, within its simulations, with a note; and the neighbours that it tries."""

from dataclasses import replace

import numpy as np
import pytest

from envs.simulation.simulator import simulate
from graphs.cluster import Cluster
from graphs.devices.catalogue import device, link
from graphs.files.load import load_cluster
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.data_parallel import DataParallel
from placers.split_search import SplitSearch
from placers.splits.bucket_elimination import least
from placers.splits.cuts import searched
from placers.splits.described_step import plan_of, split_graph_of
from placers.splits.neighbours import Kept, kinds_of, neighbours
from placers.splits.options import SplitRules, Splitting
from placers.splits.pricing import Prices, Pricing
from placers.tensor_parallel import TensorParallel
from placers.tofu import Tofu
from tests.envs.expansion.divided_graphs import convolutions, mlp
from tests.envs.expansion.test_divided_bytes import moved_bytes, problem
from tests.envs.expansion.test_divided_models import RESNET
from tests.placers.splits.test_split_placers import captured

BUDGET = 16


@pytest.mark.parametrize("graph", [mlp([64, 256, 32, 64], 32, "n").graph, convolutions(8, [8, 8, 16], 16).graph])
def test_it_is_behind_no_other_placer_that_divides_ops(graph: OpGraph) -> None:
    given = problem(graph, 2)
    found = SplitSearch().place(given, budget=BUDGET)
    found.plan.check(given)
    timeline = simulate(given, found.plan)
    assert found.simulations <= BUDGET
    assert timeline.fits
    assert found.curve[-1][1] == pytest.approx(timeline.step_seconds)
    for rival in (DataParallel(), TensorParallel(), Tofu()):
        assert timeline.step_seconds <= simulate(given, rival.place(given).plan).step_seconds * (1 + 1e-9)
    assert "split_search: the best of" in found.notes[0]


def test_what_fits_on_no_device_is_divided_until_it_fits_in_the_simulator() -> None:
    """Each device has room for a quarter of the weights and a little more; replicas would hold all."""
    graph = mlp([256] * 4, 64).graph
    whole = problem(graph, 1)
    needed = float(simulate(whole, SplitSearch().place(whole).plan).peak_bytes.max())
    small = replace(device("p100"), memory_bytes=0.45 * needed)
    lanes = link("pcie3x16")
    cluster = Cluster.uniform(
        "small", small, 4, latency=lanes.latency_seconds, bandwidth=lanes.bandwidth, shared_out=True
    )
    given = Problem(graph, cluster, optimizer="sgd")
    found = SplitSearch().place(given, budget=BUDGET)
    assert not simulate(given, DataParallel().place(given).plan).fits
    assert simulate(given, found.plan).fits
    assert all(len(several) == 4 for several in found.plan.devices)
    assert found == SplitSearch().place(given, budget=BUDGET)


def test_without_simulations_it_is_the_best_by_price() -> None:
    given = problem(mlp([16, 32, 16], 8).graph, 2)
    found = SplitSearch().place(given, budget=0)
    found.plan.check(given)
    assert found.simulations == 0
    assert found.notes[-1] == "split_search: nothing was simulated; this is the best plan by price."
    assert "split_search: no simulations were left to compare optcnn." in found.notes


def test_a_neighbour_divides_one_kind_as_it_says_and_keeps_what_was_changed_before() -> None:
    graph = mlp([32, 64, 32], 16).graph
    splitting = Splitting(split_graph_of(problem(graph, 4), coarsened=False), (2, 2))
    pricing = Pricing(splitting, Prices.bytes(2))
    start = Kept(searched(pricing))
    kinds = kinds_of(graph, splitting)
    assert {variable for kind in kinds for variable in kind} == set(splitting.of_op)
    found = list(neighbours(pricing, start, kinds, np.inf))
    assert found
    for position, near in found:
        changed = [v for v in near.kept if near.cuts.options[v] != start.cuts.options[v]]
        assert near.kept <= set(kinds[position])
        assert changed
        assert near.cuts.cost >= start.cuts.cost * (1 - 1e-9)  # of all cuts, none costs less
        timeline = simulate(problem(graph, 4), plan_of(splitting, near.cuts, range(4)))
        assert 0.95 <= moved_bytes(timeline) / max(near.cuts.cost, 1.0) <= 1.3
    position, near = found[0]
    for other, further in neighbours(pricing, near, kinds, np.inf):
        if not near.kept & set(kinds[other]):
            assert all(further.cuts.options[v] == near.cuts.options[v] for v in near.kept)


def test_replicas_pay_for_gradients_alone_and_at_their_price() -> None:
    """By the batch everywhere: batch normalisation of each device's own part, and sums of gradients."""
    given = captured(RESNET, load_cluster("p100:devices=4"))
    graph = split_graph_of(given, coarsened=False)
    bytes_moved = {}
    for replicas, share in ((False, 1.0), (True, 1.0), (True, 0.5)):
        splitting = Splitting(graph, (4,), SplitRules(replicas=replicas))
        pricing = Pricing(splitting, replace(Prices.bytes(1), gradients=share))
        options = [
            several if first.is_layout else [(graph.ops[first.number].batch,)]
            for several, (first, *_) in zip(splitting.joint(), splitting.variables, strict=True)
        ]
        bytes_moved[replicas, share] = least(pricing.costs(options)).cost
    gradients = 2 * 3 * given.graph.weights.sum()
    norms = [op.operator for op, kind in zip(graph.ops, given.graph.kinds, strict=True) if "batch_norm" in kind]
    channels = sum(operator.writes[0].shape[1] for operator in norms if operator.statistics)  # and of gradients
    assert bytes_moved[True, 1.0] == gradients
    assert bytes_moved[True, 0.5] == gradients / 2
    assert bytes_moved[False, 1.0] == gradients + 2 * channels * 2 * 3 * 4.0
