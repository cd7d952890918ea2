"""Record: what one placer did on one problem; and the file that holds many of them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from graphs.documents import read_document
from graphs.files import write_whole

VERSION = 1


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One placer on one problem with one seed."""

    problem: str  # graph@cluster
    placer: str
    seed: int
    step_seconds: float  # of the plan, as the simulator says
    fits: bool  # whether every device holds what the plan puts there
    peak_bytes: tuple[float, ...]  # (devices,)
    simulations: int  # placements that the placer simulated
    search_seconds: float  # wall clock of the placer alone
    lower_bound_seconds: float  # no plan's step is shorter
    curve: tuple[tuple[int, float], ...] = ()  # of a search: (simulations, step seconds) whenever it got better
    max_load: float | None = None  # milliseconds, as published; if that is the objective (`envs.max_load`)

    @property
    def key(self) -> tuple[str, str, int]:
        """Problem, placer and seed."""
        return self.problem, self.placer, self.seed

    @property
    def objective_seconds(self) -> float:
        """What the problem asks to make small: the max-load, or else the step time."""
        return self.step_seconds if self.max_load is None else self.max_load / 1e3


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A placer that gave no plan for a problem."""

    problem: str  # graph@cluster
    placer: str
    seed: int
    reason: str  # a sentence


class Notes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the records alone do not say."""

    learned: str = ""  # the placer that the evaluation is about
    before: str = ""  # the same before fine-tuning
    remarks: tuple[str, ...] = ()  # sentences for the report


class EvaluationFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `evaluation.json` holds."""

    schema: Literal["placelab.evaluation"] = "placelab.evaluation"
    version: int = VERSION
    notes: Notes = Notes()
    records: tuple[Record, ...]


def save_evaluation(content: EvaluationFile, path: Path) -> None:
    """Write records and notes as JSON."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def load_evaluation(path: Path) -> EvaluationFile:
    """Read what `save_evaluation` wrote. Raises InputError, naming the file and the field, for anything else."""
    remedy = f"`placelab evaluate {path.parent}` writes it"
    return read_document(path, EvaluationFile, version=VERSION, remedy=remedy)
