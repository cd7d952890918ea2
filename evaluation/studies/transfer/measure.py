"""What rivals find on a set of problems, once, and then what each policy finds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec

from evaluation.commands.load_placer import load_placer
from evaluation.studies.cheap_placers import CHEAP
from evaluation.studies.pieces import PIECES, SavedJob
from evaluation.studies.timed_plans import timed_plan
from evaluation.studies.transfer.sets import ProblemsOf
from graphs.foundation import by_name

RIVALS, POLICIES = "rivals", "policies"  # folders
SEARCH = "annealing"
SAMPLES = 16  # placements that a policy may simulate, beside its greedy one, which is not
FROM_POLICY = 1000  # simulations of the search that begins with a policy's placements


class Found(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A placer's plan for a problem."""

    problem: str
    units: int
    devices: int
    placer: str
    budget: int  # simulations that it may make
    step_seconds: float
    fits: bool
    cpu_seconds: float  # of placing


class SetFound(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The plans of some placers for a set of problems."""

    split: str
    set: str
    who: str  # "" for the rivals; the spec of a policy
    found: tuple[Found, ...]


def rival_jobs(out: Path, split: str, sets: Mapping[str, ProblemsOf], searching: int, count: int) -> list[SavedJob]:
    """A job per set: the cheap placers, and annealing with some simulations, for what is best known."""
    placers = (*((spec, 1) for spec in CHEAP), (SEARCH, searching))
    return _jobs(out / RIVALS, split, sets, "", placers, f"{count}-{searching}")


def policy_jobs(out: Path, split: str, sets: Mapping[str, ProblemsOf], policy: str, count: int) -> list[SavedJob]:
    """A job per set: a policy's greedy placement, the best of some samples, and a search that begins with them.

    A search begins with policies by their name or folder; one with knobs has none.
    """
    file = policy.replace("/", "_").replace(":", "_")
    searches = () if by_name.parse(policy)[1] else ((f"{SEARCH}:policy={policy}", FROM_POLICY),)
    placers = ((policy, 1), (policy, SAMPLES), *searches)
    return _jobs(out / POLICIES, split, sets, policy, placers, f"{count}-{file}")


def _jobs(
    folder: Path, split: str, sets: Mapping[str, ProblemsOf], who: str, placers: tuple[tuple[str, int], ...], file: str
) -> list[SavedJob]:
    return [
        SavedJob(folder / PIECES / f"{split}-{name}-{file}.json", partial(found_by, split, name, who, make, placers))
        for name, make in sets.items()
    ]


def found_by(split: str, name: str, who: str, make: ProblemsOf, placers: tuple[tuple[str, int], ...]) -> SetFound:
    """What placers, with a number of simulations each, find for the problems of a set."""
    loaded = {spec: load_placer(spec) for spec, _ in placers}
    found = []
    for number, problem in enumerate(make()):
        for spec, budget in placers:
            plan = timed_plan(loaded[spec], problem, budget)
            timeline = plan.timeline
            found.append(
                Found(
                    problem=f"{number}: {problem.name}",
                    units=len(problem.units),
                    devices=len(problem.cluster),
                    placer=spec,
                    budget=budget,
                    step_seconds=timeline.step_seconds,
                    fits=timeline.fits,
                    cpu_seconds=plan.cpu_seconds,
                )
            )
    return SetFound(split=split, set=name, who=who, found=tuple(found))
