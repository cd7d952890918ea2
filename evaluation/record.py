"""Record: what one placer did on one problem; and the file that holds many of them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from graphs.foundation.documents import read_document
from graphs.foundation.files import write_whole
from graphs.problem import STEP_TIME

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
    max_load: float | None = None  # milliseconds, as published; if that is the objective (`envs.device_loads`)
    key: str = ""  # hex digits that change with whatever the result depends on (`evaluation.identity`)
    budget: int | None = None  # placements that the placer might simulate
    cost_model: str = ""  # what timed the ops (`envs.costs.cost_models.timing`)
    objective: str = STEP_TIME
    objective_value: float | None = None  # seconds, of an objective other than the step time
    robust_seconds: float | None = None  # of the step, median over noise (`envs.robustness`), if that was asked for
    worst_seconds: float | None = None  # ... the slowest
    free_seconds: float | None = None  # ... without noise, where every transfer has a link of its own
    notes: tuple[str, ...] = ()  # what the placer has to say of its plan, in sentences

    def __post_init__(self) -> None:
        if self.objective == STEP_TIME:  # msgspec leaves out a default only if it is the same object
            msgspec.structs.force_setattr(self, "objective", STEP_TIME)

    @property
    def case(self) -> tuple[str, str, int]:
        """Problem, placer and seed."""
        return self.problem, self.placer, self.seed

    @property
    def objective_seconds(self) -> float:
        """What the problem asks to make small: the step time, its median under noise, or another objective."""
        if self.robust_seconds is not None:
            return self.robust_seconds
        if self.objective_value is not None:
            return self.objective_value
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
