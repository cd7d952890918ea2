"""The sets of problems: each kind of random graphs, profiles of real machines, and suites of captured models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from evaluation.studies.problems import suite_problems
from evaluation.studies.released.parts import profile_problems
from graphs.problem import DEFAULT_ORDER, Problem
from training.world.kinds import KINDS
from training.world.random_problem import world_problems

SEEDS = {"validation": 1, "test": 2}
"""Of the random problems by split: choices are made on the first, and the second is reported."""
PROFILES = "profiles"
SUITES = ("heldout", "newfamilies")
GROUPS = 64  # of captured models

ProblemsOf = Callable[[], list[Problem]]


def sets(split: str, count: int, data: Path | None) -> Mapping[str, ProblemsOf]:
    """By name what makes the problems of each set; `count` of each kind of random graphs.

    Profiles and suites are for reporting, so that the split for choices has none of them.
    """
    random = {kind: partial(world_problems, [kind], seed=SEEDS[split], count=count) for kind in KINDS}
    if split == "validation":
        return random
    captured = {suite: partial(_captured, suite) for suite in SUITES}
    return {**random, **captured, **({PROFILES: partial(_profiled, data)} if data else {})}


def _captured(suite: str) -> list[Problem]:
    return [make() for make in suite_problems(suite, GROUPS).values()]


def _profiled(data: Path) -> list[Problem]:
    return [replace(make(), order=DEFAULT_ORDER) for make in profile_problems(data).values()]
