"""Metrics of a run as they come: lines of JSON in `metrics.jsonl`, and to loggers; what was validated."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from graphs.foundation.extras import is_installed
from graphs.foundation.files import write_whole
from training.loggers import Logger, opened
from training.loggers.appended_file import AppendedFile
from training.runs.selection import Validated

METRICS = "metrics.jsonl"
VALIDATION = "validation.jsonl"
DEFAULT_LOGGERS = ("tensorboard",) if is_installed("tensorboard") else ()


@contextmanager
def appended_metrics(folder: Path, loggers: Sequence[Logger] | None = None) -> Iterator[MetricsFile]:
    """Metrics appended to those in a run folder, and given to loggers that are open, or else to the default one.

    Raises InputError, naming the file, if they cannot be written.
    """
    with closing(AppendedFile(folder / METRICS)) as lines:
        if loggers is not None:
            yield MetricsFile(lines, loggers)
            return
        with opened(DEFAULT_LOGGERS, folder, {}) as found:
            yield MetricsFile(lines, found)


def write_validated(folder: Path, validated: Sequence[Validated]) -> None:
    """Write what a run's weights made of the validation problems: lines of JSON in `validation.jsonl`."""
    write_whole(folder / VALIDATION, "".join(f"{json.dumps(asdict(each))}\n" for each in validated))


@dataclass(frozen=True)
class MetricsFile:
    """Lines of JSON, and what else receives each record."""

    lines: AppendedFile
    loggers: Sequence[Logger]

    def write(self, step: int, record: Mapping[str, float]) -> None:
        """Append a record; what is no number, such as a mean of nothing, is null: JSON has no NaN."""
        numbers = {key: value if math.isfinite(value) else None for key, value in record.items()}
        self.lines.write(f"{json.dumps(numbers)}\n".encode())
        for logger in self.loggers:
            logger.write(step, record)
