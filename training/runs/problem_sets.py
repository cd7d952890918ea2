"""Problems to train on and to evaluate on: graphs of families, of files and of suites, in op groups, on clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from typing import Literal

import numpy as np

from envs.costs.costs import AUTO, timed
from graphs.capture.training_step import forward_pass
from graphs.cluster import Cluster
from graphs.files.graph_source import graph_source, graph_sources
from graphs.files.load import load_cluster, load_clusters, load_graph
from graphs.files.splits import split
from graphs.files.suites import suite_specs
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.progress import progress
from graphs.op_graph import OpGraph
from graphs.op_graph.optimizers import check_optimizer
from graphs.op_groups.grouping import tie_ops
from graphs.problem import Problem
from graphs.transforms.mixed_precision import AS_IT_IS, precision_named
from training.problems.chance import happens, one_of
from training.problems.frozen import SHARES, frozen
from training.problems.mixed_knobs import mixed_graphs
from training.problems.random.random_chains import labelled_chains
from training.problems.random.random_problem import world_problems
from training.problems.random.renewed import RenewedProblems
from training.problems.randomised import randomised, with_other_times
from training.problems.runtimes import drawn_runtime
from training.problems.scarce import with_scarce_memory
from training.recipe import ProblemSet, Recipe

LearnedProblems = tuple[Sequence[Problem], RenewedProblems | None]  # those that stay, and random ones
TESTED = 1 << 21  # seed of how the problems to evaluate on are run
VALIDATION = 1 << 20  # seed of the problems to validate on, other than those of problems to test on


@dataclass(frozen=True)
class ProblemSplit:
    """A split of a problem set, opened: its graphs are found, to be captured when its problems are asked for."""

    chosen: ProblemSet
    is_trained_on: bool
    sources: tuple[tuple[str, tuple[Cluster, ...]], ...]  # the spec of each graph, and its clusters; suites come last

    @classmethod
    def of(cls, chosen: ProblemSet, which: Literal["train", "test"]) -> ProblemSplit:
        """All of a split that can be had before anything is captured.

        Raises InputError for a family, graph, suite, cluster, optimizer or order that there is not, a file that is
        damaged, and a graph or a cluster that is given twice, or both trained and evaluated on.
        """
        is_trained_on = which == "train"
        families, tested = split(chosen.families, which), split(chosen.families, "test")
        graphs = chosen.graphs if is_trained_on else chosen.test_graphs
        graph_sources(graphs)
        of_suites = suite_specs(",".join(chosen.suites))
        clusters = tuple(load_clusters(chosen.clusters if is_trained_on else chosen.test_clusters))
        check_optimizer(chosen.optimizer)
        for runtime in chosen.runtimes:
            runtime.order.loaded()
        for word in chosen.precisions:
            precision_named(word)
        learned = {*split(chosen.families, "train")}.difference(tested)  # families tell their own splits apart
        learned |= {*chosen.graphs, *(graph for graph, _ in of_suites)}
        if both := [spec for spec in (*tested, *chosen.test_graphs) if spec in learned]:
            raise InputError(f"{both[0]!r} is among the graphs to train on and among those to evaluate on; choose one")
        placed: dict[str, list[Cluster]] = {}
        for graph, cluster in of_suites if is_trained_on else ():
            placed.setdefault(graph, []).append(load_cluster(cluster))
        suites = [(graph, tuple(several)) for graph, several in placed.items()]
        return cls(chosen, is_trained_on, (*((spec, clusters) for spec in (*families, *graphs)), *suites))

    def problems(self, seed: int = 0, capture: Callable[[str], OpGraph] | None = None) -> list[Problem]:
        """Each graph on each of its clusters.

        For training, `seed` draws the randomised copies of the clusters, again for each graph, which of all variants of
        a graph (groups, cluster, copy) are kept, if not all are, and which of these are forward passes or have other
        times. `capture` turns a spec into a graph; each is captured again unless it is given. Raises InputError as
        `timed` does, and for a split to evaluate on that is empty.
        """
        capture = capture or load_graph
        rng = np.random.default_rng(seed if self.is_trained_on else TESTED)
        if self.is_trained_on:
            return self._to_train_on(seed, rng, capture)
        if not self.sources:
            raise InputError("the recipe names nothing to evaluate on; give it test_graphs, or name a suite")
        chosen, problems = self.chosen, list[Problem]()
        for graph, clusters in self._graphs(rng, capture):
            tied = tie_ops(graph, chosen.test_groups)
            for cluster in clusters:
                runtime = drawn_runtime(chosen.runtimes, cluster, rng)
                problems.append(timed(Problem(tied, cluster, chosen.optimizer, runtime=runtime)))
        return problems

    def _to_train_on(self, seed: int, rng: np.random.Generator, capture: Callable[[str], OpGraph]) -> list[Problem]:
        chosen = self.chosen
        problems = labelled_chains(
            chosen.chains.trained_on, chosen.chains.problems, optimizer=chosen.optimizer, runtimes=chosen.runtimes
        )
        for graph, clusters in chain(self._graphs(rng, capture), self._mixed(seed, capture)):
            variants = list(_variants(chosen, clusters, rng))
            if 0 < chosen.variants < len(variants):
                variants = [variants[i] for i in sorted(rng.choice(len(variants), chosen.variants, replace=False))]
            tied = cache(partial(_tied, graph))
            for groups, cluster in variants:
                forward = happens(chosen.forward, rng)
                share = one_of(SHARES, rng) if not forward and happens(chosen.frozen, rng) else 0.0
                problems.append(_varied(chosen, tied(groups, forward, share), cluster, rng))
        return problems

    def _graphs(
        self, rng: np.random.Generator, capture: Callable[..., OpGraph]
    ) -> Iterator[tuple[OpGraph, tuple[Cluster, ...]]]:
        for spec, clusters in progress(self.sources, "capturing models", unit="model", leave=False):
            yield _in_precision(capture, one_of(self.chosen.precisions, rng))(spec), clusters

    def _mixed(self, seed: int, capture: Callable[..., OpGraph]) -> Iterator[tuple[OpGraph, tuple[Cluster, ...]]]:
        """Further graphs of the families, of mixed knobs, on the same clusters; those of a family in one precision."""
        families = self.chosen.families if self.chosen.mixed else ()
        for family in progress(families, "mixing the knobs of models", unit="model", leave=False):
            rng = np.random.default_rng((seed, *family.encode()))
            captured = _in_precision(capture, one_of(self.chosen.precisions, rng))
            for graph in mixed_graphs(family, self.chosen.mixed, rng, captured):
                yield graph, self.sources[0][1]


def load_problems(
    chosen: ProblemSet,
    which: Literal["train", "test"] = "train",
    seed: int = 0,
    capture: Callable[[str], OpGraph] | None = None,
) -> list[Problem]:
    """The problems of a split of a problem set, as `ProblemSplit` opens it and captures its graphs."""
    return ProblemSplit.of(chosen, which).problems(seed, capture)


def opened_split(recipe: Recipe) -> ProblemSplit:
    """What a recipe trains on. Raises InputError, before anything is captured, for what it names and there is not."""
    ProblemSplit.of(recipe.problems, "test")
    for folder, reward in (("training.ppo_rewards", recipe.ppo.reward), ("envs.rewards", recipe.rules.reward)):
        by_name.check(folder, reward)
    return ProblemSplit.of(recipe.problems, "train")


def training_problems(recipe: Recipe, seed: int, capture: Callable[[str], OpGraph]) -> LearnedProblems:
    """What a run of a recipe learns from. Raises InputError as `opened_split`, and as `ProblemSplit.problems`."""
    return opened_split(recipe).problems(seed, capture), renewed_problems(recipe.problems, seed)


def renewed_problems(chosen: ProblemSet, seed: int) -> RenewedProblems | None:
    """The random problems of a problem set, if it asks for any."""
    world = chosen.world
    return RenewedProblems(world, seed, chosen.optimizer, chosen.runtimes) if world.problems else None


def validation_problems(recipe: Recipe, capture: Callable[[str], OpGraph] | None = None) -> list[Problem]:
    """What a run is validated on: random problems of kinds held out or, without such, problems to evaluate on."""
    chosen, count = recipe.problems, recipe.validation.problems if recipe.validation.every else 0
    if count and not chosen.held_out:
        tested = load_problems(chosen, "test", capture=capture)
        return tested[:: -(-len(tested) // count)]
    if chosen.chains.held_out:
        return labelled_chains(chosen.chains.held_out, count, optimizer=chosen.optimizer, runtimes=chosen.runtimes)
    return world_problems(
        chosen.world.held_out, seed=VALIDATION, count=count, settings=chosen.world, runtimes=chosen.runtimes,
        optimizer=chosen.optimizer,
    )  # fmt: skip


def _variants(
    chosen: ProblemSet, clusters: Sequence[Cluster], rng: np.random.Generator
) -> Iterator[tuple[int, Cluster]]:
    """The ways in which a graph may be met: a number of groups, and a cluster or a randomised copy of one."""
    for groups in chosen.groups:
        for cluster in clusters:
            yield groups, cluster
            for _ in range(chosen.randomised):
                unequal = happens(chosen.unequal, rng)
                yield groups, randomised(cluster, chosen.spread, rng, unequal=unequal, slow=chosen.slow)


def _varied(chosen: ProblemSet, graph: OpGraph, cluster: Cluster, rng: np.random.Generator) -> Problem:
    """A problem to train on, by what is drawn of how it is timed and run, and of how much memory there is."""
    problem = Problem(graph, cluster, chosen.optimizer)
    problem = timed(problem, AUTO if happens(chosen.calibrated, rng) else None)
    if happens(chosen.measured, rng):
        problem = with_other_times(problem, rng)
    problem = replace(problem, runtime=drawn_runtime(chosen.runtimes, cluster, rng))
    return with_scarce_memory(problem, rng) if happens(chosen.scarce, rng) else problem


def _in_precision(capture: Callable[..., OpGraph], word: str) -> Callable[[str], OpGraph]:
    """What captures graphs in a precision."""
    return capture if word == AS_IT_IS else lambda spec: capture(graph_source(spec).in_precision(word))


def _tied(graph: OpGraph, groups: int, forward: bool, frozen_share: float) -> OpGraph:
    if frozen_share:
        graph = frozen(graph, frozen_share)
    return tie_ops(forward_pass(graph) if forward else graph, groups)
