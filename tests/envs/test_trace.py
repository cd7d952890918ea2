"""The trace holds the whole timeline, in the form that Perfetto reads."""

import gzip
import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from envs.files.trace import DEVICES, GROUPS, LINKS, PASSES, events_of_several, save_trace, save_traces, trace_events
from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator, simulate
from envs.timelines.timeline import Timeline
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from tests.drawn import examples
from tests.envs.expansion.divided_graphs import mlp
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.oracle.strategies import Case, cases
from tests.oracle.toys import toy_cluster, toy_graph


def diamond() -> Timeline:
    graph = toy_graph([1, 3, 3, 1], [(0, 1), (0, 2), (1, 3), (2, 3)])
    return Simulator(Problem(graph, toy_cluster(2))).timeline([0, 0, 1, 1])


def test_ops_and_transfers_are_slices_and_arrows_join_them() -> None:
    events = list(trace_events(diamond()))
    slices = [(e["pid"], e["tid"], e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert slices == [
        (DEVICES, 0, "a", 0, 1e6), (DEVICES, 0, "b", 1e6, 3e6),
        (DEVICES, 1, "c", 2e6, 3e6), (DEVICES, 1, "d", 5e6, 1e6),
        (LINKS, 0, "a", 1e6, 1e6), (LINKS, 0, "b", 4e6, 1e6),
    ]  # fmt: skip
    arrows = [(e["ph"], e["pid"], e["tid"], e["ts"]) for e in events if e.get("cat") == "copy" and e["id"] == 0]
    assert arrows == [("s", DEVICES, 0, 0.5e6), ("t", LINKS, 0, 1e6), ("f", DEVICES, 1, 2e6)]
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert names == ["gpu:0", "gpu:1", "gpu:0>gpu:1"]


def test_a_multicast_transfer_is_one_slice() -> None:
    graph = toy_graph([1, 1, 1], [(0, 1), (0, 2)])
    timeline = Simulator(Problem(graph, toy_cluster(3, shared_out=True, multicast=True))).timeline([0, 1, 2])
    sent = [e["args"] for e in trace_events(timeline) if e.get("cat") == "transfer"]
    assert sent == [{"from": "gpu:0", "to": ["gpu:1", "gpu:2"], "bytes": 1.0}]


@settings(max_examples=examples(100, 15), deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_slices_of_a_track_do_not_overlap_and_counters_reach_the_peak(case: Case) -> None:
    simulator = Simulator(case.problem, order=case.order)
    timeline = simulator.timeline(case.placements[0])
    tracks: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    most: dict[str, float] = defaultdict(float)
    ops = 0
    for event in trace_events(timeline):
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
            ops += event["cat"] == "op"
        elif event["ph"] == "C":
            most[event["name"]] = max(most[event["name"]], event["args"]["bytes"])
    assert ops == len(case.problem.graph)
    for events in tracks.values():
        took_time = sorted((e for e in events if e["dur"] > 0), key=lambda e: e["ts"])
        for one, following in pairwise(took_time):
            assert one["ts"] + one["dur"] <= following["ts"] + 1e-6
    names = [device.name for device in case.problem.cluster.devices]
    assert [most[f"memory of {name}"] for name in names] == timeline.peak_bytes.tolist()


def test_several_steps_have_tracks_and_arrows_of_their_own(tmp_path: Path) -> None:
    events = list(events_of_several({"predicted": diamond(), "measured": diamond()}))
    own = list(trace_events(diamond()))
    assert events[: len(own)] != events[len(own) :]
    for first, second, alone in zip(events[: len(own)], events[len(own) :], own, strict=True):
        assert second["pid"] == first["pid"] + len(GROUPS) == alone["pid"] + len(GROUPS)
        assert (first.get("ts"), first["ph"]) == (second.get("ts"), second["ph"]) == (alone.get("ts"), alone["ph"])
    groups = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert groups == ["predicted: devices", "predicted: links", "measured: devices", "measured: links"]
    ends = [event["id"] for event in events if event["ph"] == "f"]
    assert len(set(ends)) == len(ends) > 0
    save_traces({"predicted": diamond(), "measured": diamond()}, tmp_path / "both.json")
    assert json.loads((tmp_path / "both.json").read_bytes())["traceEvents"] == events


def test_transfers_that_were_measured_at_once_are_beside_one_another() -> None:
    line = diamond()
    moved = replace(line.transfers, start=np.array([1.0, 1.0]), finish=np.array([5.0, 5.0]))
    tracks = [e["tid"] for e in trace_events(replace(line, transfers=moved)) if e.get("cat") == "transfer"]
    assert tracks == [0, 1]


def test_a_trace_is_a_file_of_json_packed_or_not(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.json", tmp_path / "a.json.gz"
    save_trace(diamond(), plain)
    save_trace(diamond(), packed)
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert json.loads(plain.read_bytes())["traceEvents"] == list(trace_events(diamond()))
    with pytest.raises(InputError, match=r"a trace is \*.json or \*.json.gz"):
        save_trace(diamond(), tmp_path / "a.txt")


def test_many_short_ops_look_as_busy_as_they_are() -> None:
    graph = toy_graph([0.3] * 20, [], output_bytes=[0] * 20)
    rows = Simulator(Problem(graph, toy_cluster(1))).timeline(np.zeros(20, int)).draw(13).split("\n")
    assert "." not in rows[0].partition("|")[2]


def test_ops_of_a_whole_plan_have_the_names_of_the_given_graph_and_say_what_they_are_copies_for() -> None:
    chain = Pipeline(2, forward=[1, 2], backward=[1, 3], activation=6, update=1)
    timeline = simulate(chain.problem(servers(2, bandwidth=2)), chain.plan("gpipe"))
    events = list(trace_events(timeline))
    passes = [(e["tid"], e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["pid"] == PASSES]
    assert passes == [
        (0, "F0", 0, 1e6), (0, "B0", 9e6, 1e6), (0, "U", 10e6, 1e6),
        (1, "F0", 4e6, 2e6), (1, "B0", 6e6, 3e6), (1, "U", 9e6, 1e6),
    ]  # fmt: skip
    (forward,) = (e["args"] for e in events if e.get("cat") == "op" and e["name"] == "s1")
    assert forward == {
        "kind": "toy", "phase": "forward", "unit": 1, "output_bytes": 6.0, "role": "work", "stage": 1, "micro_batch": 0,
        "replica": 0,
    }  # fmt: skip
    sent = [(e["name"], e["args"]["micro_batch"]) for e in events if e.get("cat") == "transfer"]
    assert sent == [("s0", 0), ("s1.grad", 0)]


def test_shards_say_which_they_are_and_what_is_divided() -> None:
    graph = mlp([4, 4], 4).graph
    split = {"mm0": ("i",), "relu0": ("n",)}
    plan = Plan(((0, 1),) * len(graph), split=tuple(split.get(name, ("",)) for name in graph.names))
    events = list(trace_events(simulate(Problem(graph, toy_cluster(2), optimizer="sgd"), plan)))
    said = [e["args"] for e in events if e.get("cat") == "op" and e["name"] == "mm0"]
    assert [(about["shard"], about["divided_by"]) for about in said] == [(0, ["i"]), (1, ["i"])]
    assert not any("replica" in about for about in said)
