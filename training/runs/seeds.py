"""Several seeds of one recipe, trained one after the other, each in a run folder of its own."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from graphs.files.load import load_graph
from graphs.foundation.errors import InputError
from placers.learned.learned_placer import PolicyPlacer
from training.loggers import DEFAULT_LOGGERS
from training.recipe import Recipe
from training.runs.problem_sets import opened_split
from training.runs.resources import PLAIN, Resources
from training.runs.run_folder import RunFolder
from training.runs.train import train


@dataclass(frozen=True)
class Trained:
    """The placers that the seeds of a recipe gave, in order."""

    placers: tuple[PolicyPlacer[Any], ...]

    def to_json(self) -> list[str]:
        """The placers' specs."""
        return [placer.name for placer in self.placers]

    def __rich__(self) -> str:
        return "\n".join(self.to_json())


def train_runs(
    recipe: Recipe,
    name: str,
    *,
    out: Path | None,
    seed: int,
    seeds: int,
    command: Sequence[str],
    resume: bool,
    loggers: Sequence[str] = DEFAULT_LOGGERS,
    resources: Resources = PLAIN,
) -> PolicyPlacer[Any] | Trained:
    """Train a recipe with one seed in the folder `out`, or with several from `seed` on in `out-seedN`.

    Without `out` the folders are `runs/NAME-seedN`. Several seeds capture each model once, and with `resume` those
    that have been begun are resumed and the others are begun. `command` trains the recipe, and is kept with a run's
    folder and seed. Raises InputError as `train` does, before the first seed is trained.
    """
    if seeds < 1:
        raise InputError(f"cannot train {seeds} seeds; ask for at least 1")
    several = Path(out) if out else Path("runs") / name
    folders = {each: RunFolder(several.with_name(f"{several.name}-seed{each}")) for each in range(seed, seed + seeds)}
    if out and seeds == 1:
        folders = {seed: RunFolder(several)}
    begun = {each for each, folder in folders.items() if resume and (seeds == 1 or folder.is_begun)}
    if seeds > 1:
        for each, folder in folders.items():
            folder.check_resumable(recipe) if each in begun else folder.check_free()
        opened_split(recipe)
    captured = cache(load_graph) if seeds > 1 else load_graph
    placers = [
        train(
            recipe, out=folder.path, seed=each, resume=each in begun, capture=captured, loggers=loggers,
            resources=resources, command=shlex.join([*command, "--out", str(folder.path), "--seed", str(each)]),
        )
        for each, folder in folders.items()
    ]  # fmt: skip
    return Trained(tuple(placers)) if seeds > 1 else placers[0]
