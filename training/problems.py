"""Problems to train on and to be judged by: the graphs of families, tied into groups, on clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from tqdm import tqdm

from graphs.cluster import Cluster
from graphs.grouping import tie_ops
from graphs.load import load_cluster, load_graph, split
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from training.randomised_clusters import randomised
from training.recipe import ProblemSet


def load_problems(
    chosen: ProblemSet,
    which: Literal["train", "test"] = "train",
    seed: int = 0,
    capture: Callable[[str], OpGraph] | None = None,
) -> list[Problem]:
    """A split of a problem set: each graph of its families on each of its clusters for that split.

    For training, `seed` draws the randomised copies of the clusters, anew for each graph, and which of all variants of
    a graph (groups, cluster, copy) are kept, if not all are. `capture` is how a spec becomes a graph, if not anew.
    """
    rng = np.random.default_rng(seed)
    problems = []
    for spec in tqdm(split(chosen.families, which), desc="capturing models", unit="model", leave=False, disable=None):
        graph = (capture or load_graph)(spec)
        if which == "test":
            tied = tie_ops(graph, chosen.test_groups)
            problems += [Problem(tied, load_cluster(name), chosen.optimizer) for name in chosen.test_clusters]
            continue
        variants = list(_variants(chosen, rng))
        if 0 < chosen.variants < len(variants):
            variants = [variants[i] for i in sorted(rng.choice(len(variants), chosen.variants, replace=False))]
        tied_by = {groups: tie_ops(graph, groups) for groups in {groups for groups, _ in variants}}
        problems += [Problem(tied_by[groups], cluster, chosen.optimizer) for groups, cluster in variants]
    return problems


def _variants(chosen: ProblemSet, rng: np.random.Generator) -> Iterator[tuple[int, Cluster]]:
    """The ways in which a graph may be met: a number of groups, and a cluster or a randomised copy of one."""
    for groups in chosen.groups:
        for name in chosen.clusters:
            cluster = load_cluster(name)
            yield groups, cluster
            for _ in range(chosen.randomised):
                unequal = rng.random() < chosen.unequal if chosen.unequal else False
                yield groups, randomised(cluster, chosen.spread, rng, unequal=unequal)
