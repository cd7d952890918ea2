"""Annealing's compiled loop against the same search in plain Python: how fast it is, and whether it finds the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from envs.objectives import evaluator_of
from graphs.files.load import load_cluster, load_graph
from graphs.files.suites import gdp12
from graphs.foundation.progress import progress
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.annealing import Annealing
from placers.metis import Metis
from placers.search.evaluations import Evaluations
from placers.search.local_search import LocalSearch
from placers.search.metropolis import CoolingSchedule
from tests.benchmarks.figures import Figure, at_least, least_seconds, reported
from tests.oracle.plain_annealing import PlainAnnealing

GROUPS = 64
TIMED = (("bert:bert-base", "p100:devices=4", 2.0), ("gnmt:gnmt-2", "p100:devices=2", 1.3))  # at least so much faster
SIMULATIONS = 1_000
HOT, COLD = Annealing.hot, Annealing.cold


def measure(
    timed: tuple[tuple[str, str, float], ...] = TIMED, compared: tuple[tuple[str, str], ...] | None = None,
    groups: int = GROUPS, simulations: int = SIMULATIONS,
) -> Iterator[Figure]:  # fmt: skip
    """Simulations per second from METIS's placement, and how many problems both place alike: GDP's, unless given."""
    for graph, cluster, bound in timed:
        search = Pair(graph, cluster, groups, simulations)
        plain, ours = least_seconds(search.plain, search.ours, rounds=5)
        yield at_least(bound, f"annealing in plain Python / compiled, {graph} on {cluster}", plain / ours)
        yield reported(f"simulations per second, {graph} on {cluster}", simulations / ours, "")
    pairs = gdp12() if compared is None else compared
    searches = (Pair(*pair, groups, simulations) for pair in progress(pairs, "searches", unit="search", leave=False))
    same = sum(np.array_equal(search.plain(), search.ours()) for search in searches)
    yield at_least(len(pairs), f"problems that both place alike, {simulations:,} simulations each", same, "")


class Pair:
    """One search in both ways, from the same start with the same random numbers."""

    def __init__(self, graph: str, cluster: str, groups: int, simulations: int) -> None:
        self._problem = Problem(load_graph(graph, groups=groups), load_cluster(cluster))
        self._start = Metis().place(self._problem, budget=0).plan.per_unit(self._problem)
        self._evaluator, self._simulations = evaluator_of(self._problem), simulations

    def plain(self) -> Ints:
        """(units,) the best placement found step by step."""
        search = PlainAnnealing(self._evaluator, self._start, np.random.default_rng(0), self._simulations)
        search.run(HOT, COLD)
        return search.best

    def ours(self) -> Ints:
        """(units,) the best placement found by the compiled loop."""
        evaluations = Evaluations(self._problem, self._start)
        evaluations.evaluator = self._evaluator
        evaluations.energies(self._start[None])
        search = LocalSearch(self._problem, np.random.default_rng(0), evaluations)
        while left := self._simulations - evaluations.simulations:
            search.take_steps(CoolingSchedule(HOT, COLD, self._simulations), left)
        return evaluations.best
