"""Problems to train on and to evaluate on: graphs of families, of files and of suites, in op groups, on clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Literal

import numpy as np

from envs.costs.costs import timed
from envs.orders import load_order
from graphs.capture.training_step import forward_pass
from graphs.cluster import Cluster
from graphs.files.graph_source import graph_sources
from graphs.files.load import load_cluster, load_clusters, load_graph
from graphs.files.splits import split
from graphs.files.suites import suite_specs
from graphs.foundation.errors import InputError
from graphs.foundation.progress import progress
from graphs.op_graph import OpGraph
from graphs.op_groups.grouping import tie_ops
from graphs.problem import Problem, check_optimizer
from training.problems.mixed_knobs import mixed_graphs
from training.problems.random.random_chains import labelled_chains
from training.problems.random.random_problem import world_problems
from training.problems.random.renewed import RenewedChains, RenewedProblems
from training.problems.randomised import randomised, with_other_times
from training.recipe import ProblemSet, Recipe

VALIDATION = 1 << 20  # seed of the problems to validate on, other than those of problems to test on


def load_problems(
    chosen: ProblemSet,
    which: Literal["train", "test"] = "train",
    seed: int = 0,
    capture: Callable[[str], OpGraph] | None = None,
) -> list[Problem]:
    """A split of a problem set: each of its graphs on each of its clusters for that split, and its suites.

    For training, `seed` draws the randomised copies of the clusters, again for each graph, which of all variants of a
    graph (groups, cluster, copy) are kept, if not all are, and which of these are forward passes or have other times.
    `capture` turns a spec into a graph; each is captured again unless it is given. Raises InputError as
    `check_problems` and `timed` do, and for a split that is empty.
    """
    check_problems(chosen, which)
    sources, problems = _sources(chosen, which), list[Problem]()
    if which == "train":
        problems = labelled_chains(
            chosen.chains.trained_on, chosen.chains.problems, optimizer=chosen.optimizer, order=chosen.order
        )
    elif not sources:
        raise InputError("the recipe names nothing to evaluate on; give it test_graphs, or name a suite")
    rng = np.random.default_rng(seed)
    loaded = {name: load_cluster(name) for _, names in sources for name in names}
    for graph, names in _graphs(chosen, which, seed, capture or load_graph):
        clusters = [loaded[name] for name in names]
        if which == "test":
            test = tie_ops(graph, chosen.test_groups)
            problems += [timed(Problem(test, cluster, chosen.optimizer, order=chosen.order)) for cluster in clusters]
            continue
        variants = list(_variants(chosen, clusters, rng))
        if 0 < chosen.variants < len(variants):
            variants = [variants[i] for i in sorted(rng.choice(len(variants), chosen.variants, replace=False))]
        tied = cache(partial(_tied, graph))
        for groups, cluster in variants:
            tied_graph = tied(groups, _happens(chosen.forward, rng))
            problem = timed(Problem(tied_graph, cluster, chosen.optimizer, order=chosen.order))
            problems.append(with_other_times(problem, rng) if _happens(chosen.measured, rng) else problem)
    return problems


def renewed_problems(chosen: ProblemSet, seed: int) -> RenewedProblems | None:
    """The random problems of a problem set, if it asks for any."""
    if chosen.chains.problems:
        kinds = tuple(chosen.chains.trained_on)
        return RenewedChains(chosen.world, seed, chosen.optimizer, chosen.order, kinds)
    return RenewedProblems(chosen.world, seed, chosen.optimizer, chosen.order) if chosen.world.problems else None


def validation_problems(recipe: Recipe) -> list[Problem]:
    """The random problems, of kinds held out, by which a run chooses among its weights; none if it does not choose."""
    chosen, count = recipe.problems, recipe.validation.problems if recipe.validation.every else 0
    if chosen.chains.held_out:
        return labelled_chains(chosen.chains.held_out, count, optimizer=chosen.optimizer, order=chosen.order)
    return world_problems(
        chosen.world.held_out, seed=VALIDATION, count=count, settings=chosen.world, order=chosen.order,
        optimizer=chosen.optimizer,
    )  # fmt: skip


def check_problems(chosen: ProblemSet, which: Literal["train", "test"]) -> None:
    """Check all of a split that can be checked before anything is captured.

    Raises InputError for a family, graph, suite, cluster, optimizer or order that there is not, a file that is damaged,
    and a graph or a cluster that is given twice, or both trained and evaluated on.
    """
    split(chosen.families, which)
    graph_sources(chosen.graphs if which == "train" else chosen.test_graphs)
    suite_specs(",".join(chosen.suites))
    load_clusters(chosen.clusters if which == "train" else chosen.test_clusters)
    check_optimizer(chosen.optimizer)
    load_order(chosen.order)
    families = split(chosen.families, "test")  # which their families tell from those to train on
    seen = {spec for spec, _ in _sources(chosen, "train")}.difference(families)
    seen |= {*chosen.graphs, *(graph for graph, _ in suite_specs(",".join(chosen.suites)))}
    if both := [spec for spec in (*families, *chosen.test_graphs) if spec in seen]:
        raise InputError(f"{both[0]!r} is among the graphs to train on and among those to evaluate on; choose one")


def _graphs(
    chosen: ProblemSet, which: Literal["train", "test"], seed: int, capture: Callable[[str], OpGraph]
) -> Iterator[tuple[OpGraph, tuple[str, ...]]]:
    """The graphs of a split, one after the other, and the clusters of each; those of mixed knobs come last."""
    for spec, names in progress(_sources(chosen, which), "capturing models", unit="model", leave=False):
        yield capture(spec), names
    if which == "test" or not chosen.mixed:
        return
    for family in progress(chosen.families, "mixing the knobs of models", unit="model", leave=False):
        for graph in mixed_graphs(family, chosen.mixed, np.random.default_rng((seed, *family.encode())), capture):
            yield graph, chosen.clusters


def _sources(chosen: ProblemSet, which: Literal["train", "test"]) -> list[tuple[str, tuple[str, ...]]]:
    """The spec of each graph of a split, and its clusters; those of suites come last."""
    if which == "test":
        return [(spec, chosen.test_clusters) for spec in (*split(chosen.families, which), *chosen.test_graphs)]
    sources = [(spec, chosen.clusters) for spec in (*split(chosen.families, which), *chosen.graphs)]
    placed: dict[str, list[str]] = {}
    for graph, cluster in suite_specs(",".join(chosen.suites)):
        placed.setdefault(graph, []).append(cluster)
    return sources + [(graph, tuple(clusters)) for graph, clusters in placed.items()]


def _variants(
    chosen: ProblemSet, clusters: Sequence[Cluster], rng: np.random.Generator
) -> Iterator[tuple[int, Cluster]]:
    """The ways in which a graph may be met: a number of groups, and a cluster or a randomised copy of one."""
    for groups in chosen.groups:
        for cluster in clusters:
            yield groups, cluster
            for _ in range(chosen.randomised):
                unequal = _happens(chosen.unequal, rng)
                yield groups, randomised(cluster, chosen.spread, rng, unequal=unequal, slow=chosen.slow)


def _tied(graph: OpGraph, groups: int, forward: bool) -> OpGraph:
    return tie_ops(forward_pass(graph) if forward else graph, groups)


def _happens(share: float, rng: np.random.Generator) -> bool:
    """By chance; nothing is drawn for what never happens, so that a new kind of chance changes no older problem set."""
    return share > 0 and rng.random() < share
