"""Work shared among processes. Some may be killed: all other work is done nevertheless.

Each process is given one piece of work at a time. When one ends before its work is done, as a process does that the
system kills because memory is short, the work is done once more at the end, alone; if its process ends again, that is
the result.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from tqdm import tqdm

from graphs.foundation.errors import InputError

Work = TypeVar("Work")
Result = TypeVar("Result")

GRACE = 1.0  # seconds for a process to save what it has, after Ctrl-C
READY = "ready"
UNGUARDED = (
    "no worker process could begin: a script that uses several workers must be a file, and do so under "
    "`if __name__ == '__main__':`"
)


@dataclass(frozen=True)
class Killed:
    """What became of work whose process ended twice before it was done."""

    reason: str  # a sentence


def check_guarded() -> None:
    """Raise InputError in a process that is only about to begin: it runs the script again, which should be guarded."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as multiprocessing itself tells
        raise InputError(UNGUARDED)


def shared(
    works: Sequence[Work], do: Callable[[Work], Result], workers: int, begin: Callable[[], object]
) -> Iterator[tuple[Work, Result | Killed]]:
    """Do the works in N processes, and yield each with its result when it is done.

    Each process calls `begin` first. Closing the generator, and Ctrl-C, end all processes at once. Raises InputError
    if no process could begin, because the script that asks for them lacks its guard.
    """
    team: _Team[Work, Result] = _Team(do, begin)
    try:
        lost: list[Work] = []
        for work, result in team.do(works, workers):
            if isinstance(result, Killed):
                lost.append(work)
            else:
                yield work, result
        for work in lost:
            team.end()
            yield from team.do([work], 1)
    finally:
        team.end()


class _Team(Generic[Work, Result]):
    """Processes that do one kind of work."""

    def __init__(self, do: Callable[[Work], Result], begin: Callable[[], object]) -> None:
        self._serve = (do, begin)
        self._all: list[_Process] = []
        self._began = False

    def do(self, works: Sequence[Work], workers: int) -> Iterator[tuple[Work, Result | Killed]]:
        """Each work with its result, or how its process ended."""
        waiting, idle, busy = deque(works), list(self._all), dict[Connection, tuple[_Process, Work]]()
        while waiting or busy:
            while waiting and len(busy) < workers:
                process, work = idle.pop() if idle else self._new(), waiting.popleft()
                if reason := process.give(work):
                    idle.append(process)
                    yield work, Killed(reason)
                else:
                    busy[process.pipe] = process, work
            for pipe in wait(list(busy)) if busy else ():
                assert isinstance(pipe, Connection)
                process, work = busy[pipe]
                answer = process.answer()
                self._began |= process.began
                if answer is None:
                    continue
                del busy[pipe]
                if isinstance(answer, Killed):
                    self._all.remove(process)
                    if not self._began and not process.signalled:
                        raise InputError(UNGUARDED)
                else:
                    idle.append(process)
                yield work, answer

    def end(self) -> None:
        """End all processes, also those at work."""
        until = time.monotonic() + GRACE
        for process in self._all:
            process.pipe.close()
        for process in self._all:
            process.end(until)
        self._all.clear()

    def _new(self) -> _Process:
        process = _Process(*self._serve)
        self._all.append(process)
        return process


class _Process:
    """A process, and the pipe to it; it ends when the pipe is closed."""

    def __init__(self, do: Callable[[Any], object], begin: Callable[[], object]) -> None:
        # forking a process that runs threads, as numerical libraries do, may hang it
        context = multiprocessing.get_context("spawn")
        self.began = False
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, do, begin))
        with _no_interrupts():
            self._process.start()
        theirs.close()

    def give(self, work: object) -> str:
        """Send it work; returns why, in a sentence, if that cannot be sent."""
        try:
            self.pipe.send(work)
        except ConnectionError:
            return ""  # it has ended, as its answer will tell
        except Exception as error:  # whatever an object raises that is no plain data
            return f"it cannot be given to another process: {error}"
        return ""

    def answer(self) -> Any:
        """The result of its work, how it ended, or None if it has only begun."""
        try:
            result = self.pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            return Killed(self._ending())
        if result == READY:
            self.began = True
            return None
        return result

    @property
    def signalled(self) -> bool:
        """Whether it was ended by a signal."""
        return (self._process.exitcode or 0) < 0

    def end(self, until: float) -> None:
        """End it, by a signal if it does not end by itself until some moment."""
        self._process.join(max(0.0, until - time.monotonic()))
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _ending(self) -> str:
        code = self._process.exitcode or 0
        if code >= 0:
            return f"it ended its process (exit code {code})"
        return f"its process was killed (signal {-code}{', out of memory?' if code == -signal.SIGKILL else ''})"


def _serve(pipe: Connection, do: Callable[[Any], object], begin: Callable[[], object]) -> None:
    """What a process does until the pipe is closed."""
    tqdm.set_lock(threading.RLock())  # progress bars' own locks would outlive a process that is killed
    pipe.send(READY)
    begin()
    with contextlib.suppress(EOFError, ConnectionError, KeyboardInterrupt):
        while True:
            pipe.send(do(pipe.recv()))


@contextlib.contextmanager
def _no_interrupts() -> Iterator[None]:
    """What begins within this context ignores Ctrl-C, which reaches all processes of a terminal: the first answers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
