"""Verification: every plan of a submission is timed again, and what it claims is refused where that differs.

What is checked is all that follows from plans: step time, memory, whether it fits, the lower bound. How many
simulations a placer took, and how long, are its author's word.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from envs.simulation.bounds import lower_bound
from envs.simulation.simulator import simulate
from evaluation.benchmark.problem_file import Benchmark, FrozenProblem, in_order, suite_sha256
from evaluation.benchmark.submission import SubmissionFolder
from evaluation.records.journal import JournalEntry
from evaluation.records.statistics import Estimate, estimate
from graphs.foundation.errors import InputError
from graphs.foundation.progress import progress
from graphs.problem import Problem

EXACT = 1e-9  # relative: processors may round differently, and nothing else may differ


@dataclass(frozen=True)
class VerifiedRow:
    """A row of the leaderboard."""

    title: str
    placer: str
    suites: str
    over_best: Estimate  # geometric mean of the step time over the best known one, where a plan fits
    fits: int
    problems: int
    simulations: float  # mean per problem
    search_seconds: float  # mean per problem
    learns: str
    ratios: tuple[float, ...] = ()  # of the problems where a plan fits

    @property
    def share_that_fits(self) -> float:
        """Of all problems, those where it found a plan that fits."""
        return self.fits / self.problems


def verify(submissions: Sequence[SubmissionFolder], benchmark: Benchmark) -> None:
    """Time all plans again, problem by problem.

    Raises InputError, naming folder and problem, for a submission to another benchmark, or of other problems than the
    suite has by now; for a plan that is missing, twice there, or of another problem; and for any time, peak or bound
    that is not what comes out now.
    """
    for each in submissions:
        check_suite(each, benchmark)
    entries = [{entry.record.problem: entry for entry in each.entries} for each in submissions]
    wanted = [each for each in benchmark.index.problems if any(each.name in some for some in entries)]
    for frozen in progress(in_order(wanted), "verifying", unit="problem", leave=False):
        problem = benchmark.problem(frozen)
        for submitted, some in zip(submissions, entries, strict=True):
            if frozen.name in some:
                check_entry(str(submitted.folder), frozen, problem, some[frozen.name])


def check_suite(submitted: SubmissionFolder, benchmark: Benchmark) -> None:
    """Raise InputError unless there is one plan for each problem of the suite, or the reason why there is none."""
    about, folder, name = submitted.about, submitted.folder, benchmark.index.name
    if about.benchmark != name:
        raise InputError(
            f"{folder} is a submission to {about.benchmark}; this placelab has {name}: run `placelab bench`"
        )
    chosen = benchmark.chosen(about.suites)
    if suite_sha256(chosen) != about.suite_sha256:
        raise InputError(
            f"{folder} was made on another version of suite {about.suites!r} than that of {name} here (its hash is "
            f"{about.suite_sha256[:16]}, here {suite_sha256(chosen)[:16]}); run `placelab bench` again"
        )
    expected = {each.name for each in chosen}
    given = Counter(entry.record.problem for entry in submitted.entries)
    given.update(each.problem for each in about.failures)
    for problem in (given - Counter(expected)) or ():
        what = "is given twice" if problem in expected else f"is none of suite {about.suites!r}"
        raise InputError(f"{folder}: problem {problem!r} {what}")
    if missing := expected - given.keys():
        raise InputError(
            f"{folder} has no plan for {len(missing)} problems of {about.suites!r}, such as {min(missing)!r}"
        )
    for entry in submitted.entries:
        record = entry.record
        if (record.placer, record.seed, record.budget) != (about.placer, about.seed, about.budget):
            raise InputError(
                f"{folder}: the plan for {record.problem!r} is of {record.placer!r}, seed {record.seed}, budget "
                f"{record.budget}; the submission is of {about.placer!r}, seed {about.seed}, budget {about.budget}"
            )


def check_entry(where: str, frozen: FrozenProblem, problem: Problem, entry: JournalEntry) -> None:
    """Raise InputError, naming the place, unless a plan is one for the problem, and costs what its record says."""
    record = entry.record
    at = f"{where}: {frozen.name}"
    try:
        plan = entry.plan(problem)
    except InputError as error:
        raise InputError(f"{at}: {error}") from error
    if not frozen.whole_plans and not plan.is_placement:
        raise InputError(f"{at}: its plans are op placements, and this one divides the batch or an op")
    if record.budget is not None and record.simulations > record.budget:
        raise InputError(f"{at}: {record.simulations} simulations were taken, and the budget is {record.budget}")
    timeline = simulate(problem, plan)
    found: dict[str, tuple[float, ...]] = {
        "step_seconds": (timeline.step_seconds,),
        "peak_bytes": tuple(timeline.peak_bytes.tolist()),
        "lower_bound_seconds": (lower_bound(problem, plan),),
    }
    for key, values in found.items():
        claimed = getattr(record, key)
        given = claimed if isinstance(claimed, tuple) else (claimed,)
        if len(given) != len(values) or not np.allclose(given, values, rtol=EXACT, atol=0.0):
            now = ", ".join(map(str, values))
            raise InputError(f"{at}: {key} is {claimed} by its record, and {now} when the plan is timed again")
    if record.fits != timeline.fits:
        raise InputError(f"{at}: the record says that the plan {_fits(record.fits)}, and it {_fits(timeline.fits)}")


def row_of(submitted: SubmissionFolder, best: Mapping[str, JournalEntry]) -> VerifiedRow:
    """The row of a submission that was verified; `best` are the best known plans by problem.

    A plan that is better than the best known one has a ratio below 1.
    """
    records = [entry.record for entry in sorted(submitted.entries, key=lambda entry: entry.record.problem)]
    fitting = [record for record in records if record.fits]
    known = [record for record in fitting if record.problem in best]
    ratios = np.array([record.step_seconds / best[record.problem].record.step_seconds for record in known])
    count = len(records) + len(submitted.about.failures)
    return VerifiedRow(
        title=submitted.about.title,
        placer=submitted.about.placer,
        suites=submitted.about.suites,
        over_best=estimate([ratios]),
        fits=len(fitting),
        problems=count,
        simulations=float(np.mean([record.simulations for record in records])) if records else math.nan,
        search_seconds=float(np.mean([record.search_seconds for record in records])) if records else math.nan,
        learns=submitted.about.learns,
        ratios=tuple(ratios.tolist()),
    )


def _fits(fits: bool) -> str:
    return "fits" if fits else "does not fit"
