"""Problems of the study of what decides: every model is captured once in a process, whatever the trainings."""

from __future__ import annotations

from functools import cache

from tqdm import tqdm

from evaluation.studies.decides_variants import CLUSTERS, FAMILIES, GROUPS
from graphs.grouping import tie_ops
from graphs.load import load_cluster, load_graph, split
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from training.problems import load_problems
from training.recipe import ProblemSet

UNSEEN = "nmt"  # never trained on


def training_problems(chosen: ProblemSet, seed: int) -> list[Problem]:
    """Those of `training.problems.load_problems`."""
    return load_problems(chosen, seed=seed, capture=_captured)


def held_out_problems(unseen_graphs: int) -> list[Problem]:
    """The test graphs of the families, and some of the family that is never trained on, on each cluster."""
    specs = [*split(FAMILIES, "test"), *split([UNSEEN], "test")[:unseen_graphs]]
    named = tqdm(specs, desc="problems to judge by", leave=False, disable=None)
    return [Problem(_tied(spec, GROUPS), load_cluster(name)) for spec in named for name in CLUSTERS]


@cache
def _tied(spec: str, groups: int) -> OpGraph:
    return tie_ops(_captured(spec), groups)


@cache
def _captured(spec: str) -> OpGraph:
    return load_graph(spec)
