"""Recounting: memory and lower bounds of submitted plans, as they are now, where the rules of these have changed.

Step times are not touched: where one comes out otherwise, nothing is written.
"""

import math
from collections.abc import Sequence

from msgspec.structs import replace

from envs.simulation.bounds import lower_bound
from envs.simulation.simulator import RULES, simulate
from evaluation.benchmark.best_known import best_known, save_best
from evaluation.benchmark.packed import save_packed
from evaluation.benchmark.problem_file import Benchmark, FrozenProblem, in_order
from evaluation.benchmark.submission import PACKED, SubmissionFolder
from evaluation.benchmark.verification import EXACT, check_suite
from evaluation.records.journal import JournalEntry
from graphs.foundation.errors import InputError
from graphs.foundation.progress import progress
from graphs.problem import Problem


def recount(submissions: Sequence[SubmissionFolder], benchmark: Benchmark) -> list[str]:
    """Write peaks and lower bounds of all plans of submissions, and of the best known ones, and whether these fit now.

    Returns a sentence for each plan that fits now and did not, or the other way round; a best known plan that does not
    fit is left out. Raises InputError, before anything is written, for a submission that is none to the suite, and a
    step time that is not what comes out now.
    """
    best = best_known(benchmark)
    found: list[dict[str, JournalEntry]] = [{} for _ in submissions]
    entries = [{entry.record.problem: entry for entry in each.entries} for each in submissions]
    counted_best: dict[str, JournalEntry] = {}
    changed = list[str]()
    for each in submissions:
        check_suite(each, benchmark)
    wanted = [each for each in benchmark.index.problems if each.name in best or any(each.name in of for of in entries)]
    for frozen in progress(in_order(wanted), "counting again", unit="problem", leave=False):
        problem = benchmark.problem(frozen)
        for submitted, given, counted in zip(submissions, entries, found, strict=True):
            if frozen.name in given:
                counted[frozen.name] = _counted(str(submitted.folder), frozen, problem, given[frozen.name], changed)
        if frozen.name in best:
            counted_best[frozen.name] = _counted("best known", frozen, problem, best[frozen.name], changed)
    for submitted, counted in zip(submissions, found, strict=True):
        save_packed(submitted.folder / PACKED, [counted[entry.record.problem] for entry in submitted.entries])
    save_best(benchmark, {name: entry for name, entry in counted_best.items() if entry.record.fits})
    return changed


def _counted(
    where: str, frozen: FrozenProblem, problem: Problem, entry: JournalEntry, changed: list[str]
) -> JournalEntry:
    """The entry with what its plan holds now; of one whether it fits has changed, a sentence is added."""
    plan = entry.plan(problem)
    timeline = simulate(problem, plan)
    if not math.isclose(timeline.step_seconds, entry.record.step_seconds, rel_tol=EXACT):
        raise InputError(
            f"{where}: {frozen.name}: step_seconds is {entry.record.step_seconds} by its record, and "
            f"{timeline.step_seconds} when the plan is timed again; memory and lower bounds alone can be counted again"
        )
    if timeline.fits != entry.record.fits:
        changed.append(f"{where}: {frozen.name}: the plan {'fits now' if timeline.fits else 'does not fit any more'}")
    record = replace(
        entry.record, peak_bytes=tuple(timeline.peak_bytes.tolist()), fits=timeline.fits,
        lower_bound_seconds=lower_bound(problem, plan),
    )  # fmt: skip
    return replace(entry, record=record, rules=RULES)
