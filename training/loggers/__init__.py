"""Loggers: where a run's metrics go in addition to its `metrics.jsonl`. One file, one service.

Each file has `PACKAGE`, what it needs; `KEPT`, what it keeps in a run folder; `check_access()`, which raises an error
if the service cannot be reached, or knows no user; and `build(folder, settings)`, which opens the run there, and opens
the same one again where a run is resumed from its folder.
"""

import importlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Protocol

from graphs.foundation.errors import InputError, reason, unknown
from graphs.foundation.extras import check_installed, is_installed

LOGGERS = ("tensorboard", "wandb", "mlflow")
DEFAULT_LOGGERS = ("tensorboard",) if is_installed("tensorboard") else ()
Scalars = Mapping[str, float]
Settings = Mapping[str, object]  # of the run, by names such as "ppo.learning_rate"


class Logger(Protocol):
    """What receives metrics."""

    def write(self, step: int, record: Scalars) -> None:
        """Take the metrics of an update; one that is no number, such as a mean of nothing, is left out or shown so."""
        ...

    def close(self) -> None:
        """The run has ended, or was stopped."""
        ...


def check_loggers(names: Sequence[str]) -> None:
    """Raise InputError for a name that is none, and for one whose package is not installed."""
    for name in names:
        if name not in LOGGERS:
            raise InputError(unknown("logger", name, LOGGERS))
        check_installed(_file_of(name).PACKAGE, f"logger {name}")


def check_access(names: Sequence[str]) -> None:
    """Before long work: raise InputError as `check_loggers`, and for a service that will take no run."""
    check_loggers(names)
    for name in names:
        with _refusals(name):
            _file_of(name).check_access()


def forget_runs(folder: Path) -> None:
    """Remove what loggers keep in a folder: what is logged from it next is another run."""
    for name in LOGGERS:
        kept = folder / _file_of(name).KEPT
        if kept.is_dir():
            shutil.rmtree(kept, ignore_errors=True)
        else:
            kept.unlink(missing_ok=True)


@contextmanager
def opened(names: Sequence[str], folder: Path, settings: Settings) -> Iterator[tuple[Logger, ...]]:
    """Loggers by name, for the run in a folder; closed at the end.

    Raises InputError as `check_loggers` does, and for a service that refuses the run, such as one that knows no user.
    """
    check_loggers(names)
    with ExitStack() as stack:
        found = []
        for name in names:
            with _refusals(name):
                logger: Logger = _file_of(name).build(folder, settings)
            stack.callback(logger.close)
            found.append(logger)
        yield tuple(found)


def earlier_run(kept: Path) -> str | None:
    """The service's name of the run that a file holds, if it is there; its folder is made if need be."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    return kept.read_text().strip() if kept.is_file() else None


def _file_of(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")


@contextmanager
def _refusals(name: str) -> Iterator[None]:
    """Turn what a service raises into InputError."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # whatever it is
        raise InputError(f"logger {name}: {reason(error)}") from error


def flat(settings: Settings, before: str = "") -> dict[str, object]:
    """Nested settings as names with dots: "ppo.learning_rate"."""
    found: dict[str, object] = {}
    for name, value in settings.items():
        found |= flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return found
