"""Searches: step by step, until a number of simulations or seconds, or Ctrl-C; and on again from where they stopped."""

from __future__ import annotations

import hashlib
import json
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from envs.placer_result import PlacerResult
from envs.prepared_problem import Incumbent
from graphs.foundation.errors import InputError
from graphs.foundation.files import check_writable, replace_whole
from graphs.foundation.interrupts import Interrupts
from graphs.problem import STEP_TIME, Problem
from placers.search.evaluations import Evaluations

State = dict[str, np.ndarray[Any, np.dtype[Any]]]


class Search(Protocol):
    """A search that stands somewhere."""

    generator: np.random.Generator
    evaluations: Evaluations
    notes: tuple[str, ...]  # what it had to leave out, in sentences

    def step(self, progress: float, left: int) -> None:
        """Continue by one simulation or a few, at most `left`; `progress` is the share of the search that is done."""
        ...

    def state(self) -> State:
        """Where it stands, in addition to its evaluations and the generator."""
        ...

    def restore(self, state: State) -> None:
        """Stand where `state` says."""
        ...


def check_limits(name: str, seconds: float) -> None:
    """Raises InputError for a time that is not positive."""
    if not seconds > 0:
        raise InputError(f"{name}: seconds is {seconds}; expected a number > 0")


def searched(
    begin: Callable[[], Search], problem: Problem, *, name: str, seed: int, budget: int, seconds: float, file: str
) -> PlacerResult:
    """The best placement after exactly `budget` simulations, or fewer if the seconds are over before.

    With a file the search resumes from there if it exists, and is saved there when it ends or is stopped. A search that
    was stopped and resumes ends where it would have ended. Raises InputError for a file of another search, and
    KeyboardInterrupt, once saved, after Ctrl-C.
    """
    started = time.monotonic()
    path = Path(file) if file else None
    check_writable(path)
    label = _label(name, problem, seed, budget)
    with Interrupts() as interrupts:
        search = begin()
        if path is not None and path.exists():
            _load(search, path, label)
        evaluations = search.evaluations
        while evaluations.simulations < budget and not interrupts.requested:
            elapsed = time.monotonic() - started
            if elapsed >= seconds:
                break
            search.step(max(evaluations.simulations / budget, elapsed / seconds), budget - evaluations.simulations)
    if path is not None:
        _save(search, path, label)
    if interrupts.requested:
        kept = f"; saved in {path}, and the same command resumes it" if path else ""
        raise KeyboardInterrupt(f"{name}: stopped after {evaluations.simulations} of {budget} simulations{kept}")
    return PlacerResult.of_units(
        problem, evaluations.best, name, seed,
        simulations=evaluations.simulations, curve=evaluations.curve, notes=search.notes,
    )  # fmt: skip


def _label(name: str, problem: Problem, seed: int, budget: int) -> str:
    asked = f"{name} {problem.graph.fingerprint} {problem.cluster.fingerprint} {problem.optimizer} {seed} {budget}"
    if problem.objective != STEP_TIME:
        asked += f" {problem.objective}"
    costs = b"" if problem.op_seconds is None else problem.op_seconds.tobytes()
    return hashlib.sha256(asked.encode() + costs).hexdigest()


def _save(search: Search, path: Path, label: str) -> None:
    evaluations = search.evaluations
    about = {
        "label": label, "simulations": evaluations.simulations, "best_energy": evaluations.incumbent.value,
        "curve": evaluations.curve, "generator": search.generator.bit_generator.state,
    }  # fmt: skip
    arrays: dict[str, Any] = search.state() | {"about": np.array(json.dumps(about)), "best": evaluations.best}

    def write(unfinished: Path) -> None:
        with unfinished.open("wb") as out:  # numpy would add .npz to a name
            np.savez(out, **arrays)

    replace_whole(path, write)


def _load(search: Search, path: Path, label: str) -> None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            state = {key: archive[key] for key in archive.files}
        about = json.loads(str(state.pop("about")))
        if about["label"] != label:
            raise InputError(
                f"{path} is of another search: of another problem, seed, budget or knobs; name another file"
            )
        evaluations = search.evaluations
        evaluations.incumbent = Incumbent(state.pop("best"), about["best_energy"])
        evaluations.simulations = about["simulations"]
        evaluations.curve = [(int(count), float(seconds)) for count, seconds in about["curve"]]
        search.generator.bit_generator.state = about["generator"]
        search.restore(state)
    except (OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is damaged, or no search was saved there: {error}; remove it") from error
