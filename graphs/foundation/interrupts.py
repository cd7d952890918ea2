"""Ctrl-C takes effect between two steps of long work, where the state is consistent."""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Interrupts:
    """Within this context, Ctrl-C sets `requested`, also of contexts around it; a second one interrupts at once."""

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # only there may handlers be set
            self._previous = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._previous)

    def _note(self, _signal: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        around = getattr(self._previous, "__self__", None)
        if isinstance(around, Interrupts):
            around._note(_signal, _frame)
