"""Problems of the study of what decides: every model is captured once in a process, whatever the trainings."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from tqdm import tqdm

from evaluation.studies.decides_variants import CLUSTERS, FAMILIES, GROUPS
from graphs.cluster import Cluster
from graphs.grouping import tie_ops
from graphs.load import load_cluster, load_graph, split
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from training.randomised_clusters import randomised
from training.recipe import ProblemSet

UNSEEN = "nmt"  # never trained on


def training_problems(chosen: ProblemSet, seed: int) -> list[Problem]:
    """Those of `training.problems.load_problems`, for a set that keeps all variants and has no unequal devices."""
    rng = np.random.default_rng(seed)
    specs = tqdm(split(chosen.families, "train"), desc="problems to train on", leave=False, disable=None)
    return [
        Problem(_tied(spec, groups), cluster, chosen.optimizer)
        for spec in specs
        for groups in chosen.groups
        for name in chosen.clusters
        for cluster in _copies(name, chosen, rng)
    ]


def held_out_problems(unseen_graphs: int) -> list[Problem]:
    """The test graphs of the families, and some of the family that is never trained on, on each cluster."""
    specs = [*split(FAMILIES, "test"), *split([UNSEEN], "test")[:unseen_graphs]]
    named = tqdm(specs, desc="problems to judge by", leave=False, disable=None)
    return [Problem(_tied(spec, GROUPS), load_cluster(name)) for spec in named for name in CLUSTERS]


def _copies(name: str, chosen: ProblemSet, rng: np.random.Generator) -> Iterator[Cluster]:
    cluster = load_cluster(name)
    yield cluster
    for _ in range(chosen.randomised):
        yield randomised(cluster, chosen.spread, rng)


@cache
def _tied(spec: str, groups: int) -> OpGraph:
    return tie_ops(_captured(spec), groups)


@cache
def _captured(spec: str) -> OpGraph:
    return load_graph(spec)
