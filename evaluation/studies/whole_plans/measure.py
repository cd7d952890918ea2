"""What a policy and the planner find for a case, and how many simulations the planner needs with the policy's plans."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from evaluation.statistics import until
from evaluation.studies.pieces import PIECES, SavedJob
from evaluation.studies.timed_plans import timed_plan
from evaluation.studies.whole_plans.cases import Case
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.learned.whole_plans.placer import build
from placers.planner import Planner

SEVERAL = 16  # pipelines, of which the best by simulation is taken
REACHED = 1.01  # times the planner's step: the same result


class Found(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A plan."""

    seconds: float  # of a step, in the engine, op by op
    fits: bool
    took: float  # processor seconds of planning
    simulations: int


class OfSeed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the policy of a seed of training finds."""

    seed: int
    alone: Found  # without a simulation
    several: Found  # the best of `SEVERAL`
    proposing: Found  # the planner that begins with its pipelines
    reached: float | None  # simulations until that has the planner's result, None if it never has


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A case."""

    split: str
    model: str
    cluster: str
    budget: int
    planner: Found
    reached: float | None  # simulations until the planner has its own result
    policies: tuple[OfSeed, ...]


def jobs(out: Path, cases: Sequence[Case], budget: int, policies: Sequence[Path]) -> list[SavedJob]:
    """A job per case; `policies` are the run folders of the seeds."""
    return [
        SavedJob(out / PIECES / f"{budget}-{len(policies)}-{case.name}.json", partial(measured, case, budget, policies))
        for case in cases
    ]


def measured(case: Case, budget: int, policies: Sequence[Path]) -> Measured:
    """The planner and all policies on a case."""
    problem = case.problem()
    planner, curve = _found(problem, Planner(), budget)
    of_seeds = list[OfSeed]()
    for seed, folder in enumerate(policies):
        placer = build(checkpoint=str(folder))
        proposing, with_policy = _found(problem, Planner(whole_plans=placer.name), budget)
        alone, several = (_found(problem, placer, count)[0] for count in (0, SEVERAL))
        reached = _reached(with_policy, planner)
        of_seeds.append(OfSeed(seed=seed, alone=alone, several=several, proposing=proposing, reached=reached))
    return Measured(
        split=case.split, model=case.model, cluster=case.cluster, budget=budget, planner=planner,
        reached=_reached(curve, planner), policies=tuple(of_seeds),
    )  # fmt: skip


def _reached(curve: Sequence[tuple[int, float]], planner: Found) -> float | None:
    found = until(curve, REACHED * planner.seconds)
    return found if found < float("inf") else None


def _found(problem: Problem, placer: Placer, budget: int) -> tuple[Found, tuple[tuple[int, float], ...]]:
    result, timeline, took = timed_plan(placer, problem, budget)
    found = Found(
        seconds=timeline.step_seconds, fits=timeline.fits, took=took, simulations=result.simulations
    )  # fmt: skip
    return found, result.curve
