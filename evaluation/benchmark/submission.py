"""A submission: a folder with what a placer found on the problems of suites, for anybody to verify.

    submission.toml   which placer, on which suites of which benchmark, with which budget, made with what
    records.jsonl     a journal: a record and its plan for each problem, as they came (`evaluation.records.journal`)
    records.jsonl.gz  the same in little room, in a repository (`evaluation.benchmark.packed`)
    plans/            with `plans`, a plan file each, for people and other programs

Times in it are claims, which `evaluation.benchmark.verification` computes again from the plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from evaluation.benchmark.packed import load_packed, save_packed
from evaluation.benchmark.problem_file import FOLDER, Benchmark, FrozenProblem, in_order, suite_sha256
from evaluation.comparing.task import Task
from evaluation.records.identity import key_of, placer_digits
from evaluation.records.journal import Journal, JournalEntry, plans
from evaluation.records.provenance import Provenance, policy_sha256
from evaluation.records.record import Failure
from graphs.foundation.documents import read_document
from graphs.foundation.engine import Killed, Workers
from graphs.foundation.errors import InputError
from graphs.foundation.files import check_links, named_if_refused, write_whole
from graphs.foundation.items import check_workers, results
from graphs.foundation.progress import progress_bar
from placers.contract.placer import Placer
from placers.learned.learned_placer import PolicyPlacer

SUBMISSION, RECORDS, PACKED, PLANS = "submission.toml", "records.jsonl", "records.jsonl.gz", "plans"
VERSION = 1
REMEDY = "`placelab bench PLACER --out FOLDER` writes one"


class FailedProblem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A problem without a plan."""

    problem: str
    reason: str  # a sentence


class Submission(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What `submission.toml` says."""

    schema: Literal["placelab.submission"]
    version: int
    benchmark: str  # by name
    suites: str  # names with commas, or "all"
    suite_sha256: str  # of the problems, as they were frozen
    placer: str  # its spec
    title: str  # what the leaderboard calls it
    learns: Literal["no", "zero-shot", "per graph"]  # whether a policy takes part, and learns on each problem
    seed: int
    budget: int  # simulations per problem
    made: Provenance
    failures: tuple[FailedProblem, ...] = ()


@dataclass(frozen=True, eq=False)
class SubmissionFolder:
    """A submission on disk."""

    folder: Path
    about: Submission
    entries: tuple[JournalEntry, ...]

    @classmethod
    def load(cls, folder: Path) -> SubmissionFolder:
        """Raises InputError for a folder without a submission, a damaged one, or one that is not complete yet.

        Likewise for one with a link that leads out of it.
        """
        if not (folder / SUBMISSION).is_file():
            unfinished = " yet: `placelab bench` was stopped, and the same command resumes"
            raise InputError(
                f"{folder} holds no submission{unfinished if (folder / RECORDS).exists() else ''}; {REMEDY}"
            )
        check_links(folder)
        about = read_document(folder / SUBMISSION, Submission, version=VERSION, remedy=REMEDY)
        packed = folder / PACKED
        entries = load_packed(packed) if packed.exists() else plans(folder / RECORDS)
        return cls(folder, about, tuple(sorted(entries, key=lambda entry: entry.record.problem)))

    def on(self, benchmark: Benchmark, suites: str) -> SubmissionFolder:
        """What it is on some of its suites alone."""
        chosen = benchmark.chosen(suites)
        names = {each.name for each in chosen}
        failures = tuple(each for each in self.about.failures if each.problem in names)
        about = replace(self.about, suites=suites, suite_sha256=suite_sha256(chosen), failures=failures)
        return SubmissionFolder(
            self.folder, about, tuple(each for each in self.entries if each.record.problem in names)
        )


@dataclass(frozen=True)
class BenchJob:
    """One problem, which the process that does it reads by itself."""

    benchmark: Path | None  # None: that of placelab's repository, wherever it is there
    problem: FrozenProblem
    placer: Placer
    seed: int
    budget: int
    digits: str  # of the placer

    @property
    def key(self) -> str:
        """What the record is found by."""
        return key_of(self.problem.sha256, self.digits, self.seed, self.budget)

    def do(self) -> JournalEntry | Failure:
        """The plan and its record."""
        problem = opened(self.benchmark or FOLDER).problem(self.problem)
        digits = (self.problem.sha256, self.digits)
        task = Task(problem, self.problem.name, self.placer, self.seed, self.budget, digits)
        found = task.do()
        if isinstance(found, Failure):
            return found
        if not self.problem.whole_plans and not found.plan(problem).is_placement:
            return task.failure("its plan divides the batch or an op, and plans of this problem are op placements")
        return replace(found, record=replace(found.record, problem=self.problem.name))


def bench(
    placer: Placer, suites: str, out: Path, *, title: str = "", budget: int = 16, seed: int = 0, workers: Workers = 1,
    problems: Path = FOLDER, quiet: bool = False,
) -> SubmissionFolder:  # fmt: skip
    """Let a placer solve the problems of suites, and write a submission; what its folder holds is not done again.

    `budget` is how many placements the placer may simulate on each problem. With several `workers`, or those of the
    dask scheduler at an address, processes share the problems: the same plans. Raises InputError for an unknown suite,
    a folder that holds another submission, and if the placer fails on every problem; KeyboardInterrupt after Ctrl-C,
    saying what is kept.
    """
    check_workers(workers)
    benchmark = opened(problems)
    chosen = benchmark.chosen(suites)
    with named_if_refused(out):
        out.mkdir(parents=True, exist_ok=True)
    check_links(out)
    digits = placer_digits(placer)
    folder = None if problems == FOLDER else problems.absolute()
    jobs = [BenchJob(folder, each, placer, seed, budget, digits) for each in in_order(chosen)]
    made = replace(Provenance.now([placer]), suite=suite_sha256(chosen))
    failures = list[Failure]()
    with Journal.open(out / RECORDS) as journal:
        keys = {job.key for job in jobs}
        if journal.entries.keys() - keys:
            raise InputError(
                f"{out} holds records of another placer, suite, seed or budget, or of one that has changed; "
                "choose another `out`"
            )
        left = [job for job in jobs if job.key not in journal.entries]
        with progress_bar("bench", unit="problem", total=len(jobs), initial=len(jobs) - len(left), hidden=quiet) as bar:
            try:
                for job, found in _done(left, workers):
                    bar.set_postfix_str(job.problem.name)
                    bar.update()
                    if isinstance(found, Failure):
                        failures.append(found)
                    else:
                        journal.add(replace(found, made=made))
            except KeyboardInterrupt:
                kept = f"{out} keeps {len(journal.entries)} of {len(jobs)} plans"
                raise KeyboardInterrupt(f"stopped; {kept}, and the same command resumes from there") from None
        if not journal.entries:
            raise InputError(f"{placer.name} failed on every problem: {failures[0].reason}")
    about = Submission(
        schema="placelab.submission", version=VERSION, benchmark=benchmark.index.name, suites=suites,
        suite_sha256=suite_sha256(chosen), placer=placer.name, title=title or placer.name, learns=_learns(placer),
        seed=seed, budget=budget, made=made,
        failures=tuple(FailedProblem(each.problem, each.reason) for each in sorted(failures, key=lambda f: f.problem)),
    )  # fmt: skip
    write_whole(out / SUBMISSION, msgspec.toml.encode(about))
    return SubmissionFolder.load(out)


def save_plans(submitted: SubmissionFolder, benchmark: Benchmark) -> None:
    """Write each plan as a plan file, too."""
    folder = submitted.folder / PLANS
    folder.mkdir(exist_ok=True)
    for entry in submitted.entries:
        entry.save(benchmark.problem(benchmark.named(entry.record.problem)), folder)


def pack(folder: Path) -> Path:
    """Compress the records of a submission, for a repository. Raises InputError for what is no submission."""
    entries = SubmissionFolder.load(folder).entries
    save_packed(folder / PACKED, entries)
    (folder / RECORDS).unlink(missing_ok=True)
    return folder / PACKED


def _learns(placer: Placer) -> Literal["no", "zero-shot", "per graph"]:
    """Whether a policy decides, or proposes to a search, and whether it learns on each problem."""
    if hasattr(placer, "tune"):
        return "per graph"
    return "zero-shot" if isinstance(placer, PolicyPlacer) or policy_sha256(placer) else "no"


def _done(jobs: Sequence[BenchJob], workers: Workers) -> Iterator[tuple[BenchJob, JournalEntry | Failure]]:
    """In order, or as they come from several processes; the one place that says how work is shared."""
    with closing(results(BenchJob.do, jobs, workers)) as done:
        for job, found in done:
            if isinstance(found, Killed):
                found = Failure(problem=job.problem.name, placer=job.placer.name, seed=job.seed, reason=found.reason)
            yield job, found


@lru_cache(maxsize=4)  # a process does one problem after the other
def opened(folder: Path) -> Benchmark:
    """The benchmark in a folder, read once."""
    return Benchmark.load(folder)
