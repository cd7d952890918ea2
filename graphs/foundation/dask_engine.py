"""Items done by workers of dask.distributed: processes of this machine, or whatever a scheduler has.

Of processes of this machine each has one item at a time. A free one is named with the item: dask takes items to be as
short as others were, and would let them wait for a process that already has their parts. An item whose process ends is
done again after all others, alone, and given up after its third. A scheduler elsewhere tries again by its own rule
(four times, unless it is told otherwise), and gets such an item once more at the end.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import signal
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Future, LocalCluster, Nanny, Status, Worker, WorkerPlugin, as_completed
from distributed.comm import get_address_host_port
from distributed.diagnostics import SchedulerPlugin
from distributed.scheduler import KilledWorker, NoValidWorkerError, NoWorkerError, Scheduler
from tqdm import tqdm

from graphs.foundation.engine import UNGUARDED, Item, Killed, Result, Workers
from graphs.foundation.errors import InputError, reason
from graphs.foundation.parcels import Sender, packed, unpacked
from graphs.foundation.torch_threads import limit_torch_threads

TRIES_ALONE = {True: 2, False: 1}  # of items whose process ended; by whether the processes are this machine's
WAIT = 5.0  # seconds for a scheduler to answer
AHEAD = 64  # items at least that a scheduler elsewhere has at a time
PER_THREAD = 4  # and of each of its threads
ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("graphs", "envs", "placers", "training", "evaluation")
KILLED = Killed("its worker process ended each time before it was done (killed, out of memory?)")
BEGINNINGS = 4  # of a process that is killed before it has begun
KILLED_EARLY = "no worker process could begin: each was killed while it started (out of memory?); take fewer workers"
NONE_LEFT = "all worker processes ended, and none could begin again (out of memory?); run the same with fewer workers"
BEGINNING = (Status.init, Status.starting)  # of a nanny; one that runs restarts by itself, one that closes must not
UNKNOWN_SIGNAL = 255  # dask's exit code
RAISED = "raised"
HERE = "127.0.0.1"  # where processes of this machine listen: dask runs what whoever reaches them sends
CONFIG = {
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.no-workers-timeout": "10m",  # of an item that no process takes, since none can begin again
    "distributed.scheduler.worker-ttl": None,  # compiled code that holds the interpreter for long is not dead
    "distributed.worker.daemon": False,  # processes of workers may have processes of their own
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.deploy.lost-worker-timeout": "24h",  # one that begins again slowly is not lost
    "distributed.comm.timeouts.connect": "300s",  # processes begin slowly on a busy machine
    "distributed.admin.large-graph-warning-threshold": "1TB",
}


@contextlib.contextmanager
def on_dask(workers: Workers, shared: tuple[type, ...]) -> Iterator[DaskEngine]:
    """An engine on as many processes of this machine, which end with the context, or on a scheduler's.

    Raises InputError if no process could begin, or no scheduler answers.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters of it is raised
    with dask.config.set(CONFIG), contextlib.ExitStack() as stack:
        if isinstance(workers, str):
            cluster, client = None, stack.enter_context(_client(workers))
        else:
            cluster = _started(workers)
            stack.callback(_end, cluster)
            client = stack.enter_context(Client(cluster, set_as_default=False))
        yield DaskEngine(client, shared, workers, cluster)


def check_scheduler(address: str) -> None:
    """Raise InputError if no dask scheduler answers at an address."""
    with _client(address):
        pass


class DaskEngine:
    """Does items on the workers of a client."""

    def __init__(
        self, client: Client, shared: tuple[type, ...], workers: Workers, cluster: LocalCluster | None
    ) -> None:
        self._client, self._workers, self._cluster = client, workers, cluster
        self._sender: Sender[Future] = Sender(shared, lambda data: self._submit(_sent, data))
        self._room, self._asked = 0, -WAIT

    def results(self, do: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[Item, Result | Killed]]:
        """As `Engine.results`."""
        lost: list[Item] = []
        for item, result in self._done(do, items, alone=False):
            if result is KILLED:
                lost.append(item)
            else:
                yield item, result
        for item in lost:
            for _ in range(TRIES_ALONE[isinstance(self._workers, int)]):
                ((_, result),) = self._done(do, [item], alone=True)
                if result is not KILLED:
                    break
            yield item, result

    def _done(
        self, do: Callable[[Item], Result], items: Sequence[Item], *, alone: bool
    ) -> Generator[tuple[Item, Result | Killed]]:
        """Each item with its result, KILLED, or why it cannot be sent."""
        waiting, running = deque(items), dict[str, tuple[Item, Future, str | None]]()
        finished = as_completed(loop=self._client.loop, raise_errors=False)
        try:
            while waiting or running:
                while waiting and len(running) < (1 if alone else self._places()):
                    item = waiting.popleft()
                    worker = self._free([busy for _, _, busy in running.values()])
                    try:
                        future = self._begun(do, item, worker)
                    except InputError as error:
                        yield item, Killed(str(error))
                    else:
                        running[future.key] = item, future, worker
                        finished.add(future)
                if running:
                    item, future, _ = running.pop(next(finished).key)
                    yield item, self._result(future)
        finally:
            with contextlib.suppress(Exception):  # whatever becomes of a connection that is lost
                self._client.cancel([future for _, future, _ in running.values()], force=True)

    def _free(self, busy: Sequence[str | None]) -> str | None:
        """The address of a process of this machine that has no item; it may be gone by the time that one comes."""
        processes = self._cluster.workers.values() if self._cluster else ()
        return next((nanny.worker_address for nanny in processes if nanny.worker_address not in busy), None)

    def _begun(self, do: Callable[[Item], Result], item: Item, worker: str | None) -> Future:
        parcel = self._sender.parcel((do, item))
        parts = list(parcel.parts), *parcel.parts.values()
        return self._submit(_do, code_digits(), parcel.data, *parts, worker=worker)

    def _result(self, future: Future) -> Any:
        try:
            answer = future.result()
        except KilledWorker:
            self._sender.forget()  # what was being sent may be lost with it
            return KILLED
        except Exception as error:
            if self._cluster and isinstance(error, NoWorkerError | NoValidWorkerError):
                raise InputError(NONE_LEFT) from error
            where = f"the dask scheduler at {self._workers}" if isinstance(self._workers, str) else "dask"
            raise InputError(f"{where} gave an item up ({reason(error)}); run the same again") from error
        outcome, value = unpacked(answer)
        if outcome == RAISED:
            raise value
        return value

    def _submit(self, do: Callable[..., object], *args: object, worker: str | None = None) -> Future:
        return self._client.submit(
            do, *args, key=f"placelab{do.__name__}-{uuid.uuid4().hex}", pure=False, workers=worker,
            allow_other_workers=worker is not None,
        )  # fmt: skip

    def _places(self) -> int:
        """How many items may be on their way."""
        if isinstance(self._workers, int):
            return self._workers
        if time.monotonic() - self._asked > WAIT:
            self._room = max(AHEAD, PER_THREAD * sum(self._client.nthreads().values()))
            self._asked = time.monotonic()
        return self._room


@cache
def code_digits() -> str:
    """Digits of placelab's source in this process: all processes must have the same."""
    digest = hashlib.sha256()
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        if "studies" not in path.parts:  # the wheel is without them
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def _sent(data: bytes) -> bytes:
    """A part, for all workers that ask for it."""
    return data


def _do(code: str, data: bytes, digits: Sequence[str], *parts: bytes) -> bytes:
    """What a worker does: the item's result, or what it raised, pickled."""
    limit_torch_threads()
    try:
        if code != code_digits():
            raise InputError(
                f"the worker on {socket.gethostname()} has another version of placelab; install this one there"
            )
        do, item = unpacked(data, dict(zip(digits, parts, strict=True)))
        answer = "", do(item)
    except Exception as error:
        answer = RAISED, error
    try:
        return packed(answer)
    except InputError as error:
        return packed((RAISED, InputError(f"the result {answer[1]!r} cannot be sent back: {error}")))


class _OwnProcess(WorkerPlugin):  # type: ignore[misc]  # untyped
    """Prepares a process of this machine to be ended by the one that it works for."""

    def setup(self, worker: Worker) -> None:  # noqa: ARG002  # as dask calls it
        """Called in the worker's main thread."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of a terminal
        tqdm.set_lock(threading.RLock())  # its own is for several processes; one that is killed leaves that behind


class _Unnamed(SchedulerPlugin):  # type: ignore[misc]  # untyped
    """Items for a process that has ended go to the next that begins; dask forgets them if no other process is there."""

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:  # noqa: ARG002  # as dask calls it
        """Called when a process has begun, before items that wait for one are looked at."""
        scheduler.set_restrictions({waiting.key: None for waiting in scheduler.unrunnable})


class _Nanny(Nanny):  # type: ignore[misc]  # untyped
    """Begins its process again if that is killed while it begins, as dask does with one that has begun."""

    _signalled = False

    def _on_worker_exit_sync(self, exitcode: int) -> None:
        self._signalled = exitcode < 0 or exitcode == UNKNOWN_SIGNAL
        super()._on_worker_exit_sync(exitcode)

    async def instantiate(self) -> Status:
        """Begin the process. Raises InputError if it is killed each time."""
        for _ in range(BEGINNINGS):
            status = await super().instantiate()
            if status == Status.running or self.status not in BEGINNING or not self._signalled:
                return status
        raise InputError(KILLED_EARLY)


def _started(workers: int) -> LocalCluster:
    """Processes of this machine, with one thread each. Raises InputError if none could begin."""
    try:
        with _no_interrupts():
            return LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, worker_class=_Nanny, host=HERE,
                dashboard_address=f"{HERE}:0", worker_dashboard_address=f"{HERE}:0", memory_limit=0,
                silence_logs=logging.CRITICAL, plugins=[_OwnProcess()],
                scheduler_kwargs={"plugins": [_Unnamed()]},
            )  # fmt: skip
    except RuntimeError as error:
        raise InputError(str(error.__cause__) if isinstance(error.__cause__, InputError) else UNGUARDED) from error


def _end(cluster: LocalCluster) -> None:
    """End all processes at once, also those at work."""
    for nanny in cluster.workers.values():
        nanny.auto_restart = False
        if nanny.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(nanny.pid, signal.SIGKILL)
    cluster.close()


def _client(address: str) -> Client:
    """A connection to a scheduler. Raises InputError if none answers."""
    try:
        with socket.create_connection(get_address_host_port(address, strict=True), WAIT):
            pass  # a client that is refused would try again for long
        return Client(address, timeout=WAIT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no dask scheduler answers at {address!r}; start one with `dask scheduler`, and name it as tcp://HOST:8786"
        ) from error


@contextlib.contextmanager
def _no_interrupts() -> Iterator[None]:
    """A process started within this context ignores Ctrl-C from its beginning."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
