"""The best known plan of each problem: the fastest that fits, with its time, bound, finder and simulations.

They are packed, `best_known.jsonl.gz`, next to the frozen problems: each is verified as those of a submission are.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from evaluation.benchmark.packed import load_packed, save_packed
from evaluation.benchmark.problem_file import Benchmark, FrozenProblem, in_order
from evaluation.benchmark.submission import SubmissionFolder
from evaluation.benchmark.verification import check_entry, verify
from evaluation.records.journal import JournalEntry
from graphs.foundation.files import named_if_refused, write_whole
from graphs.foundation.progress import progress

FILE = "best_known.jsonl.gz"
TABLE = "best_known.csv"
LESS = 1e-9  # relative: what a plan must be faster by to replace another


def best_known(benchmark: Benchmark) -> dict[str, JournalEntry]:
    """By problem; those without any plan that fits are left out. Raises InputError for a damaged file."""
    path = benchmark.folder / FILE
    return {entry.record.problem: entry for entry in load_packed(path)} if path.exists() else {}


def verify_best(benchmark: Benchmark, problems: Sequence[FrozenProblem] = ()) -> int:
    """Time the best known plans again, of some problems or all; the number of them.

    Raises InputError as `check_entry` does, and for a plan that does not fit.
    """
    best = best_known(benchmark)
    chosen = [each for each in problems or benchmark.index.problems if each.name in best]
    for frozen in progress(in_order(chosen), "verifying the best known", unit="problem", leave=False):
        check_entry(str(benchmark.folder / FILE), frozen, benchmark.problem(frozen), best[frozen.name])
    return len(chosen)


def update_best(benchmark: Benchmark, submissions: Sequence[SubmissionFolder]) -> list[str]:
    """Verify submissions, take what is faster than the best known, and say of which problems.

    Raises InputError as `verify` does; nothing is taken then.
    """
    verify(submissions, benchmark)
    best, improved = best_known(benchmark), dict[str, None]()
    for entry in (entry for each in submissions for entry in each.entries if entry.record.fits):
        name = entry.record.problem
        if name not in best or entry.record.step_seconds < best[name].record.step_seconds * (1 - LESS):
            best[name] = replace(entry, record=replace(entry.record, curve=()))
            improved[name] = None
    if improved:
        save_best(benchmark, best)
    return list(improved)


def write_best(benchmark: Benchmark, folder: Path, suite: str = "all") -> Path:
    """Write the best known plans of a suite as plan files, and a table of them, whose path is returned.

    The table says the step time, the lower bound, who found the plan, with how many simulations, and its file. Raises
    InputError for an unknown suite, and a folder that cannot be written.
    """
    best = best_known(benchmark)
    rows = [("problem", "step_seconds", "lower_bound_seconds", "placer", "simulations", "plan")]
    with named_if_refused(folder):
        folder.mkdir(parents=True, exist_ok=True)
    chosen = [each for each in benchmark.chosen(suite) if each.name in best]
    for frozen in progress(in_order(chosen), "writing plans", unit="plan", leave=False):
        record, path = best[frozen.name].record, best[frozen.name].save(benchmark.problem(frozen), folder)
        seconds = (str(record.step_seconds), str(record.lower_bound_seconds))
        rows.append((frozen.name, *seconds, record.placer, str(record.simulations), path.name))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_whole(folder / TABLE, text.getvalue())
    return folder / TABLE


def save_best(benchmark: Benchmark, best: Mapping[str, JournalEntry]) -> None:
    """In the order of the problems, so that equal results are equal files."""
    chosen = [best[each.name] for each in benchmark.index.problems if each.name in best]
    save_packed(benchmark.folder / FILE, chosen)
