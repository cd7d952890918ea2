"""TensorBoard: event files in the run folder, `tensorboard --logdir runs` shows them."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from training.loggers import Scalars, Settings
from training.loggers.appended_file import AppendedFile

PACKAGE = "tensorboard"
KEPT = "tensorboard"


def check_access() -> None:
    """Files are always there to be written."""


def build(folder: Path, settings: Settings) -> TensorBoard:  # noqa: ARG001 - a run's settings lie next to its events
    """Events in a folder of the run folder."""
    return TensorBoard(folder / KEPT)


class TensorBoard:
    """Scalars as events, without TensorBoard's own writer, whose thread fails after the fact."""

    def __init__(self, folder: Path) -> None:
        """The file is made when something is written."""
        self._folder = folder
        self._file: AppendedFile | None = None

    def write(self, step: int, record: Scalars) -> None:
        """An event. Raises InputError, naming the file, if it cannot be written."""
        from tensorboard.compat.proto.event_pb2 import Event  # a second to import, as the next two
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        if self._file is None:
            name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}.0"
            self._file = AppendedFile(self._folder / name)
            self._events = RecordWriter(self._file)
            self._events.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        values = [Summary.Value(tag=key, simple_value=value) for key, value in record.items()]
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        self._events.write(event.SerializeToString())

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
