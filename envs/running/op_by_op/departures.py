"""Departures: what a process sends is held until it has left, and no longer, as in the simulation.

The work of a message tells of a GPU when it is done; gloo's says so to whoever waits for it alone. So on processors
another thread waits, for all but small messages, of which as many as there are take little: they are held until the
step ends. It waits for one after another, as their readers ask for them.
"""

import os
from collections import deque
from dataclasses import dataclass
from functools import cache
from queue import SimpleQueue
from threading import Event, Thread

import torch
from torch import Tensor

from envs.running.op_by_op.links import Work

SMALL = 2**14  # bytes; of less it is not worth while to wake a thread


@dataclass(frozen=True)
class _Awaited:
    """A message for which the other thread waits, and why that was in vain."""

    work: Work
    buffer: Tensor
    failed: list[Exception]


class Departures:
    """The messages of a step that are on their way."""

    def __init__(self, device: torch.device) -> None:
        self._is_polled = device.type != "cpu"
        self._held: deque[tuple[Work, Tensor]] = deque()
        self._failed = list[Exception]()

    def add(self, work: Work, buffer: Tensor) -> None:
        """Hold the buffer of a message, which must not change, until it has left."""
        if self._is_polled or buffer.nbytes < SMALL:
            self._held.append((work, buffer))
        else:
            _awaited().put(_Awaited(work, buffer, self._failed))

    def release(self) -> None:
        """Let go of what has left by now."""
        while self._is_polled and self._held and self._held[0][0].is_completed():
            self._held.popleft()[0].wait()

    def wait(self) -> None:
        """Return when all has left. Raises what the waiting for one has raised."""
        while self._held:
            self._held.popleft()[0].wait()
        if not self._is_polled:
            is_over = Event()
            _awaited().put(is_over)
            is_over.wait()
        if self._failed:
            raise self._failed.pop()


@cache
def _awaited() -> SimpleQueue[_Awaited | Event]:
    """What the other thread of this process waits for; an event is set when it has come to that."""
    queue: SimpleQueue[_Awaited | Event] = SimpleQueue()
    Thread(target=_wait, args=(queue,), name="departures", daemon=True).start()
    return queue


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_awaited.cache_clear)  # where that thread does not run


def _wait(queue: SimpleQueue[_Awaited | Event]) -> None:
    while True:
        _take(queue.get())


def _take(item: _Awaited | Event) -> None:
    """In a function of its own, so that nothing is held while the next one is awaited."""
    if isinstance(item, Event):
        item.set()
        return
    try:
        item.work.wait()
    except Exception as error:  # which the step raises
        item.failed.append(error)
