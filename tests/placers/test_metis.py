"""METIS cuts where little passes, in proportion to speed, and within memory."""

import numpy as np
import pytest

from envs.simulator import Simulator, simulate
from graphs.cluster import Cluster, Device
from graphs.errors import InputError
from graphs.problem import Problem
from placers.metis import Metis, cut
from placers.searching.unit_graph import UnitGraph
from tests.oracle.toys import random_graph, toy_cluster, toy_graph


def bridge(clique: int = 6, *, weights: bool = False) -> Problem:
    """Two cliques of heavy edges with one light edge between them; the first holds nearly all weights, if any."""
    edges = [
        (i, j) for start in (0, clique) for i in range(start, start + clique) for j in range(i + 1, start + clique)
    ]
    output_bytes = [50.0] * (2 * clique)
    output_bytes[clique - 1] = 1.0
    uses = [(op, op) for op in range(clique)] if weights else []
    graph = toy_graph(
        [2] * (2 * clique), [*edges, (clique - 1, clique)], output_bytes=output_bytes,
        weights=[30] * len(uses), weight_uses=uses,
    )  # fmt: skip
    return Problem(graph, toy_cluster(2, memory=1e9))


@pytest.mark.parametrize("placer", [Metis(), Metis(default=True), Metis(seeds=1)])
def test_it_cuts_the_bridge(placer: Metis) -> None:
    placement = placer.place(bridge()).placement
    assert len(set(placement[:6])) == len(set(placement[6:])) == 1
    assert placement[0] != placement[6]


def test_more_runs_never_cut_more() -> None:
    problem = Problem(random_graph(120, seed=0, weights=False), toy_cluster(4, memory=1e9))
    units = UnitGraph.of(problem, Simulator(problem).costs)
    cuts = [cut(units, Metis(seeds=seeds).place(problem).placement) for seeds in (1, 10, 100)]
    assert cuts == sorted(cuts, reverse=True)
    assert cuts[-1] <= cut(units, Metis(default=True).place(problem).placement)


def test_parts_are_balanced() -> None:
    problem = Problem(random_graph(120, seed=1, weights=False), toy_cluster(4, memory=1e9))
    loads = np.bincount(Metis().place(problem).placement, weights=problem.graph.flops, minlength=4)
    assert loads.max() <= 1.1 * loads.mean() + problem.graph.flops.max()


def test_a_faster_device_gets_more() -> None:
    devices = tuple(Device(f"gpu:{i}", "gpu", speed, 1.0, 1e9) for i, speed in enumerate((1.0, 3.0)))
    cluster = Cluster("unequal", devices, np.zeros((2, 2)), np.ones((2, 2)), np.zeros((2, 2), np.int64))
    problem = Problem(random_graph(100, seed=2, weights=False), cluster)
    load = problem.graph.flops[Metis().place(problem).placement == 1].sum()
    assert 0.65 < load / problem.graph.flops.sum() < 0.85


def memory_bound() -> Problem:
    """Six light ops that hold nearly all weights, and twelve heavy ones: balanced by compute, it does not fit."""
    edges = [(i, i + 1) for i in range(17)]
    output_bytes = [100.0] * 5 + [1.0] + [100.0] * 5 + [1.0] + [100.0] * 6
    graph = toy_graph(
        [1] * 6 + [10] * 12, edges, output_bytes=output_bytes, weights=[100] * 6, weight_uses=[(i, i) for i in range(6)]
    )
    return Problem(graph, toy_cluster(2, memory=590))


def test_memory_is_balanced_if_compute_cannot_be() -> None:
    problem = memory_bound()
    assert not simulate(problem, Metis(default=True).place(problem)).fits
    plan = Metis().place(problem)
    assert plan.simulations == 0
    assert simulate(problem, plan).fits
    assert simulate(problem, Metis(balance="memory").place(problem)).fits


def test_simulations_pick_the_best_of_the_lowest_cuts() -> None:
    problem = Problem(random_graph(60, seed=3), toy_cluster(3, memory=1e9))
    one, many = Metis().place(problem), Metis().place(problem, budget=20)
    assert 1 < many.simulations <= 20
    assert simulate(problem, many).step_seconds <= simulate(problem, one).step_seconds


def test_its_spec_names_what_is_not_default() -> None:
    assert Metis().name == "metis"
    assert Metis(seeds=5, default=True).name == "metis:seeds=5,default=true"


def test_wrong_knobs_are_refused() -> None:
    with pytest.raises(InputError, match="balance is 'links'; expected 'compute' or 'memory'"):
        Metis(balance="links")
    with pytest.raises(InputError, match="seeds is 0"):
        Metis(seeds=0)
