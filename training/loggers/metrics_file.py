"""A run's metrics as they come, in lines of JSON; every run has them, whatever its loggers."""

import json
import math
from pathlib import Path

from training.loggers import Scalars
from training.loggers.appended_file import AppendedFile


class MetricsFile:
    """A `Logger` of the numbers alone: what is no number, such as a mean of nothing, is null, as JSON has no NaN."""

    def __init__(self, path: Path) -> None:
        """Raises InputError, as all of it does, if the file cannot be written."""
        self._file = AppendedFile(path)

    def write(self, step: int, record: Scalars) -> None:  # noqa: ARG002 - which the record names itself
        """Append a record."""
        numbers = {key: value if math.isfinite(value) else None for key, value in record.items()}
        self._file.write(f"{json.dumps(numbers)}\n".encode())

    def close(self) -> None:
        """Close the file."""
        self._file.close()
