"""RunFolder: where a run keeps its recipe, versions, seed, command, metrics and policy."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from torch import Tensor

from graphs.errors import InputError
from placers.policies.policy_file import Meta, save_policy
from training.model_card import model_card
from training.recipe import Recipe, load_recipe

PACKAGES = ("placelab", "torch", "torch-geometric", "numpy", "numba")


class RunFolder:
    """A folder with `config.toml`, `meta.json`, `command.txt`, `metrics.jsonl`, `card.md`, TensorBoard and a policy."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, recipe: Recipe, command: str) -> RunFolder:
        """A new run. Raises InputError if the folder holds one already."""
        check_free(path)
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.toml").write_text(recipe.to_toml())
        (path / "command.txt").write_text(f"{command}\n")
        return cls(path)

    @classmethod
    def reopen(cls, path: Path, recipe: Recipe, updates: int) -> RunFolder:
        """A run to go on with, its metrics cut back to the updates that the checkpoint holds.

        Raises InputError if the run was started from another recipe.
        """
        if load_recipe(str(path / "config.toml")) != recipe:
            raise InputError(f"{path} was started from another recipe than this one (see {path / 'config.toml'})")
        folder = cls(path)
        if folder.metrics_file.exists():
            lines = folder.metrics_file.read_text().splitlines(keepends=True)
            folder.metrics_file.write_text("".join(lines[:updates]))
        return folder

    @property
    def metrics_file(self) -> Path:
        """One JSON object per update."""
        return self.path / "metrics.jsonl"

    @contextmanager
    def metrics(self) -> Iterator[MetricsWriter]:
        """A writer of metrics lines and TensorBoard scalars, closed at the end."""
        from torch.utils.tensorboard import SummaryWriter  # a second to import

        board = SummaryWriter(str(self.path / "tensorboard"))
        with self.metrics_file.open("a") as lines:
            try:
                yield MetricsWriter(lines, board)
            finally:
                board.close()

    def save_policy(self, weights: dict[str, Tensor], meta: Meta) -> None:
        """Write a policy, given by its `state_dict()`, its meta and its card."""
        save_policy(self.path, weights, meta)
        recipe = load_recipe(str(self.path / "config.toml"))
        (self.path / "card.md").write_text(model_card(meta, recipe, self.path))


def check_free(path: Path) -> None:
    """Raises InputError if a folder holds a run."""
    if (path / "config.toml").exists():
        raise InputError(f"{path} holds a run already; go on with --resume, or choose another --out")


class MetricsWriter:
    """Writes one record to `metrics.jsonl` and to TensorBoard."""

    def __init__(self, lines: object, board: object) -> None:
        self._lines, self._board = lines, board

    def write(self, step: int, record: Mapping[str, float]) -> None:
        """Append a record; every number of it becomes a scalar."""
        print(json.dumps(record), file=self._lines, flush=True)  # type: ignore[call-overload]
        for key, value in record.items():
            self._board.add_scalar(key, value, step)  # type: ignore[attr-defined]


def library_versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    found = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        found[package] = version(package)
    return found
