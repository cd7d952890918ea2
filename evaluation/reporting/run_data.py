"""What a run folder holds, read for a report: any of it may be missing."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from evaluation.drawing.learning_curves import Metrics
from evaluation.records.run_files import EvaluationFile, load_evaluation
from graphs.foundation.documents import read_file
from graphs.foundation.errors import InputError
from graphs.foundation.files import check_links

MARKS = ("config.toml", "meta.json", "evaluation.json")  # a folder with one of these is a run's


@dataclass(frozen=True)
class RunData:
    """A run folder; each of its files is read when it is asked for.

    Raises InputError, naming the file, for one that cannot be read.
    """

    folder: Path

    @classmethod
    def of(cls, folder: Path) -> RunData:
        """The run in a folder.

        Raises InputError if there is no such folder, no run in it, or a link in it that leads out of it.
        """
        if folder.is_file():
            raise InputError(f"{folder} is a file; name the folder that `placelab train` wrote")
        if not folder.is_dir():
            raise InputError(f"run folder {folder} does not exist; `placelab train --out {folder}` makes one")
        if not any((folder / name).is_file() for name in MARKS):
            raise InputError(f"{folder} holds no run of `placelab train`; name the folder that it wrote")
        check_links(folder)
        return cls(folder)

    @property
    def name(self) -> str:
        """The folder's."""
        return self.folder.resolve().name

    @cached_property
    def meta(self) -> dict[str, Any]:
        """What `meta.json` says of the policy: placer, seed, versions."""
        path = self.folder / "meta.json"
        try:
            return dict(json.loads(_text(path) or "{}"))
        except (json.JSONDecodeError, TypeError, ValueError) as error:
            raise InputError(f"{path}: {error}") from error

    @cached_property
    def config(self) -> str:
        """All settings, as TOML."""
        return _text(self.folder / "config.toml")

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings by key, those of sections as "ppo.updates"."""
        try:
            return dict(_flat(tomllib.loads(self.config)))
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{self.folder / 'config.toml'}: {error}") from error

    @cached_property
    def command(self) -> str:
        """That started the run."""
        return _text(self.folder / "command.txt")

    @cached_property
    def metrics(self) -> Metrics:
        """A record for each update of the training."""
        return _lines(self.folder / "metrics.jsonl")

    @cached_property
    def validation(self) -> Metrics:
        """A record for each time that weights were validated."""
        return _lines(self.folder / "validation.jsonl")

    @cached_property
    def evaluation(self) -> EvaluationFile | None:
        """The policy and its rivals on graphs that it never saw."""
        return _evaluation(self.folder / "evaluation.json")

    @cached_property
    def tuning_metrics(self) -> Metrics:
        """A record for each update of fine-tuning."""
        return _lines(self.folder / "finetune" / "metrics.jsonl")

    @cached_property
    def tuned(self) -> EvaluationFile | None:
        """The fine-tuned policy and its rivals on one problem."""
        return _evaluation(self.folder / "finetune" / "evaluation.json")

    @property
    def tensorboard(self) -> str:
        """The command that shows the logs of TensorBoard; empty without such."""
        folder = self.folder / "tensorboard"
        return f"tensorboard --logdir {folder}" if folder.is_dir() else ""


def _flat(table: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in table.items():
        found += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return found


def _evaluation(path: Path) -> EvaluationFile | None:
    return load_evaluation(path) if path.is_file() else None


def _lines(path: Path) -> Metrics:
    """The lines of a metrics file; one cut off at the end, by a run that was killed, is left out."""
    lines = _text(path).splitlines()
    records: list[dict[str, float | None]] = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number < len(lines):
                raise InputError(f"{path}:{number}: {error}") from error
    return records


def _text(path: Path) -> str:
    return read_file(path, "").decode(errors="replace").strip() if path.is_file() else ""
