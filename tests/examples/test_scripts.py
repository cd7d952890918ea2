"""The examples that are scripts, on small graphs: what they print is so."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from examples import pipelines_with_sb3, read_a_timeline
from graphs.problem import Problem
from tests.oracle.toys import random_graph, toy_cluster, toy_graph

SMALL = "rnnlm:layers=1,steps=2,hidden=8,batch=2,vocabulary=16"


def run(script: str, *arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    {"read": read_a_timeline, "pipelines": pipelines_with_sb3}[script].main()
    return capsys.readouterr().out


def test_reading_a_timeline(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = run("read", SMALL, "p100x2", "--budget", "20", monkeypatch=monkeypatch, capsys=capsys)
    assert re.match(r"One step takes \d+\.\d\d ms\.\n\ndevice +forward +backward", text)
    assert text.count("MiB at") == 2
    assert "|" in text.splitlines()[-2]


def test_shares_of_a_step_add_up_to_it() -> None:
    timeline = simulate(Problem(random_graph(30, 1), toy_cluster(3)), Plan.of(np.arange(30) % 3))
    head, *rows = read_a_timeline.shares(timeline).splitlines()
    assert head.split()[0] == "device"
    for row in rows:
        spent = [float(each) for each in re.findall(r"(\d+\.\d+) ms", row)]
        assert sum(spent) == pytest.approx(timeline.step_seconds * 1e3, abs=0.01 * len(spent))


def test_what_is_said_of_a_chain_over_two_devices() -> None:
    timeline = simulate(Problem(toy_graph([1, 2, 4], [(0, 1), (1, 2)]), toy_cluster(2)), Plan.of([0, 1, 0]))
    moved = timeline.transfers
    lines = read_a_timeline.largest_transfers(timeline)
    begin, took = moved.start * 1e3, (moved.finish - moved.start) * 1e3
    assert f"from gpu:0 to gpu:1, at {begin[0]:.2f} ms for {took[0]:.2f} ms" in lines
    assert f"from gpu:1 to gpu:0, at {begin[1]:.2f} ms for {took[1]:.2f} ms" in lines
    wait = (timeline.start[2] - timeline.finish[0]) * 1e3
    last = timeline.problem.graph.names[2]
    assert read_a_timeline.longest_wait(timeline) == f"gpu:0 is idle for {wait:.2f} ms before {last}."
    first, second = read_a_timeline.memory(timeline).splitlines()
    assert first.startswith("gpu:0: ")
    assert second.startswith("gpu:1: ")


def test_nobody_waits_on_one_device() -> None:
    timeline = simulate(Problem(toy_graph([1, 2], [(0, 1)]), toy_cluster(1)), Plan.of([0, 0]))
    assert read_a_timeline.longest_wait(timeline) == "No device is idle between its ops."
    assert read_a_timeline.largest_transfers(timeline) == ""


def test_a_policy_of_stable_baselines_learns_to_plan_and_says_what_is_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained_on = ("vgg:layers=11,batch=64",)
    for name, value in {"TRAINED_ON": trained_on, "UNSEEN": SMALL, "CLUSTER": "p100x2"}.items():
        monkeypatch.setattr(pipelines_with_sb3, name, value)
    text = run("pipelines", "--steps", "2048", "--logs", str(tmp_path), monkeypatch=monkeypatch, capsys=capsys)
    assert list(tmp_path.glob("PPO_1/events*"))
    head, *rows, last = text.splitlines()
    names = head.split()[-len(pipelines_with_sb3.RIVALS) :]
    assert tuple(names) == pipelines_with_sb3.RIVALS
    behind = set()
    for graph, row in zip((*trained_on, SMALL), rows, strict=True):
        before, after, *others = (float(value) for value in row.removeprefix(graph).split())
        assert graph == SMALL or after < before, "it has learned"
        behind |= {f"{name} on {graph}" for name, seconds in zip(names, others, strict=True) if seconds < 0.98 * after}
    assert all(each in last for each in behind)
    assert f"never saw {SMALL}" in last
