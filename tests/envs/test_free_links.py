"""Links without contention: the model of list scheduling."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.files.trace import trace_events
from envs.simulation.bounds import lower_bound
from envs.simulation.held_memory import HeldMemory, Room
from envs.simulation.simulator import Simulator
from envs.timelines.timeline import Timeline
from graphs.cluster import FREE, Cluster
from graphs.devices.cluster_file import load_cluster_file, save_cluster
from graphs.devices.topology import Level, joined
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.heft import Heft
from placers.learned.features import observe
from placers.learned.sequential.layout import RolloutLayout
from placers.solvers.list_scheduling import SchedulingTasks
from tests.drawn import examples
from tests.oracle.strategies import Case, cases
from tests.oracle.toys import random_graph, toy_cluster, toy_graph

TWINS = toy_graph([1, 1, 1, 1], [(0, 2), (1, 2), (0, 3)], output_bytes=[4, 2, 0, 0])
BY_HAND = """
schema = "placelab.cluster"
version = 1
name = "free"
[links]
latency = "1s"
bandwidth = 2
channels = "free"
[[devices]]
name = "gpu:0"
kind = "gpu"
flops_per_second = 1
bytes_per_second = 1
memory = "inf"
[[devices]]
name = "gpu:1"
kind = "gpu"
flops_per_second = 1
bytes_per_second = 1
memory = "inf"
"""


def step(graph: OpGraph, cluster: Cluster, placement: list[int]) -> Timeline:
    return Simulator(Problem(graph, cluster)).timeline(placement)


def test_transfers_over_a_free_link_do_not_wait_for_each_other() -> None:
    cluster = toy_cluster(2, latency=0.5, gap=3.0, shared_out=True, multicast=True).with_free_links()
    timeline = step(TWINS, cluster, [0, 0, 1, 1])
    assert timeline.transfers.producer.tolist() == [1, 0]
    assert timeline.transfers.start.tolist() == [2, 1]
    assert timeline.transfers.finish.tolist() == [4.5, 5.5]
    [(link, by_start)] = timeline.by_link()
    assert (link, by_start.tolist()) == ("gpu:0>gpu:1", [1, 0]), "the larger one sets off first and arrives last"
    assert timeline.start.tolist() == [0, 1, 5.5, 6.5]
    assert timeline.peak_bytes.tolist() == [6, 6]


def test_only_the_pairs_that_are_free_are() -> None:
    cluster = toy_cluster(3, shared_out=True)
    channel = np.array(cluster.channel)
    channel[0, 1] = FREE
    star = toy_graph([1, 1, 1, 1], [(0, 1), (0, 2), (0, 3)], output_bytes=[2, 0, 0, 0])
    mixed = replace(cluster, channel=channel)
    assert step(star, mixed, [0, 1, 2, 2]).start.tolist() == [0, 3, 3, 4]
    assert step(star, cluster, [0, 1, 2, 2]).start.tolist() == [0, 3, 5, 6]


@settings(max_examples=examples(300, 30), deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(messages=False))
def test_an_op_starts_by_the_recurrence_of_list_scheduling(case: Case) -> None:
    cluster = case.problem.cluster.with_free_links()
    problem = replace(case.problem, cluster=cluster)
    timeline = Simulator(problem, order=case.order).timeline(case.placements[0])
    graph, where = problem.graph, timeline.placement
    for op in range(len(graph)):
        ready = 0.0
        for edge in np.flatnonzero(graph.edges[:, 1] == op):
            u = graph.edges[edge, 0]
            pair = where[u], where[op]
            arrives = cluster.latency[pair] + graph.carried_bytes[edge] / cluster.bandwidth[pair]
            crosses = where[u] != where[op] and not graph.control[edge]
            ready = max(ready, timeline.finish[u] + (arrives if crosses else 0.0))
        takes_time = timeline.finish > timeline.start
        sooner = (where == where[op]) & (timeline.start < timeline.start[op]) & takes_time
        launch = cluster.devices[where[op]].launch_seconds
        free_at = (timeline.finish[sooner] + launch).max(initial=0.0) if takes_time[op] else 0.0
        assert timeline.start[op] == max(ready, free_at)
    assert timeline.step_seconds >= lower_bound(problem) * (1 - 1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_the_schedule_of_heft_is_the_simulated_one_where_devices_keep_its_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(60, seed, weights=False)
    graph = replace(graph, flops=rng.random(60) + 0.1, output_bytes=rng.random(60))
    cluster = toy_cluster(4, latency=0.25, memory=np.inf).with_free_links()
    problem = Problem(graph, cluster)
    planned = Heft().schedule(SchedulingTasks.of(problem), Room(HeldMemory.of(problem)))
    in_turn = []
    for device in range(4):
        ops = np.flatnonzero(planned.placement == device)
        ops = ops[np.argsort(planned.start[ops])]
        in_turn += list(zip(ops[:-1].tolist(), ops[1:].tolist(), strict=True))
    control = np.concatenate([graph.control, np.ones(len(in_turn), np.bool_)])
    ordered = replace(graph, edges=np.concatenate([graph.edges, in_turn]), control=control)
    free, serial = (Problem(ordered, one) for one in (cluster, toy_cluster(4, latency=0.25, memory=np.inf)))
    timeline = Simulator(free).timeline(planned.placement)
    assert timeline.start == pytest.approx(planned.start, rel=1e-12)
    assert timeline.step_seconds == pytest.approx(planned.finish.max(), rel=1e-12)
    assert Simulator(serial).seconds(planned.placement[None])[0] > timeline.step_seconds  # there transfers queue


@pytest.mark.parametrize("ops", [5, 80])
def test_more_transfers_may_be_under_way_than_there_are_devices_and_channels(ops: int) -> None:
    edges = [(0, op) for op in range(1, ops)]
    graph = toy_graph([1] * ops, edges) if ops <= 26 else random_graph(ops, 0)
    graph = replace(graph, output_bytes=np.full(ops, 1e6))
    cluster = toy_cluster(2).with_free_links()
    placement = np.arange(ops) % 2
    timeline = Simulator(Problem(graph, cluster)).timeline(placement)
    moved = timeline.transfers
    assert (moved.start == timeline.finish[moved.producer]).all()
    assert (moved.finish - moved.start == pytest.approx(1e6)) if len(moved) else ops < 2


def test_rows_and_tracks_show_what_overlaps() -> None:
    timeline = step(TWINS, toy_cluster(2, latency=0.5).with_free_links(), [0, 0, 1, 1])
    assert [row.label for row in timeline.rows()] == ["gpu:0", "gpu:1", "gpu:0>gpu:1"]
    assert timeline.draw(14 + 15).split("\n")[2] == "gpu:0>gpu:1 |.." + "a" * 9 + "....|"
    events = list(trace_events(timeline))
    tracks = [event["args"]["name"] for event in events if event["name"] == "thread_name" and event["pid"] == 2]
    assert tracks == ["gpu:0>gpu:1", "gpu:0>gpu:1"]
    slices = [event for event in events if event.get("cat") == "transfer"]
    assert sorted((event["tid"], event["ts"], event["dur"]) for event in slices) == [(0, 1e6, 4.5e6), (1, 2e6, 2.5e6)]


def test_a_file_says_which_links_are_free_and_keeps_it(tmp_path: Path) -> None:
    file = tmp_path / "free.cluster.toml"
    file.write_text(BY_HAND)
    cluster = load_cluster(str(file))
    assert cluster.channel[0, 1] == cluster.channel[1, 0] == FREE
    pair = '\n[[pairs]]\nsource = "gpu:0"\ntarget = "gpu:1"\nchannel = "free"\n'
    file.write_text(BY_HAND.replace('channels = "free"', 'channels = "per_pair"') + pair)
    one_way = load_cluster(str(file))
    assert one_way.channel[0, 1] == FREE
    assert one_way.channel[1, 0] == 2
    assert cluster.fingerprint != one_way.fingerprint
    for ending in ("toml", "json"):
        for each in (cluster, one_way, toy_cluster(3, gap=1.0, multicast=True).with_free_links()):
            again = tmp_path / f"again.cluster.{ending}"
            save_cluster(each, again)
            assert load_cluster_file(again).fingerprint == each.fingerprint


@pytest.mark.parametrize("key", ['gap = "1s"', "multicast = true"])
def test_a_free_link_has_no_gap_and_no_multicast(tmp_path: Path, key: str) -> None:
    file = tmp_path / "free.cluster.toml"
    file.write_text(BY_HAND.replace("[links]", f"[links]\n{key}"))
    with pytest.raises(InputError, match=rf"links\.{key.split()[0]}: free links have none; remove it"):
        load_cluster(str(file))
    with pytest.raises(InputError, match="free links have no gap and no multicast"):
        joined("two", toy_cluster(2), Level(2, 1.0, 0.0, "free", gap=1.0))


def test_levels_may_be_free_inside_and_outside() -> None:
    shared = toy_cluster(2, shared_out=True, gap=1.0)
    outside = joined("outside", shared, Level(2, 1.0, 0.0, "free"))
    assert (outside.channel[:2, 2:] == FREE).all()
    assert outside.channel[0, 1] != outside.channel[2, 3]
    assert outside.gap.tolist() == [1.0] * 4
    inside = joined("inside", shared.with_free_links(), Level(2, 1.0, 0.0, "group", gap=2.0))
    assert inside.channel[0, 1] == inside.channel[3, 2] == FREE
    assert inside.channel[0, 2] == inside.channel[1, 3] != inside.channel[2, 0]
    assert inside.gap.tolist() == [2.0, 2.0]


@given(st.integers(2, 4), st.booleans(), st.booleans())
def test_what_is_free_is_told_from_what_is_not(devices: int, shared_out: bool, multicast: bool) -> None:
    serial = toy_cluster(devices, shared_out=shared_out, multicast=multicast)
    free = serial.with_free_links()
    assert free.fingerprint != serial.fingerprint
    assert free.with_free_links().fingerprint == free.fingerprint
    assert len(np.unique(free.links[free.is_free])) == devices * (devices - 1)
    assert not serial.is_free.any()


def test_policies_see_a_channel_of_its_own_for_every_free_pair() -> None:
    problem = Problem(random_graph(12, 0), toy_cluster(3, shared_out=True).with_free_links())
    costs = Simulator(problem).costs
    layout = RolloutLayout.of(problem, costs)
    apart = ~np.eye(3, dtype=np.bool_)
    assert len(np.unique(layout.channels.between[apart])) == 6
    assert 0 <= layout.channels.between.min() <= layout.channels.between.max() < layout.channels.number
    assert layout.same.tolist() == [0, 0, 0]
    assert np.isfinite(observe(problem, costs).devices).all()
