"""`placelab run` in processes that torchrun, or another launcher, has started: rank 0 sends jobs and reports."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore, Store

import placelab
from envs.running.launched import ADDRESS, NUMBERS, Launched
from envs.running.launched_workers import LaunchedWorkers
from envs.running.measured_timeline import RecordedStep
from envs.running.running_step import Message, Span, StepRecord
from graphs.foundation.errors import InputError
from tests.envs.running.jobs import Going, Sum, about
from tests.forked import ForkedWorker

MODEL = "transformer:layers=1,width=8,heads=2,sequence=4,batch=4,vocabulary=16"
Launch = Callable[[], ForkedWorker]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """That of a launcher which has started this process as rank 0 of two."""
    made = distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    said = {"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "MASTER_PORT": made.port, ADDRESS: "localhost"}
    for name, value in {**said, "TORCHELASTIC_USE_AGENT_STORE": True}.items():
        monkeypatch.setenv(name, str(value))
    store: Store = made
    return store


@pytest.fixture
def launch(store: Store, tmp_path: Path) -> Launch:
    """Starts rank 1, which writes into a log."""
    del store  # whose variables it has
    return lambda: ForkedWorker([str(tmp_path), "", ""], env=os.environ | {"RANK": "1"})


def test_launched_processes_do_jobs_of_the_first_and_nobody_else_is_listened_to(store: Store, launch: Launch) -> None:
    answers = list[bytes]()

    def intrude() -> None:
        port = int(PrefixStore("placelab/0", store).get("jobs").split()[0])
        socket.create_connection(("localhost", port)).close()
        with socket.create_connection(("localhost", port)) as connected:
            connected.sendall(b"\0\0\0\x03key")  # as `Connection` sends three bytes
            answers.append(connected.recv(1))
        launch()

    intruder = Thread(target=intrude)
    intruder.start()
    with LaunchedWorkers(Launched(0, 2, 0, "localhost")) as workers:
        assert [(each.rank, each.size) for each in workers.run(about)] == [(0, 2), (1, 2)]
        assert workers.devices == ("cpu", "cpu")
        assert workers.run(Sum((1.5, 2.0))) == [3.5, 3.5]
    intruder.join()
    assert answers == [b""], "the connection is closed"


def test_a_plan_is_run_in_launched_processes_as_in_others(launch: Launch, tmp_path: Path) -> None:
    other = launch()
    placed = placelab.place(MODEL, cluster="p100x2", placer="round_robin")
    run = placelab.run(MODEL, placed.result, cluster="p100x2", steps=3).to_json()
    assert other.wait(20.0) == 0
    assert run["equal"] is True
    assert [each["on"] for each in run["devices"]] == ["cpu", "cpu"]
    assert all(each["measured_seconds"] < run["step_seconds"][2] for each in run["kinds"].values())
    assert not (tmp_path / "log").read_text(), "the first process reports"


@pytest.mark.parametrize("what", ["refused", "killed"])
def test_what_goes_wrong_is_said_by_the_first_and_ends_all(what: str, launch: Launch, tmp_path: Path) -> None:
    other = launch()
    sentence = {"refused": "the plan has a mistake", "killed": "process 1, on cpu, ended, or is not reached any more"}
    with LaunchedWorkers(Launched(0, 2, 0, "localhost")) as workers, pytest.raises(InputError, match=sentence[what]):
        workers.run(Going(what))
    assert other.wait(20.0) != 0
    assert not (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"cluster": "p100x4"}, "torchrun has started 2 processes, and the cluster has 4 devices"),
        ({"devices": ["cpu", "cpu"]}, "torchrun has started this process, and so says how many there are and where"),
    ],
)
def test_what_does_not_fit_the_launched_processes_is_refused_and_ends_them(
    keywords: dict[str, Any], sentence: str, launch: Launch, tmp_path: Path
) -> None:
    other, plan = launch(), tmp_path / "mine.plan.json"
    plan.touch()
    with pytest.raises(InputError, match=sentence):
        placelab.run(MODEL, plan, **keywords)
    assert other.wait(20.0) == 1


@pytest.mark.parametrize("name", [*NUMBERS[1:], ADDRESS])
@pytest.mark.usefixtures("store")
def test_a_variable_that_a_launcher_did_not_set_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Launched.here() == Launched(0, 2, 0, "localhost")
    monkeypatch.delenv(name)
    with pytest.raises(InputError, match=f"RANK is set, as torchrun does, and {name} is ''"):
        placelab.run(MODEL, "mine.plan.json", cluster="p100x2")


def test_a_process_takes_the_gpu_of_its_local_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envs.running.launched.gpus", lambda: ("cuda:0", "cuda:1"))
    assert Launched(3, 4, 1, "host").device == "cuda:1"
    with pytest.raises(InputError, match="LOCAL_RANK is 2, and its server has 2 GPUs"):
        _ = Launched(2, 4, 2, "host").device


def test_steps_of_hosts_are_counted_from_when_each_began() -> None:
    record = StepRecord([Span(3, 10.5, 11.0)], [Message(1, 0, 1, 8, 10.25, 12.0)])
    assert RecordedStep(10.0, 12.5, 0.5, record).since_began() == RecordedStep(
        0.0, 2.5, 0.5, StepRecord([Span(3, 0.5, 1.0)], [Message(1, 0, 1, 8, 0.25, 2.0)])
    )
