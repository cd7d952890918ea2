"""What the study of regimes found: a policy over its best rival at equal seconds, and over the best known plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from evaluation.records.journal import records
from evaluation.records.record import Record
from evaluation.records.statistics import NOTHING, Estimate, geometric_mean
from evaluation.studies.frame import EQUAL_TIMES, Against, Frame, family_of
from evaluation.studies.regimes.equal_seconds import (
    ANNEALING,
    BEST,
    GREEDY,
    LIMITED_FORMS,
    SEARCHES,
    ComparedPlacers,
    journal_of,
    seconds_of,
)  # fmt: skip
from evaluation.studies.regimes.rows import LONG, ROWS, Limit, Row
from graphs.foundation import by_name

BEST_CHEAP = "cheap placers, one after another"  # the best of those that the seconds suffice for, the quickest first
BEST_KNOWN = "best known"  # of all that is done of a problem, long searches included
FORMS = (GREEDY, *LIMITED_FORMS)  # of a policy, at equal seconds
COUNTED = "annealing that is timed"  # with as many simulations as the limit is named after: the mean of its seeds
RIVALS = (*SEARCHES, COUNTED, BEST_CHEAP, "metis", "heft")
LONGER = 1.1  # times the seconds: what takes longer is no answer in these seconds


class Answer(NamedTuple):
    """Whether a policy gains on a row what it is to gain."""

    form: str  # of the policy, the fastest of those that keep to the seconds; "" if none does
    rival: str
    gain: float  # share by which its steps are faster
    goal: float
    headroom: float  # the same of the best known plans; NaN without long searches

    @property
    def holds(self) -> bool:
        """It does."""
        return bool(self.form) and self.gain >= self.goal

    @property
    def in_words(self) -> str:
        """Yes or no; then also whether even the best known plans would gain less than is asked."""
        if self.holds:
            return "yes"
        return "no, more than the headroom" if self.goal > self.headroom else "no"


@dataclass(frozen=True)
class AtLimit:
    """All that is compared on a row at a limit of seconds."""

    row: Row
    limit: Limit
    frame: Frame
    allowed: Mapping[str, float]  # processor seconds, by problem
    taken: Mapping[str, float]  # times that, of forms and rivals: geometric means
    long: float  # processor seconds of each long search of a problem; 0 where one of the problems had none

    @property
    def seconds(self) -> float:
        """What is allowed, geometric mean over problems."""
        return float(geometric_mean(np.array(list(self.allowed.values()))))

    @cached_property
    def best_rival(self) -> str:
        """The rival whose plans fit on most problems, and whose steps are then the shortest."""

        def rank(rival: str) -> tuple[int, float]:
            over = self.frame.against(rival, BEST_KNOWN)
            return over.unfit + len(
                self.frame.problems
            ) - over.problems, over.ratio.value if over.ratio.count else np.inf

        return min(RIVALS, key=rank)

    def against(self, form: str) -> Against:
        """A form of the policy, or best known plans, over the best rival; each kind or family is drawn by itself."""
        return self.frame.against(form, self.best_rival, stratum=family_of)

    @property
    def headroom(self) -> Estimate:
        """The share by which steps of the best known plans are shorter than those of the best rival's."""
        if not self.long:
            return NOTHING
        ratio = self.against(BEST_KNOWN).ratio
        return Estimate(1 - ratio.value, 1 - ratio.high, 1 - ratio.low, ratio.count)

    @property
    def answer(self) -> Answer:
        """What is asked of the row at this limit, answered."""
        goal, headroom = self.row.goals[self.limit], self.headroom.value
        in_time = [form for form in FORMS if self.taken.get(form, np.inf) <= LONGER and self.against(form).ratio.count]
        if not in_time:
            return Answer("", self.best_rival, np.nan, goal, headroom)
        form = min(in_time, key=lambda each: (self.against(each).unfit, self.against(each).ratio.value))
        return Answer(form, self.best_rival, 1 - self.against(form).ratio.value, goal, headroom)


@dataclass(frozen=True)
class RowFindings:
    """All that is done of a row."""

    row: Row
    limits: Sequence[AtLimit]
    unlimited: Frame
    long: float  # as in `AtLimit`

    def over_best_known(self, who: str) -> Estimate:
        """Step times over those of the best plan that anything found, long searches included."""
        return self.unlimited.against(who, BEST_KNOWN, stratum=family_of).ratio


def behind(found: Iterable[RowFindings]) -> list[AtLimit]:
    """Where no form of the policy that keeps to the seconds is as fast as the best rival: the largest loss first."""
    losses = [at for each in found for at in each.limits if at.answer.gain < -EQUAL_TIMES]
    return sorted(losses, key=lambda at: at.answer.gain)


def found_of(name: str, field: ComparedPlacers, out: Path, suffix: str) -> tuple[RowFindings | None, list[Record]]:
    """What is done of a row, if anything is, and its records. Raises InputError for a damaged journal."""
    row = ROWS[name]
    journals = {limit: records(journal_of(out, name, limit, suffix)) for limit in (None, *row.goals, LONG)}
    every = [record for some in journals.values() for record in some]
    if not every:
        return None, []
    best = list(_best(every).values())
    known = [(BEST_KNOWN, record) for record in best]
    unlimited = [_entry(record, field, limited=False) for record in journals[None]]
    long = _least_long(journals[LONG], {record.problem for record in every})
    limits = []
    for limit in row.goals:
        allowed = seconds_of(limit, journals[limit])
        given = [each for each in journals[limit] if _seconds(each) == allowed.get(each.problem)]
        here = [_entry(record, field, limited=True) for record in given]
        here += [
            (COUNTED, each) for each in journals[limit] if (each.placer, each.budget) == (ANNEALING, limit.simulations)
        ]
        there = [(who, each) for who, each in unlimited if who != BEST and each.problem in allowed]
        cheap = list(_best_cheap([each for who, each in there if who != GREEDY], allowed))
        if here:
            entries = [*here, *there, *cheap, *((who, each) for who, each in known if each.problem in allowed)]
            limits.append(AtLimit(row, limit, Frame.of(entries), allowed, _taken([*here, *there], allowed), long))
    done = {record.problem for _, record in unlimited}
    whole = Frame.of([*unlimited, *((who, each) for who, each in known if each.problem in done)])
    return RowFindings(row, limits, whole, long), every


def _entry(record: Record, field: ComparedPlacers, *, limited: bool) -> tuple[str, Record]:
    """A form of a policy, each policy as a seed, or a rival, with its record."""
    who, number = field.entry(record.placer, limited=limited)
    return who, replace(record, seed=number) if who in (*FORMS, BEST) else record


def _least_long(found: Iterable[Record], problems: Iterable[str]) -> float:
    """Processor seconds that the longest search of each problem had, the least over problems; 0 if one had none."""
    longest = dict.fromkeys(problems, 0.0)
    for record in found:
        longest[record.problem] = max(longest[record.problem], _seconds(record))
    return min(longest.values())


def _best(found: Iterable[Record]) -> dict[str, Record]:
    """The fastest plan that fits of each problem that has one."""
    best: dict[str, Record] = {}
    for record in found:
        if record.fits and (record.problem not in best or record.step_seconds < best[record.problem].step_seconds):
            best[record.problem] = replace(record, seed=0)
    return best


def _best_cheap(cheap: Sequence[Record], allowed: Mapping[str, float]) -> Iterator[tuple[str, Record]]:
    """Of each problem the best of the cheap plans that are found in its seconds; the quickest one in any case."""
    for problem, seconds in allowed.items():
        some = sorted((each for each in cheap if each.problem == problem), key=lambda each: each.search_seconds)
        ends = np.cumsum([each.search_seconds for each in some])
        in_time = some[: max(int((ends <= seconds).sum()), 1)]
        if in_time:
            yield BEST_CHEAP, min(in_time, key=lambda each: (not each.fits, each.step_seconds))


def _taken(entries: Iterable[tuple[str, Record]], allowed: Mapping[str, float]) -> dict[str, float]:
    """Seconds over those that are allowed, of each form and rival: geometric means."""
    ratios: dict[str, list[float]] = {}
    for who, record in entries:
        ratios.setdefault(who, []).append(max(record.search_seconds, 1e-6) / allowed[record.problem])
    return {who: float(geometric_mean(np.array(some))) for who, some in ratios.items()}


def _seconds(record: Record) -> float:
    """The limit that a placer's name tells."""
    return float(by_name.parse(record.placer)[1].get("seconds", "nan"))
