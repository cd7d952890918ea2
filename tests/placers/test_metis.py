"""METIS cuts where little passes, in proportion to speed, and within memory."""

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.costs.costs import unit_seconds
from envs.simulation.held_memory import HeldMemory
from envs.simulation.simulator import simulate
from graphs.cluster import Cluster, Device
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_groups.units import Units
from graphs.problem import Problem
from placers.metis import Metis, quiet
from placers.solvers.partitioning import LARGEST_IMBALANCE, _balanced, cut, weights_and_targets
from placers.solvers.repair import repaired
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
    placement = placer.place(bridge()).plan.placement
    assert len(set(placement[:6])) == len(set(placement[6:])) == 1
    assert placement[0] != placement[6]


def test_more_runs_never_cut_more() -> None:
    problem = Problem(random_graph(120, seed=0, weights=False), toy_cluster(4, memory=1e9))
    units = problem.units
    cuts = [cut(units, Metis(seeds=seeds).place(problem).plan.placement) for seeds in (1, 10, 100)]
    assert cuts == sorted(cuts, reverse=True)
    assert cuts[-1] <= cut(units, Metis(default=True).place(problem).plan.placement)


def test_parts_are_balanced() -> None:
    problem = Problem(random_graph(120, seed=1, weights=False), toy_cluster(4, memory=1e9))
    loads = np.bincount(Metis().place(problem).plan.placement, weights=problem.graph.flops, minlength=4)
    assert loads.max() <= 1.1 * loads.mean() + problem.graph.flops.max()


def test_a_part_may_exceed_its_target_by_the_imbalance_and_one_unit() -> None:
    assert LARGEST_IMBALANCE == 0.1
    targets = np.array([0.5, 0.5])
    heavy, light = np.array([0.4, 0.3, 0.3]), np.full(10, 0.1)
    assert _balanced(np.array([0, 0, 1]), heavy, targets)  # 0.7, of 0.55 and a unit of 0.4
    assert _balanced(np.array([0] * 6 + [1] * 4), light, targets)  # 0.6, of 0.55 and a unit of 0.1
    assert not _balanced(np.array([0] * 7 + [1] * 3), light, targets)


def test_a_faster_device_gets_more() -> None:
    devices = tuple(Device(f"gpu:{i}", "gpu", speed, 1.0, 1e9) for i, speed in enumerate((1.0, 3.0)))
    cluster = Cluster("unequal", devices, np.zeros((2, 2)), np.ones((2, 2)), np.zeros((2, 2), np.int64))
    problem = Problem(random_graph(100, seed=2, weights=False), cluster)
    load = problem.graph.flops[Metis().place(problem).plan.placement == 1].sum()
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
    assert not simulate(problem, Metis(default=True).place(problem).plan).fits
    result = Metis().place(problem)
    assert result.simulations == 0
    assert simulate(problem, result.plan).fits
    assert simulate(problem, Metis(balance="memory").place(problem).plan).fits
    assert not simulate(problem, Metis(seeds=1, balance="compute", default=True).place(problem).plan).fits


def test_simulations_pick_the_best_of_the_lowest_cuts() -> None:
    problem = Problem(random_graph(60, seed=3), toy_cluster(3, memory=1e9))
    one, many = Metis().place(problem), Metis().place(problem, budget=20)
    assert 1 < many.simulations <= 20
    assert simulate(problem, many.plan).step_seconds <= simulate(problem, one.plan).step_seconds


def test_its_spec_names_what_is_not_default() -> None:
    assert Metis().name == "metis"
    assert Metis(seeds=5, default=True).name == "metis:seeds=5,default=true"


def tensors_and_units(problem: Problem) -> tuple[HeldMemory, Units]:
    return HeldMemory.of(problem), problem.units


def test_both_is_the_mean_of_compute_and_memory() -> None:
    problem = memory_bound()
    weights, targets = weights_and_targets(unit_seconds(problem), HeldMemory.of(problem), "both")
    assert weights[[0, 6]] == pytest.approx([(1 / 126 + 1 / 6) / 2, 10 / 126 / 2])
    assert targets == pytest.approx([0.5, 0.5])


def test_both_is_tried_before_memory_alone() -> None:
    """A chain whose compute rises as its memory falls: cuts in the middle fit, and leave the compute less uneven."""
    ops = range(20)
    graph = toy_graph(
        [i + 1 for i in ops], [(i, i + 1) for i in range(19)],
        weights=[20 - i for i in ops], weight_uses=[(i, i) for i in ops],
    )  # fmt: skip
    problem = Problem(graph, toy_cluster(2, memory=170.0))
    held, _ = tensors_and_units(problem)
    uneven = {}
    for balance in ("compute", "both", "memory"):
        placement = Metis(balance=balance).place(problem).plan.placement
        assert held.overflow(placement) == 0
        uneven[balance] = np.bincount(placement, weights=graph.flops, minlength=2).max()
    assert 105 < uneven["compute"] == uneven["both"] < uneven["memory"]


def uneven_weights() -> Problem:
    """A chain whose first op holds what fills a device, and whose cut after it is the dearest."""
    output_bytes = [9.0] + [1.0] * 4
    graph = toy_graph(
        [1] * 5, [(i, i + 1) for i in range(4)], output_bytes=output_bytes,
        weights=[95, 30, 30, 30, 10], weight_uses=[(i, i) for i in range(5)],
    )  # fmt: skip
    return Problem(graph, toy_cluster(2, memory=110.0))


def test_a_partition_is_repaired_if_none_fits() -> None:
    problem = uneven_weights()
    held, _ = tensors_and_units(problem)
    as_published = Metis(repair=False, seeds=1, balance="memory").place(problem)
    assert as_published.placer == "metis:seeds=1,balance=memory,repair=false"
    assert held.overflow(as_published.plan.placement) > 0
    plan = Metis(seeds=1, balance="memory").place(problem).plan
    assert held.overflow(plan.placement) == 0
    assert simulate(problem, plan).fits


def test_repair_moves_what_adds_least_traffic_per_byte() -> None:
    """Of 130 bytes, 20 must go: c adds no traffic. Of 140, 30 must go: a frees them for what d frees 10."""
    graph = toy_graph(
        [1] * 4, [(0, 1), (1, 2), (2, 3)], output_bytes=[5, 5, 5, 5],
        weights=[50, 50, 30, 10], weight_uses=[(0, 0), (1, 1), (2, 2), (3, 3)],
    )  # fmt: skip
    held, units = tensors_and_units(Problem(graph, toy_cluster(3, memory=110.0)))
    assert repaired(units, held, np.array([0, 0, 0, 1])).tolist() == [0, 0, 1, 1]
    assert repaired(units, held, np.array([0, 0, 0, 0])).tolist() == [1, 0, 0, 0]


def test_repair_knows_that_a_shared_tensor_stays_while_another_unit_holds_it() -> None:
    """a and b share 60 bytes, c holds 50: to move a alone frees nothing, and so c goes, though its link is dearer."""
    graph = toy_graph(
        [1] * 3, [(0, 1), (1, 2)], output_bytes=[1, 9, 1], weights=[60, 50], weight_uses=[(0, 0), (1, 0), (2, 1)]
    )
    held, units = tensors_and_units(Problem(graph, toy_cluster(2)))
    assert repaired(units, held, np.array([0, 0, 0])).tolist() == [0, 0, 1]


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 80))
def test_repair_never_makes_it_worse_and_leaves_alone_what_fits(seed: int, devices: int, memory: int) -> None:
    problem = Problem(random_graph(20, seed), toy_cluster(devices, memory=memory))
    held, units = tensors_and_units(problem)
    placement = np.random.default_rng(seed).integers(0, devices, 20)
    before = held.overflow(placement)
    after = repaired(units, held, placement)
    assert held.overflow(after) < before or after.tolist() == placement.tolist()
    assert before > 0 or after.tolist() == placement.tolist()
    assert ((after >= 0) & (after < devices)).all()
    for device in np.flatnonzero(held.on_devices(after) > np.maximum(held.limits, held.on_devices(placement))):
        pytest.fail(f"device {device} is fuller than it was and than it may be")


def short_lived() -> Problem:
    """A chain of which either end fits by what it holds, but where op b's input and output of 40 come on top."""
    graph = toy_graph(
        [1] * 6, [(i, i + 1) for i in range(5)], output_bytes=[40, 40, 1, 1, 1, 1],
        weights=[30] * 3 + [5] * 3, weight_uses=[(i, i) for i in range(6)],
    )  # fmt: skip
    return Problem(graph, toy_cluster(2, memory=150.0))


def test_with_a_budget_partitions_are_repaired_for_what_the_estimate_leaves_out() -> None:
    problem = short_lived()
    assert not simulate(problem, Metis(seeds=1).place(problem).plan).fits
    result = Metis(seeds=1).place(problem, budget=4)
    assert 1 <= result.simulations <= 4
    assert simulate(problem, result.plan).fits


def test_wrong_knobs_are_refused() -> None:
    with pytest.raises(InputError, match="balance is 'links'; expected 'compute', 'both' or 'memory'"):
        Metis(balance="links")
    with pytest.raises(InputError, match="seeds is 0"):
        Metis(seeds=0)


def test_repair_is_switched_off_in_words() -> None:
    assert by_name.build("placers", "metis:repair=no") == Metis(repair=False)


def test_what_metis_prints_stays_out_of_our_output(capfd: pytest.CaptureFixture[str]) -> None:
    problem = Problem(random_graph(3, seed=1), toy_cluster(5))
    with quiet():
        ctypes.CDLL(None).puts(b"a complaint")
    print("ours")
    Metis().place(problem)
    assert capfd.readouterr().out == "ours\n"
