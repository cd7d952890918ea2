"""A run folder: `config.toml`, `meta.json`, `command.txt`, `metrics.jsonl`, `card.md`, TensorBoard and a policy.

Where weights are chosen by validation, `validation.jsonl` says how they did.
"""

import os
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace
from torch import Tensor

from graphs.foundation.code_in_files import named_in_file
from graphs.foundation.errors import InputError, located
from graphs.foundation.files import check_links, locked, named_if_refused, write_whole
from graphs.runtime import FIFO
from placers.learned.policy_file import save_policy
from placers.learned.policy_meta import META, Meta
from training.loggers import forget_runs
from training.recipe import ProblemSet, Recipe, load_recipe
from training.runs import order_stage
from training.runs.checkpoint import TRAINER, updates_in
from training.runs.metrics_file import METRICS, VALIDATION
from training.runs.model_card import model_card

CONFIG = "config.toml"


def start_run(path: Path, recipe: Recipe, command: str) -> None:
    """Write what a new run begins with, in place of one that had come to nothing, into a folder that exists."""
    with named_if_refused(path):
        forget_runs(path)
        for left in (METRICS, VALIDATION, TRAINER):
            (path / left).unlink(missing_ok=True)
        shutil.rmtree(path / order_stage.FOLDER, ignore_errors=True)
    write_whole(path / "command.txt", f"{command}\n")
    write_whole(path / CONFIG, recipe.to_toml())


def recipe_of(path: Path) -> Recipe:
    """The recipe of the run in a folder. Raises InputError as `load_recipe` does.

    A run from before recipes named an order was trained first come, first served; every later one names it.
    """
    config = path / CONFIG
    recipe = load_recipe(str(config))
    if "order" in tomllib.loads(config.read_text()).get("problems", {}):
        return recipe
    return replace(recipe, problems=replace(recipe.problems, order=FIFO.name))


def problems_of(path: Path) -> ProblemSet:
    """What the run in a folder was trained and is evaluated on, to be loaded.

    Raises InputError as `recipe_of`, and for a recipe that names code (`named_in_file`).
    """
    chosen = recipe_of(path).problems
    with located(path / CONFIG):
        for spec in chosen.named:
            named_in_file(spec)
    return chosen


def cut_metrics(path: Path, updates: int) -> None:
    """Cut the metrics of a run that is resumed back to the updates that its checkpoint holds."""
    metrics = path / METRICS
    if metrics.exists():
        lines = metrics.read_text().splitlines(keepends=True)
        write_whole(metrics, "".join(lines[:updates]))


def finish_run(path: Path, recipe: Recipe, meta: Meta, weights: dict[str, Tensor]) -> None:
    """Write a policy, given by its `state_dict()`, its meta and its card."""
    save_policy(path, weights, meta)
    write_whole(path / "card.md", model_card(meta, recipe, path))


@contextmanager
def held(path: Path) -> Iterator[None]:
    """A run folder, made if need be, that no other process may write to within this context.

    Raises InputError, naming the process, if another one writes to it, and if the folder cannot be made.
    """
    with named_if_refused(path):
        path.mkdir(parents=True, exist_ok=True)
    with locked(path / TRAINER):
        yield


def check_free(path: Path) -> None:
    """Raise InputError if a run cannot be written into a folder, or if a run has already come to something there."""
    check_writable(path)
    if (path / META).exists() or updates_in(path) > 0:
        raise InputError(f"{path} holds a run already; resume it with `resume=True`, or choose another `out`")


def check_resumable(path: Path, recipe: Recipe) -> bool:
    """Whether a folder holds a state to resume from; a run that was stopped before its first begins from the start.

    Raises InputError for a folder without a run, or with one of another recipe, or if it cannot be written.
    """
    check_writable(path)
    config = path / CONFIG
    if not config.is_file():
        raise InputError(f"{path} holds no run to resume ({CONFIG} is missing); start one without `resume`")
    if recipe_of(path) != recipe:
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
    if path.is_dir():
        check_links(path)
