"""Frame: step times by placer, seed and problem, and their ratios with intervals.

frame = Frame.of((record.placer, record) for record in records)
frame.ratio("heft", "metis")                          # over seeds and problems
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
from evaluation.records.statistics import Estimate, crossed, estimate, geometric_mean
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

    @classmethod
    def of(
        cls,
        records: Iterable[tuple[Hashable, Record | Failure]],
        *,
        problems: Iterable[str] = (),
        seeds: Iterable[int] = (),
        best_of: Mapping[Hashable, Sequence[Hashable]] | None = None,
    ) -> Frame:
        """From placers and their records; rows and columns keep this order, after the given seeds and problems.

        A failure counts as a plan that does not fit.
        """
        given, seeds = list(records), tuple(seeds)
        columns = tuple(dict.fromkeys([*problems, *(record.problem for _, record in given)]))
        index = {problem: column for column, problem in enumerate(columns)}
        seconds: dict[Hashable, dict[int, Floats]] = {}
        for who, record in given:
            rows = seconds.setdefault(who, {seed: np.full(len(columns), np.nan) for seed in seeds})
            row = rows.setdefault(record.seed, np.full(len(columns), np.nan))
            found = record.objective_seconds if isinstance(record, Record) and record.fits else math.inf
            row[index[record.problem]] = found
        return cls(columns, seconds, best_of or {})

    @cached_property
    def means(self) -> Mapping[Hashable, Floats]:
        """Of each placer, (problems,) geometric means over seeds; infinite if a plan of any seed does not fit."""
        absent = np.full(len(self.problems), np.nan)
        found = {who: _means(self.table(who)) for who in self.seconds}
        best = {
            who: np.fmin.reduce([absent, *(found[each] for each in some if each in found)])
            for who, some in self.best_of.items()
        }
        return defaultdict(lambda: absent, found | best)

    @cached_property
    def num_seeds(self) -> int:
        """The number of seeds that any placer has."""
        return len({seed for rows in self.seconds.values() for seed in rows})

    def table(self, who: Hashable) -> Floats:
        """(seeds, problems) seconds."""
        return self._stacked(list(self.seconds.get(who, {}).values()))

    def best(self, some: Iterable[Hashable] | None = None) -> Floats:
        """(problems,) the least seconds of any plan that fits, or of some placers' plans; NaN without one."""
        tables = np.concatenate([self._stacked([]), *map(self.table, self.seconds if some is None else some)])
        least: Floats = np.fmin.reduce(np.where(np.isfinite(tables), tables, np.nan), axis=0, initial=np.nan)
        return least

    def ratios(self, own: Hashable, rival: Hashable | Floats) -> Floats:
        """(seeds, problems) ratios where both plans fit, else NaN, of the seeds that both have.

        The rival is a placer in the frame, or (problems,) seconds.
        """
        return _ratio(*self._paired(own, rival))

    def ratio(self, own: Hashable, rival: Hashable | Floats, problems: Collection[str] | None = None) -> Estimate:
        """Geometric mean of the ratios on some of the problems, or on all; its interval is over seeds and problems."""
        return crossed(self.ratios(own, rival)[:, self.columns(problems)])

    def against(self, own: Hashable, rival: Hashable, problems: Collection[str] | None = None) -> Against:
        """Means over seeds against a rival's, on some of the problems, or on all; the interval is over problems."""
        columns = self.columns(problems)
        mine, theirs = self.means[own][columns], self.means[rival][columns]
        ratios = _ratio(mine, theirs)
        return _against(estimate([ratios[np.isfinite(ratios)]]), mine, theirs)

    def placed(self, who: Hashable, seed: int | None = None) -> set[str]:
        """The problems that it has a plan for, with one seed or with any."""
        rows = [row for own, row in self.seconds.get(who, {}).items() if seed in (None, own)]
        there = ~np.isnan(self._stacked(rows))
        return {self.problems[column] for column in np.flatnonzero(there.any(axis=0))}

    def unfit(self, who: Hashable, problems: Collection[str] | None = None) -> int:
        """On how many problems the plan of any seed does not fit."""
        return int(np.isinf(self.means[who][self.columns(problems)]).sum())

    def fitting(self, who: Hashable) -> float:
        """Share of the plans that fit; NaN without any."""
        there = (table := self.table(who))[~np.isnan(table)]
        return float(np.isfinite(there).mean()) if len(there) else math.nan

    def columns(self, problems: Collection[str] | None = None) -> list[int]:
        """Where some problems are, or all."""
        return [column for column, name in enumerate(self.problems) if problems is None or name in problems]

    def apart(self, key: Callable[[str], str]) -> dict[str, list[str]]:
        """The problems by a key of their names, in the order of the keys."""
        groups: dict[str, list[str]] = {}
        for problem in self.problems:
            groups.setdefault(key(problem), []).append(problem)
        return dict(sorted(groups.items()))

    def _paired(self, own: Hashable, rival: Hashable | Floats) -> tuple[Floats, Floats]:
        """(seeds, problems) of both, of the seeds that both have."""
        mine = self.seconds.get(own, {})
        theirs = dict.fromkeys(mine, rival) if isinstance(rival, np.ndarray) else self.seconds.get(rival, {})
        seeds = [seed for seed in mine if seed in theirs]
        return self._stacked([mine[seed] for seed in seeds]), self._stacked([theirs[seed] for seed in seeds])

    def _stacked(self, rows: Sequence[Floats]) -> Floats:
        return np.array(rows, np.float64).reshape(len(rows), len(self.problems))


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
