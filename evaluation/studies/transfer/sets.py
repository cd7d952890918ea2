"""The sets of problems: each kind of random graphs, profiles of real machines, and captured models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from evaluation.studies.problems import captured, suite_problems
from evaluation.studies.released.parts import profile_problems
from graphs.foundation import by_name
from graphs.grouping import tie_ops
from graphs.load import load_cluster
from graphs.problem import DEFAULT_ORDER, Problem
from graphs.suites import KEPT_ASIDE, P100S
from training.mixed_knobs import mixed_graphs
from training.problem_sets import VALIDATION
from training.world.kinds import KINDS
from training.world.random_problem import world_problems

SEEDS = {"validation": 1, "test": 2}
"""Of the random problems by split: choices are made on the first, and the second is reported."""
PROFILES = "profiles"
SUITES = ("heldout", "newfamilies")
HOME = "home"  # captured models of the families that policies are trained on, other than those of the suites
GROUPS = 64  # of captured models

ProblemsOf = Callable[[], list[Problem]]


def sets(split: str, count: int, data: Path | None) -> Mapping[str, ProblemsOf]:
    """By name what makes the problems of each set; `count` of each kind of random graphs.

    Profiles and suites are for reporting. The split for choices has captured models of its own instead.
    """
    random = {kind: partial(world_problems, [kind], seed=SEEDS[split], count=count) for kind in KINDS}
    if split == "validation":
        return {**random, HOME: home_problems}
    suites = {suite: partial(_captured, suite) for suite in SUITES}
    return {**random, **suites, **({PROFILES: partial(_profiled, data)} if data else {})}


def home_problems() -> list[Problem]:
    """Two graphs of each family that has more mixtures of knobs than it lists, on four P100 and on two.

    Their knobs are mixed anew from those of the family's training graphs. None has the edges of a test graph.
    """
    return [
        Problem(tie_ops(graph, GROUPS), load_cluster(cluster))
        for family in by_name.built_in("graphs.families")
        if family not in KEPT_ASIDE
        for graph, cluster in zip(
            mixed_graphs(family, len(P100S), np.random.default_rng((VALIDATION, *family.encode())), captured),
            reversed(P100S),
            strict=False,  # a family may have fewer mixtures
        )
    ]


def _captured(suite: str) -> list[Problem]:
    return [make() for make in suite_problems(suite, GROUPS).values()]


def _profiled(data: Path) -> list[Problem]:
    return [replace(make(), order=DEFAULT_ORDER) for make in profile_problems(data).values()]
