"""Metrics of a run as they come: lines of JSON in `metrics.jsonl`, and scalars for TensorBoard; what was validated."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from io import FileIO
from pathlib import Path

from graphs.foundation.files import named_if_refused, write_whole
from training.selection import Validated

METRICS = "metrics.jsonl"
VALIDATION = "validation.jsonl"
TENSORBOARD = "tensorboard"


@contextmanager
def appended_metrics(folder: Path) -> Iterator[MetricsFile]:
    """Metrics appended to those in a run folder. Raises InputError, naming the file, if they cannot be written."""
    board = folder / TENSORBOARD / f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}.0"
    with _Lines(folder / METRICS) as lines, _Lines(board) as events:
        yield MetricsFile(lines, events)


def write_validated(folder: Path, validated: Sequence[Validated]) -> None:
    """Write what a run's weights made of the validation problems: lines of JSON in `validation.jsonl`."""
    write_whole(folder / VALIDATION, "".join(f"{json.dumps(asdict(each))}\n" for each in validated))


class MetricsFile:
    """JSON lines and TensorBoard's events; the latter without its writer, whose thread fails after the fact."""

    def __init__(self, lines: _Lines, events: _Lines) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # a second to import, as the next two
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._lines, self._events = lines, RecordWriter(events)
        self._event, self._summary = Event, Summary
        self._events.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())

    def write(self, step: int, record: Mapping[str, float]) -> None:
        """Append a record; what is no number, such as a mean of nothing, is null: JSON has no NaN."""
        numbers = {key: value if math.isfinite(value) else None for key, value in record.items()}
        self._lines.write(f"{json.dumps(numbers)}\n".encode())
        values = [self._summary.Value(tag=key, simple_value=value) for key, value in record.items()]
        event = self._event(wall_time=time.time(), step=step, summary=self._summary(value=values))
        self._events.write(event.SerializeToString())


class _Lines:
    """A file that is appended to without a buffer, so that it fails where it is written and not where it is closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with named_if_refused(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = FileIO(path, "a")

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, content: bytes) -> None:
        with named_if_refused(self._path):
            while content:
                content = content[self._file.write(content) :]
