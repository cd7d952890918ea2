"""The best known plan of each problem: the fastest that fits, with its time, bound, finder and simulations.

They are a journal, `best_known.jsonl.gz`, next to the frozen problems: each is verified as those of a submission are.
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from evaluation.benchmark.problem_file import Benchmark, FrozenProblem, in_order
from evaluation.benchmark.submission import SubmissionFolder
from evaluation.benchmark.verification import check_entry, verify
from evaluation.journal import Journal, JournalEntry, plans
from graphs.foundation.files import write_whole
from graphs.foundation.progress import progress

FILE = "best_known.jsonl.gz"
LESS = 1e-9  # relative: what a plan must be faster by to replace another


def best_known(benchmark: Benchmark) -> dict[str, JournalEntry]:
    """By problem; those without any plan that fits are left out. Raises InputError for a damaged file."""
    path = benchmark.folder / FILE
    return {entry.record.problem: entry for entry in plans(path)} if path.exists() else {}


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
        _write(benchmark, best)
    return list(improved)


def _write(benchmark: Benchmark, best: Mapping[str, JournalEntry]) -> None:
    """In the order of the problems, grouped by what made them, so that equal results are equal files."""
    order = {each.name: number for number, each in enumerate(benchmark.index.problems)}
    ordered: Iterable[JournalEntry] = sorted(best.values(), key=lambda entry: order[entry.record.problem])
    by_command = sorted(ordered, key=lambda entry: entry.made.command if entry.made else "")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "best.jsonl"
        with Journal.open(path) as journal:
            for entry in by_command:
                journal.add(entry)
        write_whole(benchmark.folder / FILE, gzip.compress(path.read_bytes(), mtime=0))
