"""Compare placers: let each place each problem with each seed, and time all plans by one simulator."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

from msgspec.structs import replace

from envs.costs.costs import costs_of, timed
from envs.simulation.simulator import Simulator
from evaluation.comparing.comparison import Comparison, short_name
from evaluation.comparing.task import Task
from evaluation.records.identity import placer_digits, problem_digits
from evaluation.records.journal import Journal, JournalEntry
from evaluation.records.provenance import Provenance
from evaluation.records.record import Failure, Record
from graphs.foundation import by_name
from graphs.foundation.engine import Killed, Workers
from graphs.foundation.errors import InputError
from graphs.foundation.files import check_links, check_writable
from graphs.foundation.items import check_workers, results
from graphs.foundation.progress import progress_bar
from graphs.op_graph import OpGraph
from graphs.problem import STEP_TIME, Problem
from placers.contract.placer import Placer
from placers.contract.time_limit import Seconds

SHARED = (Problem, OpGraph)  # what many tasks have in common: sent to a worker once
_warm: list[bool] = []  # once the simulator is compiled in this process


def compare(
    placers: Sequence[Placer | str],
    problems: Sequence[Problem],
    *,
    budget: int | Mapping[str, int] | Seconds = 1,
    seeds: Sequence[int] = (0,),
    workers: Workers = 1,
    robust: bool = False,
    journal: Path | None = None,
    plans: Path | None = None,
    quiet: bool = False,
) -> Comparison:
    """Let each placer place each problem with each seed, and simulate its plans.

    `budget` is how many placements a placer may simulate per problem; a mapping gives it by the placer's name, and 1 to
    placers that it leaves out. Or it is a number of `Seconds` of the processor, per problem: searches then stop, and
    policies draw no more samples, when these are over. Others take as long as they take: the records say how long.
    Placers may be given by spec; a problem that does not say what its ops cost is timed by the default cost model. With
    several `workers`, or the workers of the dask scheduler at an address such as tcp://host:8786, processes share the
    tasks: the same plans, but for a limit of seconds; a task whose process ends each time that it is tried is a
    failure. The file `journal` keeps each record and plan as it comes; what it holds already is not done again. The
    folder `plans` gets each plan as a plan file. Progress goes to stderr, unless `quiet`.

    With `robust`, plans are ranked by their median step time under noise (`envs.simulation.robustness`), not by that
    without any. Problems of the same name are distinguished by digits after it. Placers that fail on a problem are in
    `failures`. Raises InputError, before anything is placed, if there is nothing to compare, a placer or the very same
    problem is given twice, the ops of a problem take no time, a number is out of range, there are no such workers, or a
    file cannot be written; and if everything failed. Raises KeyboardInterrupt after Ctrl-C, saying what is kept.
    """
    check_settings(seeds=seeds, workers=workers, journal=journal, plans=plans)
    built = [by_name.build("placers", placer) if isinstance(placer, str) else placer for placer in placers]
    _check_distinct("placer", [placer.name for placer in built])
    built, budgets = _budgets(built, budget)
    digits = {placer.name: placer_digits(placer) for placer in built}
    tasks = [
        Task(problem, name, placer, seed, budgets[placer.name], (own, digits[placer.name]), robust)
        for problem, name, own in _named([_timed(problem) for problem in problems])
        for placer in built for seed in seeds
    ]  # fmt: skip
    if robust and (other := [task.problem.objective for task in tasks if task.problem.objective != STEP_TIME]):
        raise InputError(f"a robust comparison is one of step times, not of '{other[0]}'; leave out `robust`")
    if plans is not None:
        plans.mkdir(exist_ok=True)
    made = Provenance.now(built, {task.digits[0] for task in tasks})
    results: list[Record | Failure] = []
    with Journal.open(journal) if journal is not None else nullcontext(Journal()) as kept:
        found = _done(tasks, kept, made, workers, quiet)
        for task in tasks:
            result = found[task.key]
            results.append(task.shown(result.record) if isinstance(result, JournalEntry) else result)
            if plans is not None and isinstance(result, JournalEntry):
                result.save(task.problem, plans)
    records = tuple(result for result in results if isinstance(result, Record))
    failures = tuple(result for result in results if isinstance(result, Failure))
    if not records:
        raise InputError(f"every placer failed: {failures[0].placer} on {failures[0].problem}: {failures[0].reason}")
    said = _on_one_device([found[task.key] for task in tasks]) if len(problems) == 1 else ()
    return Comparison(records, failures, (_op_groups(problems), *said))


def _op_groups(problems: Sequence[Problem]) -> str:
    """How many op groups placers decide on, in a sentence."""
    counts = sorted({problem.graph.num_units for problem in problems})
    return f"Op groups: {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))}."


def _on_one_device(found: Sequence[JournalEntry | Failure]) -> tuple[str, ...]:
    """A sentence that names placers with a plan on one of several devices; none if there are no such plans."""
    alone = dict.fromkeys(
        short_name(each.record.placer)
        for each in found
        if isinstance(each, JournalEntry) and len(each.record.peak_bytes) > 1 and _devices(each) == 1
    )
    return (f"All ops on one device: {', '.join(alone)}.",) if alone else ()


def _devices(entry: JournalEntry) -> int:
    """How many devices have ops of a plan."""
    return len({device for each in entry.devices for device in ((each,) if isinstance(each, int) else each)})


def check_settings(
    *, seeds: Sequence[int], workers: Workers, journal: Path | None = None, plans: Path | None = None
) -> None:
    """Raise InputError for what `compare` refuses of these, before anything slow is done for it."""
    if not seeds:
        raise InputError("there are no seeds to compare with; give at least one")
    if min(seeds) < 0:
        raise InputError(f"a seed is {min(seeds)}; expected whole numbers >= 0")
    if len(set(seeds)) < len(seeds):
        raise InputError(f"seed {Counter(seeds).most_common(1)[0][0]} is given twice; give it once")
    check_workers(workers)
    check_writable(journal)
    if plans is not None:
        if plans.exists() and not plans.is_dir():
            raise InputError(f"cannot write plans to {plans}: it is a file; name a folder")
        check_writable(plans / "any.plan.json" if plans.is_dir() else plans)
        check_links(plans)


def _done(
    tasks: Sequence[Task], kept: Journal, made: Provenance, workers: Workers, quiet: bool
) -> dict[str, JournalEntry | Failure]:
    """What became of each task, by its key; what the journal does not hold yet is done."""
    found: dict[str, JournalEntry | Failure] = {
        task.key: kept.entries[task.key] for task in tasks if task.key in kept.entries
    }
    left = [task for task in tasks if task.key not in found]
    with (
        progress_bar("comparing", unit="plan", total=len(tasks), initial=len(found), hidden=quiet) as bar,
        closing(results(_do, left, workers, shared=SHARED)) as done,
    ):
        try:
            for task, result in done:
                bar.set_postfix_str(f"{short_name(task.placer.name)} on {task.shown_as}")
                bar.update()
                found[task.key] = task.failure(result.reason) if isinstance(result, Killed) else result
                if isinstance(result, JournalEntry):
                    kept.add(replace(result, made=made))
        except KeyboardInterrupt as stop:
            saved = f"{stop}; " if str(stop) else ""  # as by a search that saves its state
            keeps = f"{kept.path} keeps them, and the same command resumes from there"
            where = keeps if kept.path else "with a journal, the same command would resume"
            sentence = f"{saved}stopped after {len(found)} of {len(tasks)} plans; {where}"
            raise KeyboardInterrupt(sentence) from None
    return found


def _do(task: Task) -> JournalEntry | Failure:
    """Do a task; in each process the simulator is compiled before the first one, off the clock."""
    if not _warm:
        Simulator(task.problem).run([0] * task.problem.graph.num_units)
        _warm.append(True)
    return task.do()


def _timed(problem: Problem) -> Problem:
    """The problem with what its ops cost. Raises InputError if that is nothing."""
    if problem.op_seconds is None:
        return timed(problem)
    if not costs_of(problem).op_seconds.any():
        raise InputError(f"all ops of {problem.name} take 0 s; there is nothing to compare")
    return problem


def _named(problems: Sequence[Problem]) -> list[tuple[Problem, str, str]]:
    """Each problem with a name of its own, and its digits; some of them follow a name that several have."""
    digits = [problem_digits(problem) for problem in problems]
    _check_distinct("problem", [problem.name for problem in problems], digits)
    count = Counter(problem.name for problem in problems)
    return [
        (problem, problem.name if count[problem.name] == 1 else f"{problem.name} #{own[:6]}", own)
        for problem, own in zip(problems, digits, strict=True)
    ]


def _budgets(
    placers: Sequence[Placer], budget: int | Mapping[str, int] | Seconds
) -> tuple[list[Placer], dict[str, int]]:
    """The placers, with a limit of seconds if that is their budget, and how many placements each may simulate."""
    if isinstance(budget, Seconds):
        limited = [budget.given(placer) for placer in placers]
        return [placer for placer, _ in limited], {placer.name: count for placer, count in limited}
    given = {} if isinstance(budget, int) else budget
    otherwise = budget if isinstance(budget, int) else 1
    budgets = {placer.name: given.get(placer.name, otherwise) for placer in placers}
    if strangers := [name for name in given if name not in budgets]:
        raise InputError(f"budget: {by_name.unknown('placer', strangers[0], budgets)}")
    for name, count in budgets.items():
        if count < 0:
            raise InputError(f"the budget of {name!r} is {count} simulations; expected at least 0")
    return list(placers), budgets


def _check_distinct(what: str, names: Sequence[str], contents: Iterable[str] | None = None) -> None:
    """Raise InputError if there are none, or two are alike: the name and, if that is given, the content."""
    count = Counter(zip(names, contents or names, strict=True))
    if not count:
        raise InputError(f"there are no {what}s to compare; give at least one")
    (name, _), times = count.most_common(1)[0]
    if times > 1:
        raise InputError(f"{what} {name!r} is given twice; name it once")
