"""A run on disk: what was asked for, how it went, the policy, and the state from which it is resumed.

    RUN/config.toml           the recipe
    RUN/command.txt           what started the run
    RUN/placer.sha256         of the user's own file that has the placer, if one has
    RUN/network.sha256        likewise, of the one that has the network
    RUN/metrics.jsonl         a line for each update; what loggers keep is next to it
    RUN/validation.jsonl      how the weights did, where they are chosen by validation
    RUN/trainer.safetensors   policy, Adam's moments, baselines, the best placements, counters, averaged weights
    RUN/policy.safetensors    the policy, with meta.json and card.md

The state is one file that is replaced in one step, so that a kill at any moment leaves a state that fits together. The
random numbers of an update follow from (seed, update) and need no storage.
"""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from msgspec.structs import replace
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from graphs.foundation.code_in_files import named_in_file
from graphs.foundation.documents import read_file
from graphs.foundation.errors import InputError, listed, located
from graphs.foundation.files import check_links, locked, named_if_refused, write_whole
from graphs.runtime import FIFO
from placers.learned.lookup import file_sha256
from placers.learned.policy_file import check_weights, save_policy
from placers.learned.policy_meta import META, Meta
from training.learning.ranks import ALONE, Ranks
from training.learning.trainer import Trainer, below
from training.loggers import Logger, Settings, flat, forget_runs, opened
from training.loggers.metrics_file import MetricsFile
from training.recipe import ProblemSet, Recipe, load_recipe
from training.runs.model_card import model_card
from training.runs.selection import Selection

CONFIG, METRICS, VALIDATION, TRAINER = "config.toml", "metrics.jsonl", "validation.jsonl", "trainer.safetensors"


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run. Every rank of a training calls what writes to it, and the first one writes."""

    path: Path
    ranks: Ranks = ALONE

    @property
    def is_begun(self) -> bool:
        """Whether a run was started here."""
        return (self.path / CONFIG).is_file()

    @property
    def order_stage(self) -> RunFolder:
        """What the last stage of the run, if there is one, has of its own: a state and metrics."""
        return RunFolder(self.path / "order", self.ranks)

    @property
    def recipe(self) -> Recipe:
        """What the run was started from. Raises InputError as `load_recipe` does.

        A run from before recipes named an order was trained first come, first served; every later one names it.
        """
        config = self.path / CONFIG
        recipe = load_recipe(str(config))
        if "order" in tomllib.loads(config.read_text()).get("problems", {}):
            return recipe
        return replace(recipe, problems=replace(recipe.problems, order=FIFO.name))

    @property
    def problems(self) -> ProblemSet:
        """What the run was trained and is evaluated on, to be loaded.

        Raises InputError as `recipe`, and for one that names code (`named_in_file`).
        """
        chosen = self.recipe.problems
        with located(self.path / CONFIG):
            for spec in chosen.named:
                named_in_file(spec)
        return chosen

    @property
    def updates(self) -> int:
        """How many updates, of imitation or of the trainer, the state holds; 0 without one, 1 if it is damaged."""
        if not (self.path / TRAINER).is_file():
            return 0
        try:
            _, counters = self.read_state()
            return sum(int(counters.get(name, 0)) for name in ("updates", "imitated"))
        except (InputError, ValueError):
            return 1

    def file_sha256(self, what: Literal["placer", "network"]) -> str:
        """Of the user's own file that had it when the run was started; "" if it is in none."""
        path = self.path / f"{what}.sha256"
        return path.read_text().strip() if path.is_file() else ""

    def check_writable(self) -> None:
        """Raise InputError for what cannot be a run folder, before the work that its loss would waste."""
        path = self.path
        nearest = next(each for each in (path, *path.absolute().parents) if each.exists())
        if not nearest.is_dir():
            raise InputError(f"cannot write the run to {path}: {nearest} is a file; name a folder")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise InputError(f"cannot write the run to {path}: permission denied in {nearest}")
        if path.is_dir():
            check_links(path)

    def check_free(self) -> None:
        """Raise InputError if a run cannot be written here, or if one has already come to something."""
        self.check_writable()
        if (self.path / META).exists() or self.updates > 0:
            raise InputError(f"{self.path} holds a run already; resume it with `resume=True`, or choose another `out`")

    def check_resumable(self, recipe: Recipe) -> bool:
        """Whether there is a state to resume from; a run that was stopped before its first begins from the start.

        Raises InputError for a folder without a run, or with one of another recipe, or if it cannot be written.
        """
        self.check_writable()
        path, has_state = self.path, (self.path / TRAINER).is_file()
        if not self.is_begun:
            raise InputError(f"{path} holds no run to resume ({CONFIG} is missing); start one without `resume`")
        if (begun := self.recipe) != recipe:
            here, there = flat(recipe.to_plain()), flat(begun.to_plain())
            keys = [key for key in (there | here) if there.get(key) != here.get(key)]
            said = listed([f"{key} was {there.get(key)} and is {here.get(key)}" for key in keys])
            raise InputError(
                f"{path} was started from another recipe than this one: {said}; give the same recipe and --set "
                f"({path / CONFIG} has it), or train anew with another `out`"
            )
        for own, digest in (
            (recipe.placer, self.file_sha256("placer")), (recipe.network, self.file_sha256("network")),
        ):  # fmt: skip
            if digest and digest != file_sha256(own):  # runs from before digests of networks were kept have none
                raise InputError(
                    f"{own!r} has changed since {path} was started; restore the file, or start another run"
                )
        if not has_state and (path / META).exists():
            raise InputError(
                f"{path} holds a policy, but no state to resume its training from ({TRAINER} is missing); train in "
                "another folder"
            )
        return has_state

    @contextmanager
    def held(self) -> Iterator[None]:
        """The folder is made if need be, and no other process may write to it within this context.

        Raises InputError, naming the process, if another one writes to it, and if the folder cannot be made.
        """
        if not self.ranks.is_first:
            yield
            return
        with named_if_refused(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path / TRAINER):
            yield

    def start(self, recipe: Recipe, command: str) -> None:
        """Write what a new run begins with, in place of one that had come to nothing. The folder must exist.

        Raises InputError as `check_free`: another process may have begun since that was asked.
        """
        if not self.ranks.is_first:
            return
        self.check_free()
        with named_if_refused(self.path):
            forget_runs(self.path)
            for left in (METRICS, VALIDATION, TRAINER):
                (self.path / left).unlink(missing_ok=True)
            shutil.rmtree(self.order_stage.path, ignore_errors=True)
        write_whole(self.path / "command.txt", f"{command}\n")
        for what, own in (("placer", recipe.placer), ("network", recipe.network)):
            if digits := file_sha256(own):
                write_whole(self.path / f"{what}.sha256", f"{digits}\n")
        write_whole(self.path / CONFIG, recipe.to_toml())

    @contextmanager
    def metrics(self, loggers: Sequence[str], settings: Settings) -> Iterator[Sequence[Logger]]:
        """What each update's metrics are written to, closed at the end: `metrics.jsonl`, and loggers by name.

        Raises InputError, naming the file, if it cannot be written, and as `loggers.opened`.
        """
        if not self.ranks.is_first:
            yield []
            return
        with opened(loggers, self.path, settings) as others, closing(MetricsFile(self.path / METRICS)) as lines:
            yield [lines, *others]

    def write_validated(self, selection: Selection) -> None:
        """Write what a run's weights made of the validation problems, a line each time."""
        if self.ranks.is_first:
            lines = [f"{json.dumps(asdict(each))}\n" for each in selection.validated]
            write_whole(self.path / VALIDATION, "".join(lines))

    def finish(self, recipe: Recipe, meta: Meta, weights: dict[str, Tensor]) -> None:
        """Write a policy, given by its `state_dict()`, its meta and its card."""
        if self.ranks.is_first:
            save_policy(self.path, weights, meta)
            write_whole(self.path / "card.md", model_card(meta, recipe, self.path))

    def save(self, trainer: Trainer, selection: Selection | None = None) -> None:
        """Write everything that a trainer, and a selection among its weights, need to be resumed."""
        tensors = {f"policy.{key}": value for key, value in trainer.policy.state_dict().items()}
        for index, state in trainer.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{index}.{key}": value for key, value in state.items()}
        own, counters = trainer.state()
        selected = selection.state() if selection else {}
        if self.ranks.is_first:
            self.write_state(tensors | own | selected, counters)

    def restore(self, trainer: Trainer, selection: Selection | None = None) -> None:
        """Put the trainer, and a selection among its weights, where the saved ones stopped; cut the metrics to that.

        Without a state they stay at their start. Raises InputError if the file is damaged, or of another run or
        network.
        """
        path, metrics = self.path / TRAINER, self.path / METRICS
        if path.is_file():
            tensors, counters = self.read_state()
            with located(path):
                trainer.restore(tensors, counters)
            if selection:
                selection.restore(tensors)
            try:
                trainer.policy.load_state_dict(below("policy.", tensors))
            except RuntimeError as error:
                raise InputError(
                    f"{path} holds another network than the recipe's; start the run again in another folder"
                ) from error
            check_weights(path, trainer.policy.state_dict())
            state = trainer.optimizer.state_dict()
            for key, value in below("adam.", tensors).items():
                index, name = key.split(".")
                state["state"].setdefault(int(index), {})[name] = value
            trainer.optimizer.load_state_dict(state)
        if self.ranks.is_first and metrics.exists():
            lines = metrics.read_text().splitlines(keepends=True)
            write_whole(metrics, "".join(lines[: trainer.updates]))

    def write_state(self, tensors: dict[str, Tensor], counters: dict[str, str]) -> None:
        """Replace the state of the run in one step; equal states are equal bytes."""
        write_whole(self.path / TRAINER, _with_sorted_metadata(save(tensors, counters)))

    def read_state(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """What `write_state` wrote. Raises InputError if the file is missing or damaged."""
        path = self.path / TRAINER
        raw = read_file(path, "start the run again in another folder")
        try:
            with safe_open(path, "pt") as file:
                counters = file.metadata() or {}
            return load(raw), counters
        except (OSError, SafetensorError) as error:
            raise InputError(f"{path}: damaged ({error}); start the run again in another folder") from error


def _with_sorted_metadata(content: bytes) -> bytes:
    """A safetensors file with its metadata in order; the library writes them in that of a hash table, by chance."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at multiples of 8 bytes
    return len(text).to_bytes(8, "little") + text + content[8 + length :]
