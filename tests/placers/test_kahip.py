"""KaHIP cuts where little passes, in proportion to speed, and within memory."""

import sys

import numpy as np
import pytest

from envs.simulation.held_memory import HeldMemory
from envs.simulation.simulator import simulate
from graphs.cluster import Cluster, Device
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.kahip import Kahip
from placers.metis import Metis
from placers.solvers.partitioning import cut
from tests.oracle.toys import random_graph, toy_cluster, toy_graph


@pytest.fixture
def installed() -> None:
    """Skip where KaHIP is not installed."""
    pytest.importorskip("kahip")


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kahip", None)
    with pytest.raises(InputError, match=r"pip install 'placelab\[kahip\]'"):
        Kahip().place(Problem(random_graph(10, seed=0), toy_cluster(2)))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("seeds", [1, 12])
def test_it_cuts_between_the_cliques(seeds: int) -> None:
    """Three cliques of heavy edges, a light edge from each to the next."""
    edges = [(i, j) for start in (0, 6, 12) for i in range(start, start + 6) for j in range(i + 1, start + 6)]
    output_bytes = [50.0] * 18
    output_bytes[5] = output_bytes[11] = 1.0
    graph = toy_graph([2] * 18, [*edges, (5, 6), (11, 12)], output_bytes=output_bytes)
    placement = Kahip(seeds=seeds).place(Problem(graph, toy_cluster(3, memory=1e9))).plan.placement
    assert [len(set(placement[start : start + 6])) for start in (0, 6, 12)] == [1, 1, 1]
    assert set(placement) == {0, 1, 2}


@pytest.mark.usefixtures("installed")
def test_parts_are_as_large_as_their_devices_are_fast() -> None:
    """Speeds of 2, 4 and 3: KaFFPa alone would make three parts of a third."""
    devices = tuple(Device(f"gpu:{i}", "gpu", speed, 1.0, 1e9) for i, speed in enumerate((2.0, 4.0, 3.0)))
    cluster = Cluster("unequal", devices, np.zeros((3, 3)), np.ones((3, 3)), np.zeros((3, 3), np.int64))
    problem = Problem(random_graph(150, seed=2, weights=False), cluster)
    loads = np.bincount(Kahip().place(problem).plan.placement, weights=problem.graph.flops, minlength=3)
    assert loads / loads.sum() == pytest.approx([2 / 9, 4 / 9, 3 / 9], abs=0.05)


@pytest.mark.usefixtures("installed")
def test_it_cuts_no_more_than_metis_on_a_graph_of_some_size() -> None:
    problem = Problem(random_graph(200, seed=0, weights=False), toy_cluster(4, memory=1e9))
    units = problem.units
    cuts = [cut(units, placer.place(problem).plan.placement) for placer in (Kahip(), Metis(default=True))]
    assert cuts[0] <= cuts[1]


@pytest.mark.usefixtures("installed")
def test_more_runs_never_cut_more() -> None:
    problem = Problem(random_graph(120, seed=0, weights=False), toy_cluster(4, memory=1e9))
    units = problem.units
    cuts = [cut(units, Kahip(seeds=seeds).place(problem).plan.placement) for seeds in (1, 4, 24)]
    assert cuts == sorted(cuts, reverse=True)


@pytest.mark.usefixtures("installed")
def test_a_partition_is_repaired_if_none_fits() -> None:
    """Of 380 bytes, balanced as well as one run can, a device gets 220; it may hold 209."""
    graph = toy_graph(
        [1] * 8, [(i, i + 1) for i in range(7)], output_bytes=[1, 1, 3, 4, 6, 5, 3, 2],
        weights=[80, 10, 20, 30, 20, 80, 80, 60], weight_uses=[(i, i) for i in range(8)],
    )  # fmt: skip
    problem = Problem(graph, toy_cluster(2, memory=209.0))
    held = HeldMemory.of(problem)
    as_found = Kahip(seeds=1, repair=False).place(problem)
    assert as_found.placer == "kahip:seeds=1,repair=false"
    repaired = Kahip(seeds=1).place(problem).plan
    assert held.overflow(as_found.plan.placement) > held.overflow(repaired.placement) == 0
    assert simulate(problem, repaired).fits


@pytest.mark.usefixtures("installed")
def test_simulations_pick_the_best_of_the_lowest_cuts(capfd: pytest.CaptureFixture[str]) -> None:
    problem = Problem(random_graph(60, seed=3), toy_cluster(3, memory=1e9))
    one, many = Kahip().place(problem), Kahip().place(problem, budget=8)
    assert one.simulations == 0
    assert 1 < many.simulations <= 8
    assert simulate(problem, many.plan).step_seconds <= simulate(problem, one.plan).step_seconds
    assert capfd.readouterr() == ("", "")


def test_wrong_knobs_are_refused() -> None:
    with pytest.raises(InputError, match="kahip: balance is 'links'"):
        Kahip(balance="links")
    with pytest.raises(InputError, match="kahip: seeds is 0"):
        Kahip(seeds=0)
