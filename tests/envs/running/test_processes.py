"""Processes do jobs together, one after another; whatever goes wrong is one sentence, and no process is left."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from envs.running.processes import Process, ProcessError, TimeLimitError, Workers
from graphs.foundation.errors import InputError
from tests.envs.running.jobs import About, Going, Sum, about, crossing

ROOT = Path(__file__).resolve().parents[3]
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
SCRIPT = """
import signal
from envs.running.processes import Workers
from tests.envs.running.jobs import Going, about
signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it, and so would this
with Workers(["cpu"] * 2) as workers:
    print(*(each.pid for each in workers.run(about)), flush=True)
    workers.run(Going("sleeping"), limit=60.0)
"""


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(["cpu"] * 2) as workers:
        yield workers


def pids(found: list[About]) -> list[int]:
    return [each.pid for each in found]


def alive(pid: int) -> bool:
    with suppress(OSError):
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def all_end(processes: list[int]) -> bool:
    until = time.monotonic() + 20.0
    while any(map(alive, processes)) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(map(alive, processes))


def test_jobs_follow_one_another_in_the_same_processes(workers: Workers) -> None:
    first, second = workers.run(about), workers.run(about)
    assert [(each.rank, each.size, each.threads) for each in first] == [(0, 2, 1), (1, 2, 1)]
    assert pids(first) == pids(second)
    assert [each.jobs for each in second] == [each.jobs + 1 for each in first]
    assert workers.run(Sum((1.5, 2.0))) == [3.5, 3.5]


@pytest.mark.skipif(CORES < 2, reason="the system cannot pin processes, or has one core")
def test_each_process_has_a_core_of_its_own(workers: Workers) -> None:
    first, second = (each.cores for each in workers.run(about))
    assert len(first) == len(second) == 1
    assert first != second


@pytest.mark.parametrize(
    ("what", "sentence", "kind"),
    [
        pytest.param("wrong", "process 1, on cpu, failed: KeyError: 'wrong'", ProcessError, marks=pytest.mark.slow),
        ("refused", "the plan has a mistake; make another", InputError),
        ("killed", "process 1, on cpu, was killed (signal 9, out of memory?)", ProcessError),
        ("sleeping", "took more than 0.5 seconds and was ended: nothing came from process 0, 1", TimeLimitError),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_the_next_job_starts_anew(
    what: str, sentence: str, kind: type[InputError], workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    before = pids(workers.run(about))
    with pytest.raises(InputError) as raised:
        workers.run(Going(what), limit=0.5 if what == "sleeping" else 60.0)
    assert sentence in str(raised.value)
    assert type(raised.value) is kind
    assert ("raise KeyError(self.what)" in caplog.text) == (what == "wrong")
    assert not any(map(alive, before))
    assert workers.run(Sum((1.0, 1.0))) == [2.0, 2.0]


@pytest.mark.parametrize(
    ("job", "sentence", "where"),
    [
        (Going("stuck"), "process 1 has said nothing for 6 seconds; all were ended", "jobs.py"),
        (crossing, "no process goes on: process 0 waits for a number from process 1, "
                   "process 1 waits for a number from process 0; all were ended", ""),
    ],
)  # fmt: skip
def test_who_holds_up_the_others_is_named_long_before_the_limit(
    job: Callable[[Process], None],
    sentence: str,
    where: str,
    workers: Workers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = pids(workers.run(about))
    monkeypatch.setattr("envs.running.progress.PATIENCE", 6.0)  # no less: what says something may be held up by others
    with pytest.raises(ProcessError) as raised:
        workers.run(job, limit=300.0)
    assert str(raised.value) == sentence
    assert where in caplog.text
    assert bool(caplog.text) == bool(where)
    assert not any(map(alive, before))


def test_why_processes_cannot_be_started_is_said_in_the_last_words_that_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho one thing\necho '  no room is left  '\necho ' '\nexit 1\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr("envs.running.processes.Popen", subprocess.Popen)
    with Workers(["cpu"]) as workers, pytest.raises(ProcessError) as raised:
        workers.run(about)
    assert str(raised.value) == "the processes could not be started: no room is left"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
@pytest.mark.parametrize("by", ["interrupt", pytest.param("kill", marks=pytest.mark.slow)])
def test_no_process_is_left_when_the_one_that_started_them_is_gone(by: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as started:
        assert started.stdout is not None
        processes = list(map(int, started.stdout.readline().split()))
        assert all(map(alive, processes))
        started.send_signal(2 if by == "interrupt" else 9)
        assert started.wait(30) != 0
    assert all_end(processes)
