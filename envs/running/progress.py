"""Progress: processes say every second what they do, so that one which holds up the others is named.

    a process says nothing any more                              it is stopped, or stuck: all are ended
    all wait for one another, and none has begun anything new    no one will: all are ended
    one does something for long, for which others wait           it may only be slow: a warning names it

What a GPU does is known by marks (`envs.running.clock`), as its process is ahead of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the process that starts others need not import PyTorch
    from envs.running.clock import Mark

BEAT = 1.0  # seconds between two times that a process says what it does
PATIENCE = 25.0  # seconds without news


@dataclass(frozen=True)
class Alive:
    """What a process says of itself."""

    begun: int = 0  # how many things it has begun
    what: str = ""  # the latest of them, or what it waits for
    waits: bool = False  # for another process
    steps: int = 0  # that it has ended, of its job
    loss: float = 0.0  # its part of the last one's


class Activity:
    """What this process does; another thread of it says so."""

    def __init__(self) -> None:
        self._noted: deque[tuple[Mark, str, bool]] = deque([(0.0, "", False)])
        self._begun = 0
        self._steps, self._loss = 0, 0.0

    def begin_job(self) -> None:
        """A job begins, of whose steps none has ended."""
        self._steps = 0

    def end_step(self, loss: float) -> None:
        """A step has ended, with this part of its loss."""
        self._steps, self._loss = self._steps + 1, loss

    def note(self, what: str, *, waits: bool = False, after: Mark = 0.0) -> None:
        """It does something, or waits for it, as soon as its device has come to a mark."""
        self._noted.append((after, what, waits))

    def now(self) -> Alive:
        """What it does at the moment."""
        while len(self._noted) > 1 and _is_reached(self._noted[1][0]):
            self._noted.popleft()
            self._begun += 1
        _, what, waits = self._noted[0]
        return Alive(self._begun, what, waits, self._steps, self._loss)


ACTIVITY = Activity()
"""Of this process, which does one job at a time."""


class Watch:
    """What processes that have not answered yet have said; times are seconds by one clock."""

    def __init__(self, ranks: Iterable[int], now: float) -> None:
        self._said = {rank: Alive() for rank in ranks}
        self._heard = dict.fromkeys(self._said, now)
        self._moved = now  # when one of them began something new
        self._warned = False

    def hear(self, rank: int, said: Alive, now: float) -> None:
        """A process has said what it does."""
        self._heard[rank] = now
        if said.begun != self._said[rank].begun:
            self._moved, self._warned = now, False
        self._said[rank] = said

    def leave(self, rank: int, now: float) -> None:
        """A process has answered."""
        del self._said[rank], self._heard[rank]
        self._moved = now

    def silent(self, now: float) -> list[int]:
        """The ranks of those that have said nothing for too long."""
        return [rank for rank, heard in self._heard.items() if now - heard > PATIENCE]

    def wrong(self, now: float) -> str:
        """Why no answer will come, in a sentence; "" while one may."""
        for rank in self.silent(now):
            latest = self._said[rank].what
            return f"process {rank} has said nothing for {PATIENCE:g} seconds" + (latest and f", since {latest}")
        if now - self._moved > PATIENCE and all(said.waits for said in self._said.values()):
            return f"no process goes on: {self.what()}"
        return ""

    def slow(self, now: float) -> str:
        """What others have been waiting for, in a sentence, once; "" if they have not."""
        if self._warned or now - self._moved <= PATIENCE or not any(said.waits for said in self._said.values()):
            return ""
        self._warned = True
        return f"nothing new for {PATIENCE:g} seconds: {self.what()}"

    def reached(self) -> str:
        """How many steps all of them have ended, and the loss of the last; before the first, what one of them does."""
        ended = {said.steps for said in self._said.values()}
        if not (steps := min(ended, default=0)):
            return self.what().partition(", process")[0]
        loss = "" if len(ended) > 1 else f" with a loss of {sum(said.loss for said in self._said.values()):.4g}"
        return f"step {steps} has ended{loss}"

    def what(self) -> str:
        """What each of them does, as far as it is known."""
        doing = [
            f"process {rank} {'waits for' if said.waits else 'does'} {said.what}"
            for rank, said in self._said.items()
            if said.what
        ]
        return ", ".join(doing)


def _is_reached(mark: Mark) -> bool:
    return isinstance(mark, float) or bool(mark.query())
