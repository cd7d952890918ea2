"""Placers with equal processor seconds: what annealing takes for some simulations is measured, and all others have it.

Each row of the study has a journal of what has no limit (cheap placers, a policy's greedy answer and its best of
sixteen), and one for each limit: in that, annealing with as many simulations comes first, and how long it takes is the
limit of the others on the same problem. All of it is measured in one process, once compiled code is loaded. Last are
searches with a far larger limit, for their plans alone: they show how much there is to gain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.comparing.compare import compare
from evaluation.records.journal import records
from evaluation.records.record import Failure, Record
from evaluation.studies.comparisons import CHEAP
from evaluation.studies.problems import Problems
from evaluation.studies.regimes.rows import FEWEST, ROWS, Limit
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.progress import progress
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.contract.time_limit import Seconds
from placers.learned.lookup import placer_of
from placers.search.first_fit import MOST

if TYPE_CHECKING:
    from placers.learned.learned_placer import PolicyPlacer

ANNEALING = "annealing"
SEARCHES = (ANNEALING, "hill_climbing")  # the rivals that stop when the seconds are over
FEW = 16  # samples of a policy, to compare with the best known
REPEATS = 3  # of the annealing that is timed; the least counts
WARM_UP = Seconds(0.02)  # what everything has once, unrecorded, on the first problem of a row

GREEDY, BEST, SAMPLES, SEARCH = "greedy", f"best of {FEW}", "samples", "search from it"
LIMITED_FORMS = SAMPLES, SEARCH  # of a policy, that stop when the seconds are over


@dataclass(frozen=True)
class ComparedPlacers:
    """All that is compared: policies, of one training each with another seed, and their rivals."""

    policies: Sequence[PolicyPlacer[Any]]
    searches: Sequence[Placer]  # annealing that begins with each policy

    @classmethod
    def of(cls, specs: Iterable[str]) -> ComparedPlacers:
        """With `default` or the folders of runs. Raises InputError for what is neither."""
        from placers.learned.learned_placer import PolicyPlacer  # with torch, a second to import

        policies = []
        for spec in specs:
            if spec != "default" and not Path(spec).is_dir():
                raise InputError(f"--policy {spec}: there is no such folder; give `default` or the folder of a run")
            if not isinstance(policy := placer_of(spec), PolicyPlacer):
                raise InputError(f"--policy {spec}: it has no policy that places ops; give `default` or another run")
            policies.append(policy)
        return cls(policies, [by_name.build("placers", f"{ANNEALING}:policy={spec}") for spec in specs])

    @property
    def unlimited(self) -> dict[Placer, int]:
        """What has no limit, and how much it may simulate: greedy plans once, and more where they do not fit."""
        cheap = dict.fromkeys((by_name.build("placers", each) for each in CHEAP), 1)
        return {**cheap, **{_greedy(each): 1 + MOST for each in self.policies}, **dict.fromkeys(self.policies, FEW)}

    def limited(self, *, samples: bool = True) -> list[Placer]:
        """What stops when its seconds are over; without `samples` only searches."""
        drawn = self.policies if samples else ()
        return [*(by_name.build("placers", each) for each in SEARCHES), *drawn, *self.searches]

    def entry(self, placer: str, *, limited: bool) -> tuple[str, int]:
        """A form of a policy and its number among the policies, or a rival and 0, by a placer's name in a journal."""
        bare = _without_limit(placer)
        for number, (policy, search) in enumerate(zip(self.policies, self.searches, strict=True)):
            forms = {search.name: SEARCH, policy.name: SAMPLES} if limited else {policy.name: BEST}
            forms |= {_greedy(policy).name: GREEDY}
            if bare in forms:
                return forms[bare], number
        return bare, 0


def journal_of(out: Path, row: str, limit: Limit | None, suffix: str = "") -> Path:
    """Where the records of a row are kept, with a limit or without."""
    return out / f"{row}-{limit.key if limit else 'unlimited'}{suffix}.jsonl"


def seconds_of(limit: Limit, found: Iterable[Record]) -> dict[str, float]:
    """The processor seconds that everything has on each problem of a journal."""
    taken: dict[str, list[float]] = {}
    for record in found:
        if not limit.simulations or (record.placer, record.budget) == (ANNEALING, limit.simulations):
            taken.setdefault(record.problem, []).append(record.search_seconds)
    return {problem: limit.seconds or _rounded(min(several)) for problem, several in taken.items()}


def do_row(
    row: str, problems: Problems, limits: Iterable[Limit], field: ComparedPlacers, out: Path, suffix: str
) -> list[Failure]:
    """Do what the journals of a row do not hold yet; failures are tried again each time, and returned."""
    journals = {limit: journal_of(out, row, limit, suffix) for limit in (None, *limits)}
    left = [
        name for name in problems if not all(_is_done(name, limit, field, path) for limit, path in journals.items())
    ]
    failures: list[Failure] = []
    is_warm = False
    for name in progress(left, f"problems of {row}", unit="problem", leave=False):
        problem = problems[name]()
        if ROWS[row].settings is None and problem.graph.num_units < FEWEST:
            continue
        if not is_warm:
            _unrecorded(problem, field)
            is_warm = True
        for limit, journal in journals.items():
            failures += (
                _unlimited(problem, field, journal) if limit is None else _limited(problem, limit, field, journal)
            )
    return failures


def _unrecorded(problem: Problem, field: ComparedPlacers) -> None:
    """Load all compiled code."""
    unlimited = [placer for placer in field.unlimited if placer not in field.policies]
    compare([*field.limited(), *unlimited], [problem], budget=WARM_UP, quiet=True)


def _unlimited(problem: Problem, field: ComparedPlacers, journal: Path) -> Sequence[Failure]:
    budgets = {placer.name: count for placer, count in field.unlimited.items()}
    return compare(list(field.unlimited), [problem], budget=budgets, journal=journal, quiet=True).failures


def _limited(problem: Problem, limit: Limit, field: ComparedPlacers, journal: Path) -> Sequence[Failure]:
    if not (seconds := limit.seconds):
        timed = compare(
            [ANNEALING], [problem], budget=limit.simulations, seeds=range(REPEATS), journal=journal, quiet=True
        )
        seconds = _rounded(min(record.search_seconds for record in timed.records))
    placers = field.limited(samples=limit.samples)
    return compare(placers, [problem], budget=Seconds(seconds), journal=journal, quiet=True).failures


def _is_done(problem: str, limit: Limit | None, field: ComparedPlacers, journal: Path) -> bool:
    found = {each.placer for each in records(journal) if each.problem == problem}
    if limit is None:
        return found >= {placer.name for placer in field.unlimited}
    wanted = field.limited(samples=limit.samples)
    if limit.seconds:
        return found >= {Seconds(limit.seconds).given(placer)[0].name for placer in wanted}
    return {_without_limit(name) for name in found} >= {placer.name for placer in wanted}


def _greedy(policy: PolicyPlacer[Any]) -> PolicyPlacer[Any]:
    name, knobs = by_name.parse(policy.name)
    return replace(policy, samples=1, name=by_name.spec_of(name, {**knobs, "samples": 1}))


def _without_limit(placer: str) -> str:
    """A placer's name without its seconds."""
    name, knobs = by_name.parse(placer)
    return by_name.spec_of(name, {knob: value for knob, value in knobs.items() if knob != "seconds"})


def _rounded(seconds: float) -> float:
    """To four digits, as names of placers tell them."""
    return float(f"{seconds:.4g}")
