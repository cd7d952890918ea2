"""What issuing a model's step costs its host: measured by `profile`, kept in its file, and taken by what reads that."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import pytest
import torch

import placelab
from envs.costs.costs import issuing, timed
from envs.costs.profile_file import Profile, ProfiledMachine, load_profile, save_profile
from envs.costs.profiling import profile
from envs.costs.timing import OpTimer
from envs.running.measuring.eager_step import EagerStep
from envs.running.measuring.profiled_host import QUEUE, host_of, profile_host
from envs.simulation.simulator import simulate
from graphs.capture.op_calls import load_calls
from graphs.files.load import load_cluster, load_graph
from graphs.host import HOSTS, HostEntry
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from graphs.runtime import runtime_of
from placers.single_device import build as single_device

FIXTURES = Path(__file__).parents[2] / "fixtures" / "user_module.py"
TWO_TOWERS = f"{FIXTURES}:two_towers"
GPU = ProfiledMachine(
    name="Made-up 100", kind="gpu", torch="", threads=1, flops_per_second=1e12, bytes_per_second=1e12, memory_bytes=1e9,
    launch_seconds=1e-6, autograd_seconds=0.0,
)  # fmt: skip
CPU = torch.device("cpu")


class MadeUpStep:
    """Its phases take the thread 1, 2 and 3 s, and the device as much longer as it is told."""

    def __init__(self, longer: tuple[float, float, float]) -> None:
        self.now, self._rest, self._longer = 0.0, 0.0, longer

    def _phase(self, number: int) -> None:
        self.now += 1.0 + number
        self._rest = self._longer[number]

    @property
    def parts(self) -> tuple[object, ...]:
        return tuple(lambda number=number: self._phase(number) for number in range(3))

    def wait(self) -> None:
        self.now += self._rest
        self._rest = 0.0

    def host(self, ops: list[float]) -> HostEntry:
        return host_of(cast(EagerStep, self), np.array(ops), 4, self.wait, lambda: self.now)


def test_a_phase_takes_what_issuing_takes_however_long_the_device_does() -> None:
    assert MadeUpStep((0.0, 7.0, 9.0)).host([10, 100, 2]) == HostEntry(forward="0.1s", backward="20ms", update="1.5s")
    assert MadeUpStep((0.0, 0.0, 0.0)).host([10, 100, 0]) == HostEntry(forward="0.1s", backward="20ms")


def test_a_phase_in_which_the_thread_may_have_waited_for_the_queue_is_left_out() -> None:
    """There are more ops than it takes, and the device is behind."""
    ops = [QUEUE + 1.0] * 3
    found = MadeUpStep((0.05, 0.5, 0.0)).host(ops)
    assert (found.forward is None, found.backward is None, found.update is None) == (False, True, False)
    assert found.host("eager").backward == HOSTS["eager"].backward


@pytest.fixture(scope="module")
def graph() -> OpGraph:
    return load_graph(TWO_TOWERS)


def test_it_is_measured_once_and_kept(graph: OpGraph, tmp_path: Path) -> None:
    out = tmp_path / "towers.profile.json"
    found = profile_host(Profile(date="", machine=GPU, ops=[]), TWO_TOWERS, graph, CPU, out, 2)
    assert load_profile(out) == found
    host = found.host(graph.name)
    assert host is not None
    assert all(1e-7 < seconds < 1.0 for seconds in (host.forward, host.backward, host.update))
    assert host.collective == HOSTS["eager"].collective  # which no step of one device has
    assert profile_host(found, TWO_TOWERS, graph, CPU, out, 2) is found
    assert profile_host(found, TWO_TOWERS, load_graph(TWO_TOWERS, training=False), CPU, out, 2) is found


def test_a_processor_has_none_and_a_step_that_cannot_be_run_says_so(
    graph: OpGraph, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "towers.profile.json"
    of_processor = Profile(date="", machine=msgspec.structs.replace(GPU, kind="cpu"), ops=[])
    assert profile_host(of_processor, TWO_TOWERS, graph, CPU, out, 2) is of_processor

    def fails(model: str, device: torch.device) -> object:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr("envs.running.measuring.profiled_host.EagerStep", fails)
    given = Profile(date="", machine=GPU, ops=[])
    with caplog.at_level(logging.WARNING, "placelab"):
        assert profile_host(given, TWO_TOWERS, graph, CPU, out, 2) is given
    assert "what issuing its step takes was not measured: OutOfMemoryError: out of memory" in caplog.text
    assert not out.exists()


def test_another_graph_takes_the_median_of_those_that_were_measured() -> None:
    hosts = {name: HostEntry(forward=f"{us}us", backward=f"{us + 5}us") for name, us in (("a", 9), ("b", 4), ("c", 5))}
    found = Profile(date="", machine=GPU, ops=[], hosts=hosts)
    assert found.host("b") == replace(HOSTS["eager"], forward=4e-6, backward=9e-6)
    assert found.host("d") == replace(HOSTS["eager"], forward=5e-6, backward=10e-6)
    assert Profile(date="", machine=GPU, ops=[]).host("a") is None


@pytest.fixture(scope="module")
def file(graph: OpGraph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile with times of the two towers on this processor, as if it were a GPU, and a host."""
    path = tmp_path_factory.mktemp("profiles") / "towers.profile.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpTimer, "machine", GPU)
        measured = profile(load_calls(TWO_TOWERS), path, repeats=1, device="cpu")
    hosts = {graph.name: HostEntry(forward="7ms", backward="3ms", update="1ms")}
    save_profile(msgspec.structs.replace(measured, hosts=hosts), path)
    return path


def test_plans_timed_by_a_profile_have_its_host_unless_the_cluster_says_one(graph: OpGraph, file: Path) -> None:
    cost_model, measured = f"profiled:file={file}", replace(HOSTS["eager"], forward=7e-3, backward=3e-3, update=1e-3)
    cluster = load_cluster("p100x2")
    problem = Problem(graph, cluster, runtime=runtime_of("parallelize"))
    profiled = timed(problem, cost_model)
    assert profiled.host == measured
    assert timed(profiled, "roofline").host == HOSTS["eager"]
    assert replace(profiled, runtime=runtime_of("run")).host == replace(measured, per_device=True)
    assert replace(profiled, runtime=runtime_of("megatron")).host == replace(HOSTS["megatron"], per_device=True)
    own = replace(cluster, hosts={"eager": replace(HOSTS["eager"], forward=1e-5, backward=2e-5)})
    assert timed(replace(problem, cluster=own), cost_model).host == own.hosts["eager"]

    plan = single_device().place(profiled, seed=0, budget=1).plan
    by_hand = replace(profiled, hosts={}, cluster=replace(cluster, hosts={"eager": measured}))
    assert simulate(profiled, plan).step_seconds == simulate(by_hand, plan).step_seconds > 20e-3


def test_what_is_printed_says_whose_the_host_is(graph: OpGraph, file: Path, tmp_path: Path) -> None:
    taken = "Host: eager takes 7.00 ms to issue a forward op, 3.00 ms a backward op, 1.00 ms an update"
    said = f"{taken}, as profiled:file={file} says."
    cost_model, placer, plan = f"profiled:file={file}", "single_device", tmp_path / "towers.plan.json"
    placed = placelab.place(TWO_TOWERS, cluster="p100x2", placer=placer, out=plan, cost_model=cost_model)
    again = placelab.simulate(TWO_TOWERS, plan, cluster="p100x2", cost_model=cost_model)
    compared = placelab.compare([TWO_TOWERS], clusters=["p100x2"], placers=[placer], cost_model=cost_model)
    assert said == placed.record.timing_remarks[0] == again.record.timing_remarks[0]
    assert said in compared.timing
    problem = placed.problem
    constants = issuing(replace(problem, hosts={}))
    assert constants.startswith("Host: eager takes 44.0 ")
    assert constants.endswith(" an update, by placelab's constants.")
    own = replace(problem, cluster=replace(problem.cluster, hosts={"eager": HOSTS["eager"]}))
    assert issuing(own).endswith(" an update, as cluster 'p100:devices=2' says.")
    assert issuing(replace(problem, runtime=runtime_of("run:host=30us"))) == ""
    assert issuing(replace(problem, runtime=runtime_of("ideal"))) == ""


def test_the_verb_measures_it_and_its_report_says_it(
    file: Path, graph: OpGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file of an earlier version, which has no hosts, it is all that is measured."""
    out = tmp_path / "towers.profile.json"
    old = msgspec.json.decode(file.read_bytes())
    del old["hosts"]
    out.write_bytes(msgspec.json.encode(old))
    assert load_profile(out).hosts == {}
    monkeypatch.setattr(OpTimer, "machine", GPU)
    report = placelab.profile(TWO_TOWERS, out=out, repeats=2, device="cpu")
    assert report.host == load_profile(out).host(graph.name) is not None
    assert "an update, as measured in its step." in str(report)
