"""A sweep: runs of one recipe with other values of some keys, which Optuna chooses by how good earlier runs were.

Each trial is a run folder of its own. What is known of all trials is in Optuna's journal next to them, so that a sweep
that was stopped, even by `kill -9`, resumes: a trial that was begun resumes from its own last checkpoint.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphs.files.load import load_graph
from graphs.foundation.errors import InputError
from graphs.foundation.extras import check_installed
from graphs.foundation.files import check_links, locked, named_if_refused, write_whole
from graphs.foundation.progress import progress_bar
from graphs.op_graph import OpGraph
from training.recipe import Recipe, load_recipe
from training.runs.problem_sets import opened_split
from training.runs.run_folder import METRICS, VALIDATION, RunFolder
from training.runs.train import train

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

JOURNAL = "sweep.journal"
NAME = "sweep"
FAILED = "failed.txt"  # in the folder of a trial
LAST = 0.1  # share of a run's updates whose training problems judge it, where it does not validate


@dataclass(frozen=True)
class Over:
    """A key of a recipe and the values that a sweep tries: a range, or some words."""

    key: str
    low: str = ""
    high: str = ""
    is_log: bool = False
    choices: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Over:
        """From "ppo.learning_rate=1e-4..1e-2:log", "ppo.samples=8..32" or "ppo.reward=log|sqrt".

        Raises InputError for what is none of these.
        """
        key, _, values = (part.strip() for part in text.partition("="))
        if key and "|" in values:
            return cls(key, choices=tuple(values.split("|")))
        low, dots, high = values.removesuffix(":log").partition("..")
        if not key or not dots:
            raise InputError(
                f"cannot sweep over {text!r}; expected KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=A|B, such as "
                "ppo.learning_rate=1e-4..1e-2:log"
            )
        try:
            is_ordered = float(low) < float(high) and (not values.endswith(":log") or float(low) > 0)
        except ValueError:
            is_ordered = False
        if not is_ordered:
            raise InputError(
                f"cannot sweep over {text!r}: a range is of two numbers, the lower first, and above 0 if it is :log"
            )
        return cls(key, low, high, values.endswith(":log"))

    @property
    def ends(self) -> tuple[str, ...]:
        """Changes of a recipe that must be possible for all others to be."""
        return tuple(f"{self.key}={value}" for value in self.choices or (self.low, self.high))

    def distribution(self) -> BaseDistribution:
        """What Optuna draws from: whole numbers between whole numbers."""
        # an extra, as everywhere here
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.choices:
            return CategoricalDistribution(self.choices)
        if self.low.lstrip("-").isdecimal() and self.high.lstrip("-").isdecimal():
            return IntDistribution(int(self.low), int(self.high), log=self.is_log)
        return FloatDistribution(float(self.low), float(self.high), log=self.is_log)


@dataclass(frozen=True)
class Trial:
    """A run of a sweep: what it was given, and how good it was."""

    number: int
    changes: dict[str, object]  # by the recipe's key
    value: float  # the smaller the better; NaN of a run that failed or has not ended
    why: str  # it has no value
    folder: Path


@dataclass(frozen=True)
class Sweep:
    """All trials of a sweep, in order, and what they were judged by."""

    trials: tuple[Trial, ...]
    judged_by: str
    command: tuple[str, ...]  # "placelab train ...", but for what the trial changes

    @property
    def best(self) -> Trial | None:
        """The one of the smallest value."""
        ended = [each for each in self.trials if not np.isnan(each.value)]
        return min(ended, key=lambda each: each.value, default=None)

    def command_of(self, trial: Trial) -> str:
        """What trains the same again."""
        words = [word for key, value in trial.changes.items() for word in ("--set", f"{key}={value}")]
        return shlex.join([*self.command, *words])


def sweep(
    what: str, over: Sequence[Over], *, trials: int, out: Path, seed: int = 0, changes: Sequence[str] = ()
) -> Sweep:
    """Train a recipe, changed, as many times with values that Optuna chooses; the best are those of the least value.

    A run is worth the best of its validations or, if these choose no weights, the mean of its last updates on the
    training problems: step time over the lower bound in both cases. A sweep of the same in the same folder resumes; it
    may ask for more trials. Raises InputError, before anything is trained, without Optuna, for a recipe or a key that
    does not fit, and for a folder of another sweep. A run that diverges counts as failed.
    """
    check_installed("optuna", "a sweep")
    recipes = [load_recipe(what, [*changes, end]) for each in over for end in each.ends]
    recipe = load_recipe(what, changes)
    if not over:
        raise InputError("say what to sweep over, such as ppo.learning_rate=1e-4..1e-2:log")
    for each in (recipe, *recipes):
        opened_split(each)
    asked = json.dumps([recipe.to_plain(), [asdict(each) for each in over], seed], sort_keys=True)
    command = ("placelab", "train", what, "--seed", str(seed), *(w for change in changes for w in ("--set", change)))
    with named_if_refused(out):
        out.mkdir(parents=True, exist_ok=True)
    check_links(out)
    with locked(out / JOURNAL):
        study = _study(out, asked)
        graphs: Callable[[str], OpGraph] = cache(load_graph)
        ended = sum(trial.state.is_finished() for trial in study.trials)
        with progress_bar("sweep", unit="trial", total=max(trials, ended), initial=ended) as bar:
            while (trial := _next(study, over, trials, seed)) is not None:
                _run(study, trial, recipe, out, seed, graphs)
                bar.update()
        found = tuple(_told(trial, out) for trial in study.trials)
    judged_by = "validation" if recipe.chooses_weights else "training problems, over the last updates"
    return Sweep(found, judged_by, command)


def _study(out: Path, asked: str) -> Study:
    """The sweep's study, with what was found before. Raises InputError for another sweep's."""
    import optuna  # an extra, as the next, and slow to import
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path = str(out / JOURNAL)
    storage = JournalStorage(JournalFileBackend(path, JournalFileOpenLock(path)))
    study = optuna.create_study(study_name=NAME, storage=storage, direction="minimize", load_if_exists=True)
    if study.user_attrs.get("asked", asked) != asked:
        raise InputError(f"{out} holds a sweep of another recipe, seed or range; choose another `out`")
    study.set_user_attr("asked", asked)
    return study


def _next(study: Study, over: Sequence[Over], trials: int, seed: int) -> FrozenTrial | None:
    """A trial that was begun and has not ended, or a new one; none if there are enough."""
    from optuna.samplers import TPESampler  # an extra, as the next
    from optuna.trial import TrialState

    asked = {each.key: each.distribution() for each in over}
    if begun := study.get_trials(states=(TrialState.RUNNING,)):
        if begun[0].distributions != asked:  # the journal may be anybody's, and what it says would be run
            raise InputError(f"{JOURNAL} is damaged: trial {begun[0].number} is of other keys or ranges; remove it")
        return begun[0]
    count = len(study.trials)
    if count >= trials:
        return None
    study.sampler = TPESampler(seed=seed * 100_003 + count)  # so that a sweep that is resumed draws the same
    number = study.ask(asked).number
    return study.trials[number]


def _run(
    study: Study, trial: FrozenTrial, recipe: Recipe, out: Path, seed: int, graphs: Callable[[str], OpGraph]
) -> None:
    """Train a trial's run to its end, from where it was stopped, and tell the study what it is worth."""
    from optuna.trial import TrialState  # an extra

    folder = _folder(out, trial.number)
    given = [f"{key}={value}" for key, value in trial.params.items()]
    try:
        train(
            recipe.changed(given), out=folder, seed=seed, resume=RunFolder(folder).is_begun, capture=graphs,
            command=f"placelab sweep, trial {trial.number}",
        )  # fmt: skip
        study.tell(trial.number, worth(folder))
    except InputError as error:  # such as a run that diverged; the others go on
        write_whole(folder / FAILED, f"{error}\n")
        study.tell(trial.number, state=TrialState.FAIL)


def worth(folder: Path) -> float:
    """How good a run is, the smaller the better: the best that it validated, or the mean of its last updates.

    What a recipe is evaluated on chooses nothing, here neither.
    """
    validated = folder / VALIDATION
    lines = [json.loads(line) for line in validated.read_text().splitlines()] if validated.is_file() else []
    if any(line["kept"] for line in lines):
        return min(float(line["step_over_bound"]) for line in lines)
    lines = [json.loads(line)["step_over_bound"] for line in (folder / METRICS).read_text().splitlines()]
    last = [value for value in lines[-max(1, int(LAST * len(lines))) :] if value is not None]
    return float(np.mean(last)) if last else float("inf")


def _told(trial: Any, out: Path) -> Trial:
    value = float("nan") if trial.value is None else float(trial.value)
    folder = _folder(out, trial.number)
    failed = folder / FAILED
    why = failed.read_text().strip() if failed.is_file() else ""
    return Trial(trial.number, dict(trial.params), value, why, folder)


def _folder(out: Path, number: int) -> Path:
    return out / f"trial-{number:03}"
