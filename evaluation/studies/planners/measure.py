"""What all planners find for a case: the step in the engine, beside what each estimates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from evaluation.studies.pieces import PIECES, SavedJob
from evaluation.studies.planners.cases import Case
from evaluation.studies.timed_plans import timed_plan
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.problem import Problem

OURS = "planner"
RIVALS = {  # what each is called, and its spec
    "single device": "single_device",
    "data parallelism": "data_parallel",
    "equal split, GPipe": "gpipe",
    "equal split, 1F1B": "gpipe:order=early_backward_a",
    "equal split, recomputing": "gpipe:order=early_backward_a,recompute=true",
    "PipeDream": "pipedream:form=printed,flush=true",
    "PipeDream, released": "pipedream:form=released,flush=true",
    "Black GPipe": "black_gpipe",
    "DAPPLE": "dapple",
    "DAPPLE, corrected": "dapple:form=corrected",
    "DAPPLE, released": "dapple:form=released",
    "human expert": "human_expert",
}
LONGER = 10  # times the budget, for a search that shows what the budget misses


class Found(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A plan."""

    planner: str
    seconds: float  # of a step, in the engine
    fits: bool
    peak_bytes: float  # of the fullest device
    took: float  # processor seconds of planning
    simulations: int
    notes: tuple[str, ...]


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All plans of a case."""

    source: str
    model: str
    cluster: str
    budget: int
    rivals: tuple[Found, ...]
    ours: Found
    refused: tuple[str, ...]  # sentences of planners without a plan


class Longer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a longer search finds for a case."""

    model: str
    cluster: str
    budget: int  # of the shorter one
    found: Found


def jobs(out: Path, cases: list[Case], budget: int, work: Callable[[Case, int], Measured | Longer]) -> list[SavedJob]:
    """A job per case, `measured` or `searched`."""
    return [SavedJob(out / PIECES / f"{budget}-{case.name}.json", partial(work, case, budget)) for case in cases]


def measured(case: Case, budget: int) -> Measured:
    """All planners on a case."""
    problem, found, refused = case.problem(), list[Found](), list[str]()
    for name, spec in RIVALS.items():
        try:
            found.append(_found(problem, name, spec, 8))
        except InputError as error:
            refused.append(f"{name}: {error}")
    return Measured(
        source=case.source, model=case.model, cluster=case.cluster, budget=budget, rivals=tuple(found),
        ours=_found(problem, OURS, OURS, budget), refused=tuple(refused),
    )  # fmt: skip


def searched(case: Case, budget: int) -> Longer:
    """Placelab's planner with `LONGER` times the budget."""
    found = _found(case.problem(), OURS, OURS, LONGER * budget)
    return Longer(model=case.model, cluster=case.cluster, budget=budget, found=found)


def _found(problem: Problem, name: str, spec: str, budget: int) -> Found:
    result, timeline, took = timed_plan(by_name.build("placers", spec), problem, budget)
    return Found(
        planner=name, seconds=timeline.step_seconds, fits=timeline.fits, peak_bytes=float(timeline.peak_bytes.max()),
        took=took, simulations=result.simulations, notes=tuple(result.notes),
    )  # fmt: skip
