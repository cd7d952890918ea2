"""A processor and GPUs of one process are calibrated by copies; here of GPUs that are made up."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import placelab
from envs.costs.profile_file import Profile, ProfiledMachine, save_profile
from envs.running.measuring.copy_speeds import CopyTimes, MeasureCopies, MeasureProcessor, TwoWayTimes, copies
from envs.running.measuring.host_times import MeasureHost
from envs.running.measuring.link_fits import Line
from envs.running.measuring.link_speeds import MeasurePair, PairSamples, machine, reference_seconds
from envs.running.processes import Process
from graphs.devices.cluster_file import load_cluster_file
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError
from graphs.host import HOSTS
from tests.evaluation.some_records import to_text

PINNED = Line(15e-6, 1 / 55e9, 0.0)


def copied(rank: int) -> TwoWayTimes:
    """To the GPU of a process with 10 GB/s, and from it with 20; each next GPU is half as fast."""
    there, back = (Line(fixed, (1 + rank) / rate, 0.1) for fixed, rate in ((18e-6, 10e9), (22e-6, 20e9)))
    return TwoWayTimes(CopyTimes(there, PINNED), CopyTimes(back, PINNED))


def profiled(name: str, kind: Any, launch: float) -> ProfiledMachine:
    return ProfiledMachine(
        name=name, kind=kind, torch="2", threads=1, flops_per_second=1e12, bytes_per_second=1e11, memory_bytes=1e10,
        launch_seconds=launch, autograd_seconds=0,
    )  # fmt: skip


@dataclass
class MadeUpWorkers:
    """What processes on GPUs would say."""

    devices: tuple[str, ...]
    jobs: list[object] = field(default_factory=list)

    def __enter__(self) -> "MadeUpWorkers":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def run(self, job: object, *, limit: float) -> list[Any]:
        self.jobs.append(job)
        ranks = range(len(self.devices))
        if job is machine:
            return [profiled("Made-up 100", "gpu", 2e-6) for _ in ranks]
        if job is reference_seconds:
            return [[1.0] for _ in ranks]
        if isinstance(job, MeasureProcessor):
            return [profiled("Abacus", "cpu", 1e-6) if rank == 0 else None for rank in ranks]
        if isinstance(job, MeasureCopies):
            return [copied(rank) if rank == job.rank else None for rank in ranks]
        if isinstance(job, MeasurePair):
            taken = np.full((5, 2), 30e-6)
            return [PairSamples(taken, np.zeros((5, 2)), np.zeros((5, 2))) for _ in ranks]
        assert isinstance(job, MeasureHost)
        return [HOSTS["eager"].with_seconds({"forward": 31e-6}) if rank == 0 else None for rank in ranks]


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envs.running.processes.gpus", lambda: ("cuda:0",))
    monkeypatch.setattr("envs.running.processes.Workers", MadeUpWorkers)


@pytest.mark.usefixtures("one_gpu")
def test_without_a_cluster_the_only_gpu_is_measured_with_its_processor(tmp_path: Path) -> None:
    out = tmp_path / "mine.cluster.toml"
    found = placelab.calibrate(out=out)
    cluster = load_cluster_file(out)
    assert [(device.name, device.kind, device.launch_seconds) for device in cluster.devices] == [
        ("cpu:0", "cpu", 1e-6),
        ("gpu:0", "gpu", 2e-6),
    ]
    assert cluster.latency[0, 1] == 18e-6
    assert cluster.latency[1, 0] == 22e-6
    assert cluster.bandwidth[0, 1] == 10e9
    assert cluster.bandwidth[1, 0] == 20e9
    assert cluster.hosts["eager"].forward == 31e-6
    text = to_text(found.__rich__(), width=140)
    assert "A copy in one process" in text
    assert "55.00 GB/s" in text  # pinned
    record = found.to_json()["copies"]
    assert [(each["from"], each["to"], each["memory"]) for each in record] == [  # type: ignore[attr-defined]
        ("cpu:0", "gpu:0", "pageable"), ("cpu:0", "gpu:0", "pinned"),
        ("gpu:0", "cpu:0", "pageable"), ("gpu:0", "cpu:0", "pinned"),
    ]  # fmt: skip


def test_of_several_gpus_each_process_measures_its_copies_and_each_pair_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envs.running.processes.gpus", lambda: ("cuda:0", "cuda:1"))
    monkeypatch.setattr("envs.running.processes.Workers", MadeUpWorkers)
    given = load_cluster("cpu_gpu:gpus=2")
    cluster = placelab.calibrate(given, out=tmp_path / "mine.cluster.toml").cluster
    assert [device.name for device in cluster.devices] == [device.name for device in given.devices]
    assert cluster.bandwidth[0].tolist()[1:] == [10e9, 5e9]
    assert cluster.bandwidth[1:, 0].tolist() == [20e9, 10e9]
    assert cluster.latency[1, 2] == cluster.latency[2, 1] == 30e-6
    assert (cluster.channel == given.channel).all()


@pytest.mark.usefixtures("one_gpu")
def test_models_are_run_by_processes_and_a_processor_is_first(tmp_path: Path) -> None:
    out, of_gpu = tmp_path / "mine.cluster.toml", tmp_path / "mine.profile.json"
    save_profile(Profile(date="", machine=profiled("Made-up 100", "gpu", 2e-6), ops=[]), of_gpu)
    with pytest.raises(InputError, match="on which no processes run a plan: leave out `models`"):
        placelab.calibrate("cpu_gpu:gpus=1", out=out, models=["mlp"], profile=of_gpu)
    swapped = load_cluster("cpu_gpu:gpus=1")
    object.__setattr__(swapped, "devices", swapped.devices[::-1])
    with pytest.raises(InputError, match="let that be the first device"):
        placelab.calibrate(swapped, out=out)


def test_copies_of_a_processor_are_timed_in_both_directions() -> None:
    found = copies(torch.device("cpu"), 2, (256, 2**20))
    for line in (*found.to_gpu, *found.from_gpu):
        assert line.fixed + line.per_byte > 0
    others = MeasureCopies(1, 2)(Process(0, 2, torch.device("cpu")))
    assert others is None
