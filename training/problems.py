"""Problems to train on and to be judged by: the graphs of families, tied into groups, on clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Literal

import numpy as np
from tqdm import tqdm

from graphs.cluster import Cluster
from graphs.grouping import tie_ops
from graphs.load import load_cluster, load_graph, split
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from graphs.training_step import forward_pass
from training.randomised_clusters import randomised
from training.randomised_costs import with_other_times
from training.recipe import ProblemSet


def load_problems(
    chosen: ProblemSet,
    which: Literal["train", "test"] = "train",
    seed: int = 0,
    capture: Callable[[str], OpGraph] | None = None,
) -> list[Problem]:
    """A split of a problem set: each graph of its families on each of its clusters for that split.

    For training, `seed` draws the randomised copies of the clusters, anew for each graph, which of all variants of a
    graph (groups, cluster, copy) are kept, if not all are, and which of these are forward passes or have other times.
    `capture` is how a spec becomes a graph, if not anew.
    """
    rng = np.random.default_rng(seed)
    problems = []
    for spec in tqdm(split(chosen.families, which), desc="capturing models", unit="model", leave=False, disable=None):
        graph = (capture or load_graph)(spec)
        if which == "test":
            test = tie_ops(graph, chosen.test_groups)
            problems += [Problem(test, load_cluster(name), chosen.optimizer) for name in chosen.test_clusters]
            continue
        variants = list(_variants(chosen, rng))
        if 0 < chosen.variants < len(variants):
            variants = [variants[i] for i in sorted(rng.choice(len(variants), chosen.variants, replace=False))]
        tied = cache(partial(_tied, graph))
        for groups, cluster in variants:
            problem = Problem(tied(groups, _happens(chosen.forward, rng)), cluster, chosen.optimizer)
            problems.append(with_other_times(problem, rng) if _happens(chosen.measured, rng) else problem)
    return problems


def _variants(chosen: ProblemSet, rng: np.random.Generator) -> Iterator[tuple[int, Cluster]]:
    """The ways in which a graph may be met: a number of groups, and a cluster or a randomised copy of one."""
    for groups in chosen.groups:
        for name in chosen.clusters:
            cluster = load_cluster(name)
            yield groups, cluster
            for _ in range(chosen.randomised):
                unequal = _happens(chosen.unequal, rng)
                yield groups, randomised(cluster, chosen.spread, rng, unequal=unequal, slow=chosen.slow)


def _tied(graph: OpGraph, groups: int, forward: bool) -> OpGraph:
    return tie_ops(forward_pass(graph) if forward else graph, groups)


def _happens(share: float, rng: np.random.Generator) -> bool:
    """By chance; nothing is drawn for what never happens, so that a new kind of chance changes no older problem set."""
    return share > 0 and rng.random() < share
