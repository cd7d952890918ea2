"""The sets of problems: each kind of random graphs, profiles of real machines, and captured models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from evaluation.studies.problems import captured, suite_problems
from evaluation.studies.released.parts import profile_problems
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.grouping import tie_ops
from graphs.load import load_cluster
from graphs.op_graph import OpGraph
from graphs.problem import DEFAULT_ORDER, Problem
from graphs.suites import KEPT_ASIDE, P100S
from training.mixed_knobs import TRIES, mixed_graphs, mixed_specs
from training.problem_sets import VALIDATION
from training.world.kinds import KINDS
from training.world.random_problem import world_problems

SEEDS = {"validation": 1, "test": 2}
"""Of the random problems by split: choices are made on the first, and the second is reported."""
PROFILES = "profiles"
SUITES = ("heldout", "newfamilies")
HOME = "home"  # captured models of the families that policies are trained on, other than those of the suites
GROUPS = 64  # of captured models
TRAINED = range(3)  # seeds of the runs that are to be judged
MIXED = 8  # mixtures of each family, of which a run learns from 4: those that cannot be built are passed over

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

    Their knobs are mixed from those of the family's training graphs. None has the edges of a test graph, and none is
    among the mixtures that a run with one of `TRAINED` as its seed may have learned from.
    """
    problems = []
    for family in by_name.built_in("graphs.families"):
        if family in KEPT_ASIDE:
            continue
        generator = np.random.default_rng((VALIDATION, *family.encode()))
        graphs = mixed_graphs(family, len(P100S), generator, partial(_untrained, _trained_on(family)))
        # not strict: a family may have fewer mixtures
        for graph, cluster in zip(graphs, reversed(P100S), strict=False):
            problems.append(Problem(tie_ops(graph, GROUPS), load_cluster(cluster)))
    return problems


def _trained_on(family: str) -> set[str]:
    """The specs of the mixtures of a family that runs may have learned from."""
    return {
        spec
        for seed in TRAINED
        for spec in islice(mixed_specs(family, TRIES * MIXED, np.random.default_rng((seed, *family.encode()))), MIXED)
    }


def _untrained(trained_on: set[str], spec: str) -> OpGraph:
    """The graph of a spec. Raises InputError for one that was trained on, so that it is passed over."""
    if spec in trained_on:
        raise InputError(f"{spec} is trained on")
    return captured(spec)


def _captured(suite: str) -> list[Problem]:
    return [make() for make in suite_problems(suite, GROUPS).values()]


def _profiled(data: Path) -> list[Problem]:
    return [replace(make(), order=DEFAULT_ORDER) for make in profile_problems(data).values()]
