"""What the study of the released policy found: step times of plans that fit, over those of a rival, per problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from evaluation.comparison import Comparison
from evaluation.record import Record
from evaluation.statistics import Estimate, estimate
from evaluation.studies.released_parts import ANNEALING, CHEAP, FEW, REFERENCE, budgets
from graphs.suites import KEPT_ASIDE

SAME = 1e-3  # a relative difference of two step times that is none


class Entry(NamedTuple):
    """A placer, and what the searches of its comparison may simulate."""

    placer: str
    budget: int = FEW


BEST_CHEAP = Entry("the best cheap placer of each graph")  # not a placer's name: the fastest of CHEAP on each problem
LONG_SEARCH = Entry(ANNEALING, REFERENCE)


@dataclass(frozen=True)
class Against:
    """An entry against a rival, over the problems on which both have placed."""

    ratio: Estimate  # geometric mean of its step time over the rival's, where both plans fit
    wins: int  # it is faster, or fits where the rival's plan does not
    losses: int  # the other way round
    problems: int
    unfit: int  # its plan does not fit where the rival's does

    @property
    def ties(self) -> int:
        """Times that are the same; or neither fits."""
        return self.problems - self.wins - self.losses


@dataclass(frozen=True)
class Part:
    """The records of a part of the study, by the budget of searches."""

    name: str
    records: Mapping[int, Sequence[Record]]

    @cached_property
    def problems(self) -> tuple[str, ...]:
        """In the order in which they were first placed."""
        every = (record.problem for records in self.records.values() for record in records)
        return tuple(dict.fromkeys(every))

    @cached_property
    def seeds(self) -> int:
        """How many there are at most."""
        return len({record.seed for records in self.records.values() for record in records})

    def seconds(self, entry: Entry) -> dict[str, float]:
        """Of each problem that it has placed, the geometric mean over seeds; infinite if a plan does not fit."""
        if entry == BEST_CHEAP:
            return {problem: seconds for problem, (seconds, _) in self.best_cheap.items()}
        return self._seconds.get(entry, {})

    @cached_property
    def best_cheap(self) -> dict[str, tuple[float, str]]:
        """Of each problem, the least step time of the cheap placers' fitting plans, and who has it."""
        least: dict[str, tuple[float, str]] = {}
        for placer in CHEAP:
            for problem, seconds in self._seconds.get(Entry(placer), {}).items():
                if problem not in least or seconds < least[problem][0]:
                    least[problem] = seconds, placer
        return least

    def against(self, entry: Entry, rival: Entry, problems: Collection[str] | None = None) -> Against:
        """An entry against a rival, on some of the problems, or on all."""
        own, other = self.seconds(entry), self.seconds(rival)
        asked = self.problems if problems is None else problems
        both = [problem for problem in asked if problem in own and problem in other]
        pairs = [(own[problem], other[problem]) for problem in both]
        ratios = np.array([a / b for a, b in pairs if math.isfinite(a) and math.isfinite(b)])
        return Against(
            ratio=estimate([ratios]),
            wins=sum(a < b * (1 - SAME) for a, b in pairs),
            losses=sum(b < a * (1 - SAME) for a, b in pairs),
            problems=len(pairs),
            unfit=sum(math.isinf(a) and math.isfinite(b) for a, b in pairs),
        )

    def unfit(self, entry: Entry, problems: Collection[str] | None = None) -> int:
        """On how many problems its plan does not fit, of whichever seed."""
        seconds = self.seconds(entry)
        asked = self.problems if problems is None else problems
        return sum(math.isinf(seconds.get(problem, 0.0)) for problem in asked)

    def missing(self) -> dict[Entry, int]:
        """Who has no plan for how many problems: not done yet, or failed."""
        every = (Entry(placer, budget) for budget, allowed in budgets(self.name).items() for placer in allowed)
        count = {entry: len(self.problems) - len(self._seconds.get(entry, {})) for entry in every}
        return {entry: number for entry, number in count.items() if number}

    def apart(self, key: Callable[[str], str]) -> dict[str, list[str]]:
        """The problems by a key of their names, in its order."""
        groups: dict[str, list[str]] = {}
        for problem in self.problems:
            groups.setdefault(key(problem), []).append(problem)
        return dict(sorted(groups.items()))

    @cached_property
    def _seconds(self) -> dict[Entry, dict[str, float]]:
        found: dict[Entry, dict[str, float]] = {}
        for budget, records in self.records.items():
            comparison = Comparison(tuple(records))
            table = np.where(comparison.fits, comparison.objective_seconds, np.inf)
            for column, placer in enumerate(comparison.placers):
                there = np.flatnonzero(~np.isnan(comparison.objective_seconds[:, column]))
                found[Entry(placer, budget)] = {comparison.problems[row]: float(table[row, column]) for row in there}
        return found


def family_of(problem: str) -> str:
    """The family of a problem's model, or the name of its file."""
    return graph_of(problem).partition(":")[0]


def graph_of(problem: str) -> str:
    """A problem's model."""
    return problem.rpartition("@")[0]


def cluster_of(problem: str) -> str:
    """Where it is placed."""
    return problem.rpartition("@")[2]


def is_kept_aside(problem: str) -> bool:
    """Whether the policy was trained on no model of the family."""
    return family_of(problem) in KEPT_ASIDE
