"""Processes that run jobs together, one per device, and are kept for one job after another.

    this process ── a socket in a folder of its own ──┬── process 0 ┐
       └── starts them ───────────────────────────────┴── process 1 ┴── torch.distributed: gloo, or NCCL on GPUs

They meet by a file in that folder. Torchrun would do no more for them, and imports PyTorch before it starts them. A job
is sent to all of them, and each sends back what it returns, and meanwhile what it does (`envs.running.progress`). When
one fails, dies, says nothing any more or takes too long, all are ended, and so they are when this process leaves the
context, by an error or Ctrl-C as well. If it is killed itself, they find the
socket closed and end by themselves.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, cast

from envs.running.progress import BEAT, Alive, Watch
from graphs.foundation.errors import InputError

if TYPE_CHECKING:  # the process that starts others need not import it
    import torch

Result = TypeVar("Result")

START_LIMIT = 180.0  # seconds until every process has begun
LIMIT = 600.0  # seconds for a job, unless another limit is given
GRACE = 10.0  # seconds for a process that has closed its end of the socket to end
SOON = 0.5  # seconds in which it shows that a process has died when another one fails for it, or where one is
ENTRY = "envs.running.worker"
ROOT = Path(__file__).resolve().parents[2]
_NEVER = str(2**40)  # bytes

_log = logging.getLogger("placelab")


class ProcessError(InputError):
    """A process failed, was killed or took too long; the message says which one, and why."""


class TimeLimitError(ProcessError):
    """Processes took longer than they may."""


@dataclass
class Process:
    """One of the processes, as a job sees it."""

    rank: int  # that of its device in the cluster
    size: int  # how many there are
    device: torch.device
    kept: dict[object, object] = field(default_factory=dict)
    """What jobs keep for those that follow."""


@dataclass(frozen=True)
class Ready:
    """What a process sends first."""

    rank: int
    device: str  # as PyTorch calls it


@dataclass(frozen=True)
class Done:
    """What a job returned."""

    result: object


@dataclass(frozen=True)
class Failed:
    """What a job raised instead."""

    sentence: str
    traceback: str  # empty for an InputError, whose sentence says everything


class Workers:
    """A process per device. They start with the first job, and again with the next one after a failure."""

    shares_clock = True
    """Whether processes read one clock."""

    def __init__(self, devices: Sequence[str], *, pin: bool = True) -> None:
        """`devices` as PyTorch calls them, all on CPUs or all on GPUs.

        With `pin`, processes on CPUs have a core each, as far as there are enough, where the system can do that.
        """
        self.devices = tuple(devices)
        self._pin = pin
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._started: dict[int, Popen[bytes]] = {}  # from here, by rank
        self._pipes: dict[int, Connection] = {}

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    @property
    def cores(self) -> int:
        """How many cores there are for the processes; 0 if they run on GPUs, or if the system does not say."""
        return 0 if any(device != "cpu" for device in self.devices) else len(_own_cores())

    def run(
        self, job: Callable[[Process], Result], *, limit: float = LIMIT, tell: Callable[[str], None] | None = None
    ) -> list[Result]:
        """What a job returns in each process, by rank. Jobs and results are plain data, with NumPy's arrays.

        How far they are is told every second.

        Raises the InputError that it raises in one of them, and ProcessError if one fails otherwise, dies, or has not
        answered within the limit, in seconds.
        """
        self.start()
        try:
            for pipe in self._pipes.values():
                with suppress(ConnectionError):  # it has ended, as its answer will say
                    pipe.send(job)
            return cast("list[Result]", self._answers(time.monotonic() + limit, limit, tell))
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Start what has not started. Raises ProcessError if a process does not begin."""
        if self._started:
            return
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def close(self, *, well: bool = False) -> None:
        """End all processes at once, whatever they do; who has launched them sees whether it was `well`."""
        for pipe in self._pipes.values():
            if well:
                with suppress(ConnectionError):
                    pipe.send(None)
            pipe.close()
        self._pipes.clear()
        for process in self._started.values():
            process.kill()
        for process in self._started.values():
            process.wait()
        self._started.clear()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="placelab-run-")  # for this user alone
        ready = self._start_in(self._folder.name)
        self.devices = tuple(each.device for each in sorted(ready, key=lambda each: each.rank))

    def _start_in(self, folder: str) -> list[Ready]:
        """Start them with a folder of their own, and wait for each to begin."""
        cores = _cores(self.devices) if self._pin else []
        environment = _environment() | {"WORLD_SIZE": str(len(self.devices))}
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"{folder}/jobs")
            server.listen(len(self.devices))
            for rank, device in enumerate(self.devices):
                core = str(cores[rank]) if cores else ""
                own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                self._begin(rank, folder, device, core, environment | own)
            return self._accept(server, time.monotonic() + START_LIMIT)

    def _begin(self, rank: int, folder: str, device: str, core: str, environment: Mapping[str, str]) -> None:
        """Start a process."""
        with (Path(folder) / "log").open("ab") as log:
            self._started[rank] = Popen(
                [sys.executable, "-u", "-m", ENTRY, folder, device, core],
                env=environment,
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for this process, which ends the others
            )

    def _accept(self, server: socket.socket, until: float, key: bytes = b"") -> list[Ready]:
        """What each process says as it begins; what does not send the key first is not listened to."""
        found = list[Ready]()
        server.settimeout(0.2)
        while len(found) < len(self.devices):
            try:
                connected, _ = server.accept()
            except TimeoutError:
                if any(process.poll() is not None for process in self._started.values()):
                    raise ProcessError(f"the processes could not be started: {self._last_words()}") from None
                if time.monotonic() > until:
                    raise ProcessError(f"the processes did not begin within {START_LIMIT:.0f} seconds") from None
                continue
            connected.setblocking(True)
            pipe = Connection(connected.detach())
            if key and not _knows(pipe, key):
                pipe.close()
                continue
            ready = pipe.recv()
            assert isinstance(ready, Ready)
            self._pipes[ready.rank] = pipe
            found.append(ready)
        return found

    def _answers(self, until: float, limit: float, tell: Callable[[str], None] | None) -> list[object]:
        """What each process answers, by rank."""
        waiting = {pipe: rank for rank, pipe in self._pipes.items()}
        found: dict[int, object] = {}
        watch = Watch(sorted(waiting.values()), time.monotonic())
        while waiting:
            for pipe in wait(list(waiting), max(0.0, min(BEAT, until - time.monotonic()))):
                assert isinstance(pipe, Connection)
                rank = waiting[pipe]
                try:
                    answer = pipe.recv()
                except (EOFError, ConnectionError):
                    raise self._ended(rank) from None
                if isinstance(answer, Alive):
                    watch.hear(rank, answer, time.monotonic())
                    if tell is not None:
                        tell(watch.reached())
                    continue
                del waiting[pipe]
                watch.leave(rank, time.monotonic())
                found[rank] = self._result(answer, rank, waiting)
            if waiting:
                self._check(watch, waiting.values(), until, limit)
        return [found[rank] for rank in range(len(self.devices))]

    def _check(self, watch: Watch, ranks: Iterable[int], until: float, limit: float) -> None:
        """Raise ProcessError if no answer will come from processes, or it is too late; warn of what takes long."""
        now = time.monotonic()
        if now >= until:
            late, said = ", ".join(map(str, sorted(ranks))), watch.what()
            raise TimeLimitError(
                f"this took more than {limit:g} seconds and was ended: nothing came from process {late}"
                + (said and f" ({said})")
                + "; give it a longer limit, or fewer steps"
            )
        if wrong := watch.wrong(now):
            for rank in watch.silent(now):
                _log.error("process %d, on %s, is here:\n%s", rank, self.devices[rank], self._stacks(rank))
            raise ProcessError(f"{wrong}; all were ended")
        if slow := watch.slow(now):
            _log.warning("%s", slow)

    def _stacks(self, rank: int) -> str:
        """Where the threads of a process are, which it says even if none can run Python."""
        if rank not in self._started:
            return "it was not started from here"
        before = len(self._said())
        self._started[rank].send_signal(signal.SIGUSR1)
        time.sleep(SOON)
        return self._said()[before:] or "it does not say; it may be stopped"

    def _result(self, answer: object, rank: int, others: Mapping[Connection, int]) -> object:
        """What a process has answered, while others have not, whose pipes and ranks these are."""
        if isinstance(answer, Done):
            return answer.result
        assert isinstance(answer, Failed)
        if not answer.traceback:
            raise InputError(answer.sentence)
        if (died := _died(others)) is not None:  # which makes those fail that wait for its messages
            raise self._ended(died)
        _log.error("process %d, on %s:\n%s", rank, self.devices[rank], answer.traceback)
        raise ProcessError(f"process {rank}, on {self.devices[rank]}, failed: {answer.sentence}")

    def _ended(self, rank: int) -> ProcessError:
        return ProcessError(f"process {rank}, on {self.devices[rank]}, {self._how_it_ended(rank)}")

    def _how_it_ended(self, rank: int) -> str:
        """What became of a process that closed its end of the socket, in words."""
        if rank not in self._started:
            return "ended, or is not reached any more"
        try:
            code = self._started[rank].wait(GRACE)
        except TimeoutExpired:
            return f"ended: {self._last_words()}"
        if code >= 0:
            return f"ended with exit code {code}"
        memory = ", out of memory?" if code == -signal.SIGKILL else ""
        return f"was killed (signal {-code}{memory})"

    def _last_words(self) -> str:
        said = self._said().splitlines()
        return next((line.strip() for line in reversed(said) if line.strip()), "it said nothing")

    def _said(self) -> str:
        """What the processes have written so far."""
        assert self._folder is not None
        return (Path(self._folder.name) / "log").read_text(errors="replace")


def _knows(pipe: Connection, key: bytes) -> bool:
    """Whether a key is the first that comes."""
    try:
        return pipe.poll(GRACE) and secrets.compare_digest(pipe.recv_bytes(len(key)), key)
    except (EOFError, OSError):
        return False


def _died(others: Mapping[Connection, int]) -> int | None:
    """The rank of one of several processes that shows soon that it has died."""
    waiting, until = dict(others), time.monotonic() + SOON
    while waiting and (ready := wait(list(waiting), max(0.0, until - time.monotonic()))):
        for pipe in ready:
            assert isinstance(pipe, Connection)
            try:
                if not isinstance(pipe.recv(), Alive):
                    del waiting[pipe]
            except (EOFError, ConnectionError):
                return waiting[pipe]
    return None


def devices_for(count: int) -> tuple[str, ...]:
    """A GPU for each process if this machine has as many, and otherwise its processor."""
    found = gpus()
    return found[:count] if len(found) >= count else ("cpu",) * count


def gpus() -> tuple[str, ...]:
    """The GPUs of this machine that can send to each other, as PyTorch calls them; Apple's have nothing to do it by."""
    from torch import accelerator  # the process that starts others need not import it

    kind = accelerator.current_accelerator()
    count = 0 if kind is None or kind.type == "mps" else accelerator.device_count()
    return tuple(f"{kind}:{number}" for number in range(count))


def _cores(devices: Sequence[str]) -> list[int]:
    """A core for each process, if there are as many and the system can pin; none for GPUs."""
    ours = _own_cores() if all(device == "cpu" for device in devices) else []
    return ours[: len(devices)] if len(ours) >= len(devices) else []


def _own_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def our_packages() -> dict[str, str]:
    """The variables by which a process imports the packages that this one does."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    # no folder of the user's may hide a package: PYTHONSAFEPATH
    return {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}


def _environment() -> dict[str, str]:
    """What processes are started with: they meet on this machine."""
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "")
    meet = {} if not loopback else {"GLOO_SOCKET_IFNAME": loopback}
    # glibc keeps freed memory: if it is given back, every large tensor of the next step costs page faults
    meet |= {"MALLOC_MMAP_THRESHOLD_": _NEVER, "MALLOC_TRIM_THRESHOLD_": _NEVER}
    return meet | dict(os.environ) | our_packages()
