"""Searches: step by step, until a number of simulations or seconds, or Ctrl-C; they can be saved and resumed."""

import hashlib
import io
import json
import time
import zipfile
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, Self, cast

import numpy as np

from envs.plans.placer_result import PlacerResult
from envs.prepared_problem import Incumbent
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.foundation.files import check_writable, write_whole
from graphs.foundation.interrupts import Interrupts
from graphs.foundation.progress import progress_bar
from graphs.problem import STEP_TIME, Problem
from graphs.runtime import IDEAL
from placers.search.evaluations import Evaluations
from placers.search.moved_back import left_to_move_back, move_back


class Search(Protocol):
    """A search between two of its steps."""

    generator: np.random.Generator
    evaluations: Evaluations
    notes: tuple[str, ...]  # what it had to leave out, in sentences
    saved: tuple[str, ...]  # which of its attributes, arrays or numbers, a file keeps in addition to these

    def step(self, elapsed: float, left: int) -> None:
        """Continue for a fraction of a second: by one simulation or more, but at most `left`.

        `elapsed` is the share of the time limit that is over, 0 if there is none. How many simulations one step makes
        must change no result.
        """
        ...


class SearchPlacer(Named, ABC):
    """A placer that searches; these are knobs of all such placers."""

    seconds: float  # a limit of processor seconds, in addition to that of simulations
    file: str  # where to save the search when it ends or is stopped, and to resume it from
    order: bool  # whether it changes the order, too

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            placer = type(self).__module__.rpartition(".")[2]
            raise InputError(f"{placer}: seconds is {self.seconds}; expected a number > 0")

    def within(self, seconds: float) -> Self:
        """As `Stoppable.within`."""
        return cast("Self", replace(cast("Any", self), seconds=seconds))  # each is a frozen dataclass

    @abstractmethod
    def begin(self, problem: Problem, seed: int, budget: int) -> Search:
        """A search that has done little more than to find where to begin."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The best plan seen in exactly `budget` simulations, or in fewer if the seconds are over before.

        With a file the search resumes from there if it exists. A search that was stopped and resumed ends where it
        would have ended. Where a model runs already, the last simulations are those of
        `placers.search.moved_back`, as many as it has a use for.
        Raises InputError for a file of another search, and KeyboardInterrupt, once saved, after
        Ctrl-C.
        """
        started = time.process_time()
        path = Path(self.file) if self.file else None
        check_writable(path)
        label = _label(self.name, problem, seed, budget)
        simulations, seconds = left_to_move_back(problem, budget, self.seconds)
        last, limit = budget - simulations, self.seconds - seconds
        with Interrupts() as interrupts, progress_bar(self.name, total=budget, unit="simulation", leave=False) as bar:
            search = self.begin(problem, seed, last)
            if path is not None and path.exists():
                _load(search, path, label)
            evaluations, notes = search.evaluations, search.notes
            prepared = time.process_time() - started
            if budget > 0 and prepared >= self.seconds:
                notes = (
                    *notes,
                    f"{self.name}: nothing was searched, since preparing took {prepared:.2g} s of {self.seconds:g} s",
                )
            while evaluations.simulations < last and not interrupts.requested:
                elapsed = time.process_time() - started
                if elapsed >= limit:
                    break
                search.step(elapsed / limit, last - evaluations.simulations)
                bar.update(evaluations.simulations - bar.n)
            if not interrupts.requested:
                move_back(evaluations, problem, budget, started + self.seconds)
        if path is not None:
            _save(search, path, label)
        if interrupts.requested:
            kept = f"; saved in {path}, and the same command resumes it" if path else ""
            raise KeyboardInterrupt(
                f"{self.name}: stopped after {evaluations.simulations} of {budget} simulations{kept}"
            )
        return PlacerResult.of_units(
            problem, evaluations.best, self.name, seed,
            simulations=evaluations.simulations, curve=evaluations.curve, notes=notes, order=evaluations.order,
        )  # fmt: skip


def _label(name: str, problem: Problem, seed: int, budget: int) -> str:
    asked = f"{name} {problem.graph.fingerprint} {problem.cluster.fingerprint} {problem.optimizer} {seed} {budget}"
    if problem.objective != STEP_TIME:
        asked += f" {problem.objective}"
    if problem.runtime != IDEAL:
        asked += f" {problem.runtime.name}"
    costs = b"" if problem.op_seconds is None else problem.op_seconds.tobytes()
    return hashlib.sha256(asked.encode() + costs).hexdigest()


def _save(search: Search, path: Path, label: str) -> None:
    evaluations = search.evaluations
    about = {
        "label": label, "simulations": evaluations.simulations, "best_energy": evaluations.incumbent.value,
        "curve": evaluations.curve, "generator": search.generator.bit_generator.state,
    }  # fmt: skip
    arrays: dict[str, Any] = {key: getattr(search, key) for key in search.saved}
    arrays |= {"about": np.array(json.dumps(about)), "best": evaluations.best}
    arrays["best_priorities"] = evaluations.priorities
    content = io.BytesIO()
    np.savez(content, **arrays)
    write_whole(path, content.getvalue())


def _load(search: Search, path: Path, label: str) -> None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            state = {key: archive[key] for key in archive.files}
        about = json.loads(str(state["about"]))
        if about["label"] != label:
            raise InputError(
                f"{path} is of another search: of another problem, seed, budget or knobs; name another file"
            )
        evaluations = search.evaluations
        evaluations.incumbent = Incumbent(state["best"], about["best_energy"], state["best_priorities"])
        evaluations.simulations = about["simulations"]
        evaluations.curve = [(int(count), float(seconds)) for count, seconds in about["curve"]]
        search.generator.bit_generator.state = about["generator"]
        for key in search.saved:
            setattr(search, key, state[key] if state[key].ndim else state[key].item())
    except (OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is damaged, or no search was saved there: {error}; remove it") from error
