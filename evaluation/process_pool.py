"""Jobs shared among processes. Some processes may be killed: all other jobs are done nevertheless.

Each process is given one job at a time. When one ends before its job is done, as a process does that the system kills
because memory is short, the job is done once more at the end, alone; if its process ends again, that is the result.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from tqdm import tqdm

from graphs.foundation.errors import InputError

Job = TypeVar("Job")
Result = TypeVar("Result")

GRACE = 1.0  # seconds for a process to save what it has, after Ctrl-C
UNGUARDED = (
    "no worker process could begin: a script that uses several workers must be a file, and do so under "
    "`if __name__ == '__main__':`"
)


@dataclass(frozen=True)
class Killed:
    """What became of a job whose process ended twice before it was done."""

    reason: str  # a sentence
    by_signal: bool = False


class _Ready:
    """What a process sends first."""


@dataclass(frozen=True)
class _Raised:
    """What a job raised instead of giving a result."""

    error: Exception


def check_guarded() -> None:
    """Raise InputError in a process that is only about to begin: it runs the script again, which should be guarded."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as multiprocessing itself finds out
        raise InputError(UNGUARDED)


def in_processes(
    do: Callable[[Job], Result], jobs: Sequence[Job], workers: int, begin: Callable[[], object] | None = None
) -> Generator[tuple[Job, Result | Killed]]:
    """Do the jobs, as many at a time as there are workers, and yield each with its result when it is done.

    Each process calls `begin` first, if there is one. Closing the generator, Ctrl-C, and any error of `do`, which is
    raised here, end all processes at once. Raises InputError if no process could begin, because the script that asks
    for them lacks its guard.
    """
    pool: _Pool[Job, Result] = _Pool(do, begin)
    try:
        lost: list[Job] = []
        for job, result in pool.do(jobs, workers):
            if isinstance(result, Killed):
                lost.append(job)
            else:
                yield job, result
        for job in lost:
            pool.end()
            yield from pool.do([job], 1)
    finally:
        pool.end()


class _Pool(Generic[Job, Result]):
    """Processes that do one kind of job."""

    def __init__(self, do: Callable[[Job], Result], begin: Callable[[], object] | None) -> None:
        self._serve = (do, begin)
        self._all: list[_Process] = []
        self._began = False

    def do(self, jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, Result | Killed]]:
        """Each job with its result, or how its process ended."""
        waiting, idle, busy = deque(jobs), list(self._all), dict[Connection, tuple[_Process, Job]]()
        while waiting or busy:
            while waiting and len(busy) < workers:
                if not idle:
                    idle.append(_Process(*self._serve))
                    self._all.append(idle[0])
                process, job = idle.pop(), waiting.popleft()
                if reason := process.give(job):
                    idle.append(process)
                    yield job, Killed(reason)
                else:
                    busy[process.pipe] = process, job
            for pipe in wait(list(busy)) if busy else ():
                assert isinstance(pipe, Connection)
                process, job = busy[pipe]
                answer = process.answer()
                if isinstance(answer, _Ready):
                    self._began = True
                    continue
                del busy[pipe]
                if isinstance(answer, Killed):
                    self._all.remove(process)
                    if not self._began and not answer.by_signal:
                        raise InputError(UNGUARDED)
                elif isinstance(answer, _Raised):
                    raise answer.error
                else:
                    idle.append(process)
                yield job, answer

    def end(self) -> None:
        """End all processes, also those at work."""
        until = time.monotonic() + GRACE
        for process in self._all:
            process.pipe.close()
        for process in self._all:
            process.end(until)
        self._all.clear()


class _Process:
    """A process, and the pipe to it; it ends when the pipe is closed."""

    def __init__(self, do: Callable[[Any], object], begin: Callable[[], object] | None) -> None:
        # forking a process that runs threads, as numerical libraries do, may hang it
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, do, begin))
        with _no_interrupts():
            self._process.start()
        theirs.close()

    def give(self, job: object) -> str:
        """Send it a job; returns why, in a sentence, if that cannot be sent."""
        try:
            self.pipe.send(job)
        except ConnectionError:
            return ""  # it has ended, as its answer will say
        except Exception as error:  # pickling raises anything, for objects that are no plain data
            return f"it cannot be given to another process: {error}"
        return ""

    def answer(self) -> Any:
        """The result of its job, what that raised, how the process ended, or that it has only begun."""
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join()
        code = self._process.exitcode or 0
        if code >= 0:
            return Killed(f"it ended its process (exit code {code})")
        memory = ", out of memory?" if code == -signal.SIGKILL else ""
        return Killed(f"its process was killed (signal {-code}{memory})", by_signal=True)

    def end(self, until: float) -> None:
        """End it, by a signal if it has not ended by itself by this time of the monotonic clock."""
        self._process.join(max(0.0, until - time.monotonic()))
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(pipe: Connection, do: Callable[[Any], object], begin: Callable[[], object] | None) -> None:
    """What a process does until the pipe is closed."""
    answer: object
    tqdm.set_lock(threading.RLock())  # progress bars' own locks would outlive a process that is killed
    pipe.send(_Ready())
    if begin is not None:
        begin()
    with contextlib.suppress(EOFError, ConnectionError, KeyboardInterrupt):
        while True:
            job = pipe.recv()
            try:
                answer = do(job)
            except Exception as error:
                answer = _Raised(error)
            pipe.send(answer)


@contextlib.contextmanager
def _no_interrupts() -> Iterator[None]:
    """A process started within this context ignores Ctrl-C, which reaches all of a terminal: this one handles it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
