"""Processes forked from one that has imported PyTorch: each saves the seconds that importing it takes.

For tests that are not about how a process begins. The process that is forked has one thread.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, TextIO

import dask

ROOT = Path(__file__).resolve().parents[1]
CONTEXT = multiprocessing.get_context("forkserver")
LIMIT = 400.0  # seconds, after which a program hangs
IMPORTED = [
    "torch._dynamo",  # which capturing a model imports
    "torch.distributed.tensor",
    "envs.running.training_job",
    "envs.running.pipelined.pipelined_step",
    "envs.running.partitioned.partitioned_step",
    "training.runs.train",
    "tests.envs.running.pipeline_jobs",  # with what jobs of tests import
    "transformers.models.bert.modeling_bert",  # of a model that they run; left out where it is not installed
    "tests.first_uses",
]


def begin() -> None:
    """Start the process that is forked, unless it runs."""
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "OMP_NUM_THREADS")}
    os.environ |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    try:
        CONTEXT.set_forkserver_preload(IMPORTED)
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextlib.contextmanager
def forked_items() -> Iterator[None]:
    """In which the processes that do items are forked as well."""
    begin()
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


class ForkedWorker:
    """In place of `subprocess.Popen` in `envs.running.processes`, as far as that uses it."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], **_: Any) -> None:
        arguments = command[-3:]  # folder, device, core
        self._process = CONTEXT.Process(target=_work, args=(arguments, dict(env), Path.cwd()))
        begin()
        self._process.start()

    def poll(self) -> int | None:
        """Its exit code, negative of a signal; None while it runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, when it has ended. Raises TimeoutExpired."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
        return self._process.exitcode


def ended(code: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """What a program prints and how it ends, run in a folder as by `python -c`; killed after `LIMIT`."""
    begin()
    with tempfile.TemporaryDirectory() as logs:
        streams = Path(logs, "stdout"), Path(logs, "stderr")
        process = CONTEXT.Process(target=_run, args=(code, folder, streams))
        process.start()
        process.join(LIMIT)
        process.kill()
        process.join()
        assert process.exitcode is not None
        out, err = (path.read_text() if path.exists() else "" for path in streams)
    return subprocess.CompletedProcess(code, process.exitcode, out, err)


def _run(code: str, folder: Path, streams: tuple[Path, Path]) -> None:
    os.chdir(folder)
    for stream, path in zip((sys.stdout, sys.stderr), streams, strict=True):
        _written_to(stream, path)
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})


def _written_to(stream: TextIO, path: Path) -> None:
    stream.flush()
    os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), stream.fileno())


def _work(arguments: Sequence[str], environment: dict[str, str], folder: Path) -> None:
    from envs.running import worker

    os.setsid()  # as `start_new_session`
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for stream in (sys.stdout, sys.stderr):
        _written_to(stream, Path(arguments[0]) / "log")
    worker.main(*arguments)
