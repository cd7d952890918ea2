"""The sets of problems: each kind of random graphs, profiles of real machines, and captured models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Unpack

import numpy as np

from evaluation.commands.arguments import AUTO
from evaluation.commands.problems import asked_runtime, problem_of
from evaluation.studies.problems import ConditionOptions, suite_problems
from evaluation.studies.released.parts import profile_problems
from evaluation.studies.transfer.tight_memory import least_peak, with_memory_of
from graphs.files.load import load_graph
from graphs.files.suites import KEPT_ASIDE, P100S
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from training.problems.mixed_knobs import TRIES, mixed_graphs, mixed_specs
from training.problems.random.kinds import KINDS
from training.problems.random.random_problem import world_problems
from training.problems.random.settings import World
from training.runs.problem_sets import VALIDATION

SEEDS = {"validation": 1, "test": 2}
"""Of the random problems by split: choices are made on the first, and the second is reported."""
PROFILES = "profiles"
SUITES = ("heldout", "newfamilies")
MODELS = "curves"  # the suite whose models are also placed op by op, and in little memory
HOME = "home"  # captured models of the families that policies are trained on, other than those of the suites
OTHERS = {"unequal_devices": World(unequal=1.0), "many_devices": World(units=(64, 512), devices=(17, 64))}
"""Of random problems of all kinds, each of another kind than the one before."""
LARGE, LARGE_WORLD = "large", World(units=(1000, 4000), grouped=0.0)
LARGE_UNITS = 256  # captured models of more units are large ones, op by op
ROOMS = {"memory_1.05": 1.05, "memory_1.1": 1.1}  # over the least peak that a search finds
ROOMS_WORLD = World(units=(16, 64))
GROUPS = 64  # of captured models
OPS = sys.maxsize  # groups: no op is tied to others
TRAINED = range(3)  # seeds of the runs that are to be judged
MIXED = 8  # mixtures of each family, of which a run learns from 4: those that cannot be built are passed over

ProblemsOf = Callable[[], list[Problem]]


def sets(split: str, count: int, data: Path | None, **timing: Unpack[ConditionOptions]) -> Mapping[str, ProblemsOf]:
    """By name what makes the problems of each set; `count` of each kind of random graphs.

    Profiles and suites are for reporting. The split for choices has captured models of its own instead.
    """
    kinds = {kind: partial(_random, split, count, kinds=(kind,), **timing) for kind in KINDS}
    others = {name: partial(_random, split, count, settings, **timing) for name, settings in OTHERS.items()}
    hard = {
        LARGE: partial(_large, split, count, **timing),
        **{name: partial(_tight, split, count, factor, **timing) for name, factor in ROOMS.items()},
    }
    random = {**kinds, **others, **hard}
    if split == "validation":
        return {**random, HOME: partial(home_problems, **timing)}
    suites = {suite: partial(_captured, suite, **timing) for suite in SUITES}
    return {**random, **suites, **({PROFILES: partial(_profiled, data, **timing)} if data else {})}


def home_problems(groups: int = GROUPS, **timing: Unpack[ConditionOptions]) -> list[Problem]:
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
            problems.append(problem_of(graph, cluster, groups=groups, **timing))
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
    return load_graph(spec)


def _random(
    split: str, count: int, settings: World | None = None, kinds: Sequence[str] = tuple(KINDS),
    **timing: Unpack[ConditionOptions],
) -> list[Problem]:  # fmt: skip
    """Random problems have times of their own, and so the ideal machine unless a runtime is named."""
    runtime = asked_runtime(timing.get("runtime", AUTO), timing.get("order", AUTO), timing.get("host", AUTO))
    return world_problems(kinds, seed=SEEDS[split], count=count, settings=settings, runtime=runtime)


def _large(split: str, count: int, **timing: Unpack[ConditionOptions]) -> list[Problem]:
    """Random graphs of thousands of units, and models op by op."""
    models = (problem for problem in _models(split, OPS, **timing) if len(problem.units) > LARGE_UNITS)
    return [*_random(split, count, LARGE_WORLD, **timing), *models]


def _tight(split: str, count: int, factor: float, **timing: Unpack[ConditionOptions]) -> list[Problem]:
    """Random graphs and models, with hardly more memory than the least that a plan needs."""
    found = _least_peaks(split, count, **timing)  # type: ignore[arg-type] # of a cache; the values are text
    return [with_memory_of(problem, factor * least) for problem, least in found]


@cache
def _least_peaks(split: str, count: int, **timing: Unpack[ConditionOptions]) -> tuple[tuple[Problem, float], ...]:
    """Random graphs and models with their least peaks, bytes; several sets and all placers share the searches."""
    problems = (*_random(split, count, ROOMS_WORLD, **timing), *_models(split, **timing))
    return tuple((problem, least_peak(problem)) for problem in problems)


def _models(split: str, groups: int = GROUPS, **timing: Unpack[ConditionOptions]) -> list[Problem]:
    return home_problems(groups, **timing) if split == "validation" else _captured(MODELS, groups, **timing)


def _captured(suite: str, groups: int = GROUPS, **timing: Unpack[ConditionOptions]) -> list[Problem]:
    return [make() for make in suite_problems(suite, groups=groups, **timing).values()]


def _profiled(data: Path, **timing: Unpack[ConditionOptions]) -> list[Problem]:
    return [make() for make in profile_problems(data, **timing).values()]
