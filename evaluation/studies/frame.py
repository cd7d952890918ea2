"""Frame: step times by placer, seed and problem, and their ratios with intervals.

frame = Frame.of((record.placer, record) for record in records)
frame.against("heft", "metis")                        # over problems, with wins and losses
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from evaluation.records.record import Failure, Record
from evaluation.records.statistics import Estimate, estimate, geometric_mean
from graphs.op_graph import Bools, Floats

EQUAL_TIMES = 1e-3  # two step times with a smaller relative difference are equal


@dataclass(frozen=True)
class Against:
    """A placer against a rival, over the problems on which both have placed."""

    ratio: Estimate  # geometric mean of its seconds over the rival's, where both plans fit
    wins: int  # it is faster, or fits where the rival's plan does not
    losses: int  # the other way round
    problems: int
    unfit: int  # its plan does not fit where the rival's does


@dataclass(frozen=True)
class Frame:
    """Seconds of the objective; infinite where a plan does not fit, NaN where there is none.

    The name of a placer is any key of a dictionary. A name may also stand for the best of several placers: for each
    problem the least of their means.
    """

    problems: tuple[str, ...]
    seconds: Mapping[Hashable, Mapping[int, Floats]]  # placer -> seed -> (problems,)
    best_of: Mapping[Hashable, Sequence[Hashable]] = field(default_factory=dict)
    spent: Mapping[Hashable, Sequence[float]] = field(default_factory=dict)  # seconds of the processor, of each plan

    @classmethod
    def of(
        cls,
        records: Iterable[tuple[Hashable, Record | Failure]],
        best_of: Mapping[Hashable, Sequence[Hashable]] | None = None,
    ) -> Frame:
        """From placers and their records, in this order; a failure counts as a plan that does not fit."""
        given = list(records)
        columns = tuple(dict.fromkeys(record.problem for _, record in given))
        index = {problem: column for column, problem in enumerate(columns)}
        seconds: dict[Hashable, dict[int, Floats]] = {}
        spent: dict[Hashable, list[float]] = defaultdict(list)
        for who, record in given:
            row = seconds.setdefault(who, {}).setdefault(record.seed, np.full(len(columns), np.nan))
            found = record.objective_seconds if isinstance(record, Record) and record.fits else math.inf
            row[index[record.problem]] = found
            if isinstance(record, Record):
                spent[who].append(record.search_seconds)
        return cls(columns, seconds, best_of or {}, spent)

    @cached_property
    def means(self) -> Mapping[Hashable, Floats]:
        """Of each placer, (problems,) geometric means over seeds; infinite if a plan of any seed does not fit."""
        absent = np.full(len(self.problems), np.nan)
        found = {who: _means(np.array([*rows.values()])) for who, rows in self.seconds.items()}
        best = {
            who: np.fmin.reduce([absent, *(found[each] for each in some if each in found)])
            for who, some in self.best_of.items()
        }
        return defaultdict(lambda: absent, found | best)

    @cached_property
    def num_seeds(self) -> int:
        """The number of seeds that any placer has."""
        return len({seed for rows in self.seconds.values() for seed in rows})

    def against(
        self, own: Hashable, rival: Hashable, problems: Collection[str] | None = None,
        *, stratum: Callable[[str], str] | None = None,
    ) -> Against:  # fmt: skip
        """Means over seeds against a rival's, on some of the problems, or on all; the interval is over problems.

        A `stratum` of problems, by their names, is drawn from by itself, as many times as it has problems.
        """
        columns = self._columns(problems)
        mine, theirs = self.means[own][columns], self.means[rival][columns]
        ratios = _ratio(mine, theirs)
        strata: dict[str | None, list[float]] = {}
        for column, ratio in zip(columns, ratios.tolist(), strict=True):
            if math.isfinite(ratio):
                strata.setdefault(stratum and stratum(self.problems[column]), []).append(ratio)
        return _against(estimate([np.array(some) for some in strata.values()]), mine, theirs)

    def unfit(self, who: Hashable, problems: Collection[str] | None = None) -> int:
        """On how many problems the plan of any seed does not fit."""
        return int(np.isinf(self.means[who][self._columns(problems)]).sum())

    def takes(self, who: Hashable) -> float:
        """Seconds of the processor that a placer takes, mean over plans; of the best of several, what all take."""
        return sum(float(np.mean(self.spent[each])) for each in self.best_of.get(who, [who]) if self.spent.get(each))

    def apart(self, key: Callable[[str], str]) -> dict[str, list[str]]:
        """The problems by a key of their names, in the order of the keys."""
        groups: dict[str, list[str]] = {}
        for problem in self.problems:
            groups.setdefault(key(problem), []).append(problem)
        return dict(sorted(groups.items()))

    def _columns(self, problems: Collection[str] | None) -> list[int]:
        """Where some problems are, or all."""
        return [column for column, name in enumerate(self.problems) if problems is None or name in problems]


def faster(own: Floats, other: Floats, *, by: float = EQUAL_TIMES) -> Bools:
    """Whether seconds are less than others by this share of them, or finite where the others are not."""
    return np.isfinite(own) & (own <= (1 - by) * other)


def graph_of(problem: str) -> str:
    """A problem's model."""
    return problem.rpartition("@")[0]


def cluster_of(problem: str) -> str:
    """Where it is placed."""
    return problem.rpartition("@")[2]


def family_of(problem: str) -> str:
    """The family of a problem's model, or the name of its file."""
    return graph_of(problem).partition(":")[0]


def _against(ratio: Estimate, own: Floats, rival: Floats) -> Against:
    return Against(
        ratio=ratio,
        wins=int(faster(own, rival).sum()),
        losses=int(faster(rival, own).sum()),
        problems=int((~np.isnan(own) & ~np.isnan(rival)).sum()),
        unfit=int((np.isinf(own) & np.isfinite(rival)).sum()),
    )


def _ratio(own: Floats, other: Floats) -> Floats:
    """NaN unless both are finite."""
    both = np.isfinite(own) & np.isfinite(other)
    return np.where(both, own, np.nan) / np.where(both, other, np.nan)


def _means(table: Floats) -> Floats:
    """(seeds, problems) -> (problems,), over the seeds that there are."""
    there = (column[~np.isnan(column)] for column in table.T)
    return np.array([geometric_mean(column) if len(column) else np.nan for column in there])
