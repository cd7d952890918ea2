"""RunFolder: where a run keeps its recipe, versions, seed, command, metrics and policy."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from pathlib import Path

from torch import Tensor

from graphs.foundation.errors import InputError
from graphs.foundation.files import locked, write_whole
from placers.learned.policy_file import META, Meta, save_policy
from training.checkpoint import TRAINER, updates_in
from training.metrics_file import METRICS, TENSORBOARD, Metrics, appended_metrics
from training.model_card import model_card
from training.recipe import Recipe, load_recipe

PACKAGES = ("placelab", "torch", "torch-geometric", "numpy", "numba")
CONFIG = "config.toml"


class RunFolder:
    """A folder with `config.toml`, `meta.json`, `command.txt`, `metrics.jsonl`, `card.md`, TensorBoard and a policy."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, recipe: Recipe, command: str) -> RunFolder:
        """A new run, in place of one that had come to nothing. Raises InputError if the folder cannot be written."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(path / TENSORBOARD, ignore_errors=True)
            for left in (METRICS, TRAINER):
                (path / left).unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}") from error
        write_whole(path / "command.txt", f"{command}\n")
        write_whole(path / CONFIG, recipe.to_toml())
        return cls(path)

    @classmethod
    def reopen(cls, path: Path, updates: int) -> RunFolder:
        """A run to resume, its metrics cut back to the updates that the checkpoint holds."""
        metrics = path / METRICS
        if metrics.exists():
            lines = metrics.read_text().splitlines(keepends=True)
            write_whole(metrics, "".join(lines[:updates]))
        return cls(path)

    def metrics(self) -> AbstractContextManager[Metrics]:
        """Where the numbers of updates are appended."""
        return appended_metrics(self.path)

    def save_policy(self, weights: dict[str, Tensor], meta: Meta) -> None:
        """Write a policy, given by its `state_dict()`, its meta and its card."""
        save_policy(self.path, weights, meta)
        recipe = load_recipe(str(self.path / CONFIG))
        write_whole(self.path / "card.md", model_card(meta, recipe, self.path))


@contextmanager
def held(path: Path) -> Iterator[None]:
    """A run folder, made if need be, that no other process may write to within this context.

    Raises InputError, naming the process, if another one writes to it, and if the folder cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    with locked(path / TRAINER):
        yield


def check_free(path: Path) -> None:
    """Raise InputError if a run cannot be written into a folder, or if a run has already come to something there."""
    check_writable(path)
    if (path / META).exists() or updates_in(path) > 0:
        raise InputError(f"{path} holds a run already; resume it with --resume, or choose another --out")


def check_resumable(path: Path, recipe: Recipe) -> bool:
    """Whether a folder holds a state to resume from; a run that was stopped before its first begins from the start.

    Raises InputError for a folder without a run, or with one of another recipe, or if it cannot be written.
    """
    check_writable(path)
    config = path / CONFIG
    if not config.is_file():
        raise InputError(f"{path} holds no run to resume ({CONFIG} is missing); start one without --resume")
    if load_recipe(str(config)) != recipe:
        raise InputError(f"{path} was started from another recipe than this one (see {config})")
    if not (path / TRAINER).is_file() and (path / META).exists():
        raise InputError(f"{path} holds a policy, but no state to resume its training from ({TRAINER} is missing)")
    return (path / TRAINER).is_file()


def check_writable(path: Path) -> None:
    """Raise InputError for what cannot be a run folder, before the work that its loss would waste."""
    nearest = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not nearest.is_dir():
        raise InputError(f"cannot write the run to {path}: {nearest} is a file; name a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError(f"cannot write the run to {path}: permission denied in {nearest}")


def library_versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    found = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        found[package] = version(package)
    return found
