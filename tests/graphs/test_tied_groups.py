"""Tied op groups: as many as asked for, whichever way the backward edges run, and those of one level in the next."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.simulation.simulator import Simulator
from graphs.files.load import load_graph
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph, Phase
from graphs.op_groups.grouping import tie_levels, tie_ops
from graphs.problem import Problem
from tests.oracle.toys import random_graph, toy_cluster, toy_graph

WORKLOADS = Path(__file__).parents[3] / "shared" / "data" / "msr" / "throughput"
TRAINING = {  # training workloads whose backward edges run as the forward ones do, with their units
    "layer_bert24_training": 32,
    "layer_gnmt_training": 96,
    "layer_inceptionv3_training": 326,
}
Direction = Literal["against", "along", "mixed"]


def step(forward: OpGraph, direction: Direction, seed: int, *, orphans: float = 0.0, cross: int = 0) -> OpGraph:
    """A backward op for each forward op, its edges running against the forward ones, along them, or either way.

    A share of the backward ops are `orphans`, tied to nothing; `cross` further edges lead from the forward to the
    backward pass.
    """
    rng, ops = np.random.default_rng(seed), len(forward)
    place = {"against": -np.arange(ops), "along": np.arange(ops), "mixed": rng.permutation(ops)}[direction]
    swapped = place[forward.edges[:, 0]] > place[forward.edges[:, 1]]
    backward = ops + np.where(swapped[:, None], forward.edges[:, ::-1], forward.edges)
    saved = np.column_stack([rng.integers(0, ops, cross), ops + rng.integers(0, ops, cross)])
    edges = np.concatenate([forward.edges, backward, saved])
    mirror = np.where(rng.random(ops) < orphans, -1, np.arange(ops))
    return OpGraph(
        forward.name,
        (*forward.names, *(f"{name}.grad" for name in forward.names)),
        forward.kinds * 2,
        flops=np.tile(forward.flops, 2),
        bytes_accessed=np.tile(forward.bytes_accessed, 2),
        output_bytes=np.tile(forward.output_bytes, 2),
        edges=edges,
        phase=np.repeat([Phase.FORWARD, Phase.BACKWARD], ops),
        mirror=np.concatenate([np.full(ops, -1), mirror]),
    )


def alike(ops: int, edges: list[tuple[int, int]], **given: Any) -> OpGraph:
    """Ops of one FLOP with outputs of one byte."""
    names, ones = tuple(f"op{i}" for i in range(ops)), np.ones(ops)
    return OpGraph("alike", names, ("any",) * ops, ones, np.zeros(ops), ones, np.array(edges), **given)


def tied_at_random(graph: OpGraph, share: float, ties: int, seed: int) -> OpGraph:
    """Some ops, of any phase, in one of a few co-location groups."""
    rng, ops = np.random.default_rng(seed), len(graph)
    return replace(graph, group=np.where(rng.random(ops) < share, rng.integers(0, ties, ops), -1))


def check(graph: OpGraph, groups: int) -> None:
    tied = tie_ops(graph, groups)
    assert tied.num_units == min(groups, graph.num_units)
    _, first, unit = np.unique(graph.units, return_index=True, return_inverse=True)
    assert (tied.units == tied.units[first[unit]]).all()  # no unit is taken apart
    assert tie_ops(tied, max(groups // 2, 1)).num_units == min(max(groups // 2, 1), tied.num_units)


directions = st.sampled_from(["against", "along", "mixed"])


@given(
    st.integers(1, 40), st.integers(0, 999), directions, st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 20),
    st.integers(1, 50),
)  # fmt: skip
def test_as_many_groups_as_asked_for_whichever_way_the_backward_edges_run(
    ops: int, seed: int, direction: Direction, orphans: float, cross: int, groups: int
) -> None:
    check(step(random_graph(ops, seed, weights=False), direction, seed, orphans=orphans, cross=cross), groups)


@given(
    st.integers(1, 40), st.integers(0, 999), directions, st.sampled_from([0.1, 0.5, 1.0]), st.integers(1, 12),
    st.integers(1, 50),
)  # fmt: skip
def test_as_many_groups_as_asked_for_however_ops_are_tied(
    ops: int, seed: int, direction: Direction, share: float, ties: int, groups: int
) -> None:
    forward = random_graph(ops, seed, weights=False)
    check(tied_at_random(forward, share, ties, seed), groups)
    check(tied_at_random(step(forward, direction, seed, orphans=0.2, cross=3), share, ties, seed), groups)


@given(st.integers(1, 40), st.integers(0, 999), st.integers(1, 50))
def test_backward_edges_only_tell_what_is_near(ops: int, seed: int, groups: int) -> None:
    """With outputs of one size, it makes no difference to the groups whether they run against the forward edges."""
    forward = replace(random_graph(ops, seed, weights=False), output_bytes=np.ones(ops))
    against, along = (tie_ops(step(forward, way, seed), groups) for way in ("against", "along"))
    assert against.units.tolist() == along.units.tolist()


def test_a_backward_pass_that_runs_both_ways_makes_no_group_large() -> None:
    """Half of a chain has backward edges along it."""
    chain = [(op, op + 1) for op in range(39)]
    against = [(40 + v, 40 + u) for u, v in chain[:19]]
    along = [(40 + u, 40 + v) for u, v in chain[20:]]
    phase, mirror = np.repeat([Phase.FORWARD, Phase.BACKWARD], 40), np.concatenate([np.full(40, -1), np.arange(40)])
    graph = alike(80, [*chain, *against, *along], phase=phase, mirror=mirror)
    assert np.bincount(tie_ops(graph, 8).units).max() <= 2 * 8  # forward and backward ops of 8: the average is 5


@pytest.mark.parametrize("name", TRAINING)
@pytest.mark.parametrize("groups", [8, 64, 1000])
def test_a_training_workload_is_as_many_groups_as_asked_for(name: str, groups: int) -> None:
    path = WORKLOADS / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"{name} is not at hand")
    graph = load_graph(str(path))
    assert graph.num_units == TRAINING[name]
    check(graph, groups)


def test_groups_of_a_training_workload_can_share_its_memory() -> None:
    path = WORKLOADS / "layer_inceptionv3_training.json"
    if not path.is_file():
        pytest.skip("layer_inceptionv3_training is not at hand")
    graph = load_graph(str(path), groups=64)
    weight = np.bincount(graph.units, weights=graph.weight_bytes)
    assert weight.max() <= 0.05 * weight.sum()


def test_units_that_run_interleaved_are_simulated_apart() -> None:
    tangled = toy_graph([1, 1, 1, 1], [(0, 1), (1, 2), (2, 3)], group=[0, 1, 0, 1])
    tied = tie_ops(tangled, 2)
    assert tied.num_units == 2
    assert Simulator(Problem(tied, toy_cluster(2))).run([0, 1]).step_seconds == 7.0  # four ops, three transfers


@pytest.mark.parametrize("groups", [0, -3])
def test_less_than_one_group_is_refused_with_what_to_say_instead(groups: int) -> None:
    graph = toy_graph([1, 1], [(0, 1)])
    with pytest.raises(InputError, match=rf"cannot make {groups} op groups; .*--groups none"):
        tie_ops(graph, groups)
    assert load_graph(graph, groups=None).num_units == 2


@given(st.integers(1, 40), st.integers(0, 999), st.integers(1, 3), st.sampled_from([0.1, 0.5]), st.integers(1, 50))
def test_ops_that_may_run_on_different_devices_are_not_tied(
    ops: int, seed: int, kinds: int, share: float, groups: int
) -> None:
    rng = np.random.default_rng(seed)
    bound = np.where(rng.random(ops) < share, rng.integers(0, kinds, ops), -1).tolist()
    devices = tuple((f"toy:{number}",) if number >= 0 else () for number in bound)
    graph = replace(random_graph(ops, seed, weights=False), devices=devices)
    tied = tie_ops(graph, groups)
    assert all(len({devices[op] for op in np.flatnonzero(tied.units == unit)}) == 1 for unit in range(tied.num_units))
    assert tied.num_units <= max(groups, len(set(devices))) or tied.num_units <= graph.num_units
    assert tied.num_units >= min(groups, graph.num_units)


def test_more_groups_than_asked_for_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    devices = tuple((f"cpu:{op % 12}",) for op in range(60))
    graph = alike(60, [(op, op + 1) for op in range(59)], devices=devices)
    with caplog.at_level(logging.WARNING, "placelab"):
        assert tie_ops(graph, 8).num_units == 12
    assert caplog.messages == [
        "graph 'alike': asked for 8 op groups, made 12: ops that may run on different devices are not tied together"
    ]


def test_bound_ops_do_not_make_the_others_one_group(caplog: pytest.LogCaptureFixture) -> None:
    """A chain with an op for one device after every third."""
    devices = tuple(("cpu",) if op % 3 == 2 else () for op in range(60))
    tied = tie_ops(alike(60, [(op, op + 1) for op in range(59)], devices=devices), 16)
    assert tied.num_units == 16
    assert np.bincount(tied.units).max() <= 3 * 60 / 16
    assert not caplog.messages


def test_bound_ops_at_the_ends_of_branches_are_tied_together(caplog: pytest.LogCaptureFixture) -> None:
    edges = [*((op, op + 1) for op in range(29)), *((op, 30 + op) for op in range(30))]
    tied = tie_ops(alike(60, edges, devices=((),) * 30 + (("cpu",),) * 30), 16)
    assert tied.num_units == 16
    assert np.bincount(tied.units).max() <= 3 * 60 / 16
    assert not caplog.messages


@given(
    st.integers(1, 40), st.integers(0, 999), directions, st.lists(st.integers(1, 50), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.3]),
)  # fmt: skip
def test_groups_of_a_level_are_unions_of_the_finer_ones(
    ops: int, seed: int, direction: Direction, counts: list[int], share: float
) -> None:
    graph = tied_at_random(step(random_graph(ops, seed, weights=False), direction, seed), share, 3, seed)
    levels = tie_levels(graph, counts)
    assert [level.num_units for level in levels] == [min(count, graph.num_units) for count in sorted(counts)[::-1]]
    for finer, coarser in zip([graph, *levels], levels, strict=False):
        _, first, unit = np.unique(finer.units, return_index=True, return_inverse=True)
        assert (coarser.units == coarser.units[first[unit]]).all()
    for count, level in zip(sorted(counts)[::-1], levels, strict=True):
        assert level.units.tolist() == tie_ops(graph, count).units.tolist()
