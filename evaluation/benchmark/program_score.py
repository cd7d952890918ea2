"""The score of a program, a placer or a move of a local search in one file, on frozen problems within seconds.

The file defines `build`, as a placer of one's own does, or `move` (`placers.search.own_move`), which annealing then
uses in place of its own moves. It runs in another process, problem by problem, within limits of time and memory; a
problem whose limit is over counts 0, as one without a plan that fits. Each plan is timed again here, so that a program
cannot claim what it has not found; what it may read is not limited.

For searches over programs (FunSearch, Romera-Paredes et al. 2024; AlphaEvolve, Novikov et al. 2025): the score grows
with quality, and each problem says what its step waited for.
"""

from __future__ import annotations

import ast
import math
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from envs.running.processes import Process, ProcessError, TimeLimitError, Workers
from envs.simulation.simulator import simulate
from evaluation.benchmark.best_known import best_known
from evaluation.benchmark.problem_file import Benchmark, FrozenProblem, in_order
from evaluation.benchmark.submission import BenchJob, opened
from evaluation.benchmark.verification import check_entry
from evaluation.commands.load_placer import load_placer
from evaluation.records.identity import placer_digits
from evaluation.records.journal import JournalEntry
from evaluation.records.record import Failure
from evaluation.tables.step_waits import step_waits
from graphs.foundation.errors import InputError, reason
from graphs.problem import Problem

GIB = 2**30
WAITS = 3  # that each problem says
FIRST = 120.0  # seconds in which a process imports and compiles what it needs, and reads a problem
PATIENCE = 10  # seconds of the clock for each second of the processor, on a machine that has other work
WARM_UP = "annealing"  # uses most of what is compiled


@dataclass(frozen=True)
class Limits:
    """What a program may take on each problem."""

    budget: int = 200  # simulations
    seconds: float = 2.0  # of the processor
    memory_gib: float = 4.0  # of its process; not held on systems that cannot


@dataclass(frozen=True)
class ProblemScore:
    """What a program is worth on one problem."""

    problem: str
    score: float  # the best known step time, or else the lower bound, over the program's; 0 without a plan that fits
    feedback: str  # in sentences


@dataclass(frozen=True)
class ProgramScore:
    """What a program is worth."""

    problems: tuple[ProblemScore, ...]

    @property
    def score(self) -> float:
        """The mean over problems: 1 for the best known plans."""
        return math.fsum(each.score for each in self.problems) / len(self.problems)

    def __str__(self) -> str:
        """The score alone in the first line, then a line for each problem."""
        return "\n".join(
            [
                f"score {self.score:.4f}",
                *(f"{each.problem}: {each.score:.4f}; {each.feedback}" for each in self.problems),
            ]
        )


def score_program(program: Path, benchmark: Benchmark, suites: str, *, limits: Limits, seed: int = 0) -> ProgramScore:
    """Run a program on the problems of suites, one after another.

    Raises InputError for a file that defines neither a placer nor a move, or whose `build` returns no placer, and an
    unknown suite.
    """
    placer = placer_in(program)
    chosen, best = in_order(benchmark.chosen(suites)), best_known(benchmark)
    found = list[ProblemScore]()
    with Workers(("cpu",), pin=False) as process:
        jobs = [_Job(benchmark.folder, each, placer, seed, limits) for each in chosen]
        process.run(jobs[0].check, limit=FIRST)
        for frozen, entry in zip(chosen, _entries(process, jobs), strict=True):
            problem = benchmark.problem(frozen)
            found.append(_score(str(program), frozen, problem, entry, best.get(frozen.name)))
    return ProgramScore(tuple(sorted(found, key=lambda each: each.problem)))


def placer_in(program: Path) -> str:
    """The spec of the placer that a program is, read without running it.

    Raises InputError for what is no Python file, and one that defines neither `build` nor `move`.
    """
    if not program.is_file():
        raise InputError(f"there is no file {program}; name the Python file of a placer or a move")
    try:
        tree = ast.parse(program.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(f"{program} is no program: {reason(error)}") from None
    names = set[str]()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    if "build" in names:
        return f"{program}:build"
    if "move" in names:
        return f"annealing:move={program}:move"
    raise InputError(
        f"{program}: expected a placer, `build`, or a move of a local search, `move`; docs/how-to/evolve.md shows both"
    )


@dataclass(frozen=True)
class _Job:
    """One problem, in a process of its own."""

    folder: Path
    problem: FrozenProblem
    placer: str
    seed: int
    limits: Limits

    def __call__(self, process: Process) -> JournalEntry | Failure:
        """The plan and its record; the process is killed when its seconds are over."""
        if "limited" not in process.kept:
            process.kept["limited"] = _limit_memory(self.limits.memory_gib)
        signal.setitimer(signal.ITIMER_PROF, self.limits.seconds)  # of the processor, in compiled code, too
        try:
            return self._entry()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def check(self, _process: Process) -> None:
        """Raise InputError for what is no placer."""
        load_placer(self.placer)

    def _entry(self) -> JournalEntry | Failure:
        try:
            placer = load_placer(self.placer)
        except InputError as error:
            return Failure(problem=self.problem.name, placer=self.placer, seed=self.seed, reason=str(error))
        digits = placer_digits(placer)
        return BenchJob(self.folder, self.problem, placer, self.seed, self.limits.budget, digits).do()

    def read(self, process: Process) -> None:
        """Read the problem; and first of all import and compile what problems need."""
        if "warm" not in process.kept:
            replace(self, placer=WARM_UP)._entry()
            process.kept["warm"] = True
        opened(self.folder).problem(self.problem)


def _limit_memory(gib: float) -> bool:
    """Let this process have no more memory of its own, where the system can say so."""
    try:
        import resource  # not on Windows
    except ImportError:
        return False
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (int(gib * GIB), int(gib * GIB)))
    except (OSError, ValueError):
        return False
    return True


def _entries(process: Workers, jobs: Sequence[_Job]) -> Iterator[JournalEntry | Failure]:
    """What comes of each job; after one that failed the process begins anew."""
    for job in jobs:
        process.run(job.read, limit=FIRST)
        seconds = job.limits.seconds
        try:
            yield process.run(job, limit=PATIENCE * seconds)[0]
        except ProcessError as error:
            said = str(error)
            if isinstance(error, TimeLimitError):
                said = f"it took more than {PATIENCE * seconds:g} seconds"
            elif f"was killed (signal {signal.SIGPROF:d})" in said:
                said = f"it took more than {seconds:g} seconds of the processor"
            yield Failure(problem=job.problem.name, placer=job.placer, seed=job.seed, reason=said)


def _score(
    where: str, frozen: FrozenProblem, problem: Problem, found: JournalEntry | Failure, best: JournalEntry | None
) -> ProblemScore:
    """Of a plan, once it is verified."""
    if isinstance(found, Failure):
        return ProblemScore(frozen.name, 0.0, f"no plan: {found.reason}")
    check_entry(where, frozen, problem, found)
    timeline = simulate(problem, found.plan(problem))
    if overflow := timeline.overflow():
        return ProblemScore(frozen.name, 0.0, f"its plan does not fit: {overflow}")
    step, known = found.record.step_seconds, best.record.step_seconds if best else found.record.lower_bound_seconds
    beside = "the best known plan" if best else "the lower bound"
    said = [f"{1e3 * step:.4g} ms a step, {beside} {1e3 * known:.4g} ms", *step_waits(timeline, WAITS)]
    return ProblemScore(frozen.name, known / step, "; ".join(said))
