"""Links and runners measured between processes: what is asked for, fitted, shown and written."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import placelab
from envs.costs.costs import costs_of, timed
from envs.costs.profile_file import Profile, ProfiledMachine, load_profile, save_profile
from envs.running.measuring.link_fits import Line
from evaluation.measuring.calibration import (
    Calibration,
    MessageSample,
    PassSample,
    RunnerSample,
    least_wrong,
    uneven_pipeline,
)
from graphs.devices.cluster_file import load_cluster_file, save_cluster
from graphs.files.load import load_cluster, load_graph
from graphs.foundation.errors import InputError
from graphs.host import HOSTS
from graphs.op_graph import Phase
from graphs.problem import Problem
from tests.evaluation.some_records import to_text
from tests.oracle.toys import toy_cluster

TINY = "rnnlm:layers=1,steps=2,hidden=4,batch=2,vocabulary=8"
RUNS = st.lists(
    st.builds(RunnerSample, st.just("m"), st.just(0), st.integers(1, 99), st.floats(0.1, 10), st.floats(0.1, 10)),
    min_size=1, max_size=5,
)  # fmt: skip


def calibration(warning: str = "") -> Calibration:
    lines = [Line(50e-6, 0.3e-9, 0.25), Line(40e-6, 0.2e-9, 0.15)]
    runs = [RunnerSample("mlp", device, 100, 10e-3, 20e-3 + 5e-3 * device) for device in (0, 1)]
    return Calibration(
        toy_cluster(2),
        {(0, 1): Line(60e-6, 0.5e-9, 0.1)},
        lines,
        runs,
        [MessageSample("mlp", 7, 20e-3, 30e-3, 2.0)],
        [PassSample("mlp", 8, 10e-3, 13e-3, 0.5e-3)],
        replace(HOSTS["eager"], forward=21e-6, backward=33e-6),
        warning,
    )


def test_what_was_measured_is_in_the_cluster_and_its_file(tmp_path: Path) -> None:
    cluster = calibration().cluster
    first, second = cluster.devices
    assert (first.message_seconds, first.message_seconds_per_byte) == (100e-6, 0.6e-9)  # twice in a step
    assert (first.runner_seconds, second.runner_seconds) == (100e-6, 150e-6)
    assert (first.pass_seconds, second.pass_seconds) == (0.5e-3, 0.5e-3)
    assert cluster.latency[0, 1] == pytest.approx(60e-6 - 40e-6)
    assert 1 / cluster.bandwidth[1, 0] == pytest.approx(0.5e-9 - 0.3e-9)
    save_cluster(cluster, tmp_path / "mine.cluster.toml")
    assert load_cluster_file(tmp_path / "mine.cluster.toml").fingerprint == cluster.fingerprint
    text = (tmp_path / "mine.cluster.toml").read_text()
    assert 'message = "80us"' in text
    assert 'message_per_byte = "0.4ns"' in text
    assert 'runner = "150us"' in text
    assert 'per_pass = "0.5ms"' in text
    assert '[hosts.eager]\nforward = "21us"\nbackward = "33us"\nupdate = "5us"\ncollective = "30us"\nplaced = ' in text


def test_it_is_shown_and_written() -> None:
    text = to_text(calibration("the machine was busy; wait").__rich__(), width=140)
    for part in ("gpu:0 - gpu:1", "60.0 µs", "2.00 GB/s", "50.0 µs", "300 µs", "25%", "21.0 µs", "mlp", "10.0 ms"):
        assert part in text
    assert "Warning: the machine was busy; wait." in text
    assert "Warning" not in to_text(calibration().__rich__())
    record = json.loads(json.dumps(calibration().to_json()))
    assert record["links"] == [{"between": ["gpu:0", "gpu:1"], "fixed": 60e-6, "per_byte": 0.5e-9, "spread": 0.1}]
    assert record["runner_seconds"] == {"gpu:0": pytest.approx(100e-6), "gpu:1": pytest.approx(150e-6)}
    assert [run["device"] for run in record["runs"]] == ["gpu:0", "gpu:1"]
    assert [each["per_pass"] for each in record["passes"]] == [0.5e-3]
    of_plans = {of: getattr(HOSTS["eager"], of) for of in ("placed", "deferral")}
    issuing = {"forward": 21e-6, "backward": 33e-6, "update": 5e-6, "collective": 30e-6} | of_plans
    assert record["hosts"] == {"eager": issuing}


def test_the_pipeline_of_calibration_gives_each_device_more_work_than_the_one_before() -> None:
    graph = load_graph("transformer:layers=6,width=16,heads=2,sequence=8,batch=6,vocabulary=64", with_law=True)
    problem = timed(Problem(graph, load_cluster("p100:devices=3")), "roofline")
    plan = uneven_pipeline(problem)
    assert plan is not None
    assert plan.schedule.micro_batches == 3  # six samples cannot be divided by four
    seconds, device = costs_of(problem).op_seconds[:, 0], np.array([devices[0] for devices in plan.devices])
    before_updates = graph.phase < Phase.UPDATE
    first, second, third = np.bincount(device[before_updates], seconds[before_updates]) / seconds[before_updates].sum()
    assert first == pytest.approx(1 / 6, abs=0.1)
    assert second == pytest.approx(2 / 6, abs=0.1)
    assert third == pytest.approx(3 / 6, abs=0.1)


@pytest.mark.parametrize("batch", [1, 7])
def test_samples_that_cannot_be_divided_leave_no_pipeline_to_calibrate_with(batch: int) -> None:
    graph = load_graph(f"transformer:layers=1,width=16,heads=2,sequence=8,batch={batch},vocabulary=64", with_law=True)
    problem = timed(Problem(graph, load_cluster("p100:devices=2")), "roofline")
    assert uneven_pipeline(problem) is None


@given(RUNS)
def test_no_other_runner_predicts_the_steps_better(runs: list[RunnerSample]) -> None:
    def error(per_op: float) -> float:
        return sum(abs(run.predicted + run.ops * per_op - run.measured) / run.measured for run in runs)

    found = least_wrong(runs)
    assert found >= 0
    assert all(error(found) <= error(run.per_op) + 1e-9 for run in runs)


def machine(threads: int) -> ProfiledMachine:
    return ProfiledMachine(
        name="Abacus", kind="cpu", torch="2", threads=threads, flops_per_second=1, bytes_per_second=1,
        memory_bytes=100, launch_seconds=1, autograd_seconds=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"out": "one.yaml"}, r"its name must end in \.toml or \.json"),
        ({"models": ["mlp"]}, "give `models` and, with `profile`, a file that"),
        ({"profile": "of_one.profile.json"}, "give `models` and, with `profile`, a file that"),
        ({"models": ["g.json"], "profile": "of_one.profile.json"}, "g.json is a graph, and a model is to be run"),
        ({"models": ["mlp"], "profile": "none.profile.json"}, "does not exist"),
        ({"models": ["mlp"], "profile": "of_two.profile.json"}, "measured with 2 threads, .* `threads=1`"),
        ({"models": [TINY], "profile": "of_one.profile.json"}, "holds no time"),
        ({"cluster": "toys.toml", "processes": 3}, "processes is 3; cluster 'toy2' has 2 devices"),
        ({"cluster": "cpu_gpu:gpus=1"}, "'cpu_gpu:gpus=1' has 1 GPU and this machine 0"),
        ({"cluster": "p100:devices=8"}, "has 8 GPUs and this machine"),
        ({"samples": 0}, "samples is 0"),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_process_starts(
    asked: dict[str, object], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("envs.running.processes.Workers._start", lambda workers: pytest.fail("processes were started"))
    save_cluster(toy_cluster(2), tmp_path / "toys.toml")
    for name, threads in (("of_one", 1), ("of_two", 2)):
        save_profile(Profile(date="", machine=machine(threads), ops=[]), tmp_path / f"{name}.profile.json")
    with pytest.raises(InputError, match=sentence):
        placelab.calibrate(**{"out": "mine.cluster.toml"} | asked)  # type: ignore[arg-type]
    assert not (tmp_path / "mine.cluster.toml").exists()


def test_two_processes_are_calibrated(tmp_path: Path) -> None:
    profile, out = tmp_path / "tiny.profile.json", tmp_path / "mine.cluster.toml"
    placelab.profile(TINY, out=profile, repeats=1, device="cpu", threads=1)
    assert load_profile(profile).machine.threads == 1
    found = placelab.calibrate(out=out, processes=2, models=[TINY], profile=profile, samples=1, steps=2)
    cluster = load_cluster_file(out)
    assert cluster.fingerprint == found.cluster.fingerprint
    assert cluster.name == "this machine"
    assert cluster.hosts == {"eager": found.host}
    assert all(1e-6 < seconds < 1e-2 for seconds in (found.host.forward, found.host.backward, found.host.collective))
    assert [device.name for device in cluster.devices] == ["cpu:0", "cpu:1"]
    assert [(run.model, run.device) for run in found.runs] == [(TINY, 0), (TINY, 1)]
    assert all(run.measured > 0 and run.predicted > 0 for run in found.runs)
