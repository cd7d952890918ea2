"""Compare placers: let each place each problem with each seed, and judge all plans by one simulator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from tqdm import tqdm

from envs.costs.costs import AUTO, CostModel, check_costs, costs_of, timed
from envs.simulation.simulator import Simulator
from evaluation.comparison import Comparison, short_name
from evaluation.identity import placer_digits, problem_digits
from evaluation.journal import Journal
from evaluation.kept_plan import KeptPlan
from evaluation.record import Failure, Record
from evaluation.work import Work
from evaluation.workers import Killed, check_guarded, shared
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.files import check_writable
from graphs.problem import STEP_TIME, Problem
from placers.contract.placer import Placer


def compare(
    placers: Sequence[Placer | str],
    problems: Sequence[Problem],
    *,
    budget: int = 1,
    budgets: Mapping[str, int] | None = None,
    seeds: Sequence[int] = (0,),
    cost_model: CostModel | str | None = None,
    workers: int = 1,
    robust: bool = False,
    journal: Path | None = None,
    plans: Path | None = None,
    on_record: Callable[[Record], None] | None = None,
    quiet: bool = False,
) -> Comparison:
    """Let each placer place each problem with each seed, and simulate what it says.

    `budget` is how many placements a placer may simulate per problem, `budgets` the exceptions, by placer name.
    Placers may be given by spec; `cost_model` times all ops, and without it each problem says what times its own.
    With several `workers` as many processes share the work: the same plans, though `search_seconds` grow where there
    are fewer cores; work whose process is killed twice is a failure. The file `journal` keeps each record and plan as
    it comes; what it holds already is not done again. The folder `plans` gets each plan as a plan file. `on_record`
    sees each new record. Progress goes to stderr if that is a terminal.

    With `robust`, plans are ranked by their median step time under noise (`envs.robustness`), not by that without any.
    Problems of one name are told apart by digits after it. A placer that fails on a problem is told of in `failures`.
    Raises InputError, before anything is placed, if there is nothing to compare, a placer or the very same problem is
    given twice, the ops of a problem take no time, a number is out of range, or a file cannot be written; and if
    everything failed. Raises KeyboardInterrupt after Ctrl-C, saying what is kept.
    """
    check_settings(budget=budget, seeds=seeds, workers=workers, journal=journal, plans=plans)
    built = [by_name.build("placers", placer) if isinstance(placer, str) else placer for placer in placers]
    _check("placer", [placer.name for placer in built])
    allowed = _allowed(built, budget, budgets or {})
    digits = {placer.name: placer_digits(placer) for placer in built}
    works = [
        Work(problem, name, placer, seed, allowed[placer.name], (own, digits[placer.name]), robust)
        for problem, name, own in _named([_timed(problem, cost_model) for problem in problems])
        for placer in built for seed in seeds
    ]  # fmt: skip
    if robust and (other := [work.problem.objective for work in works if work.problem.objective != STEP_TIME]):
        raise InputError(f"a robust comparison is one of step times, not of {other[0]!r}")
    if plans is not None:
        plans.mkdir(exist_ok=True)
    results: list[Record | Failure] = []
    with Journal.open(journal) if journal is not None else nullcontext(Journal()) as kept:
        found = _done(works, kept, workers, on_record, quiet)
        for work in works:
            result = found[work.key]
            results.append(work.shown(result.record) if isinstance(result, KeptPlan) else result)
            if plans is not None and isinstance(result, KeptPlan):
                result.save(work.problem, plans)
    return _comparison(results)


def check_settings(
    *, budget: int, seeds: Sequence[int], workers: int, journal: Path | None = None, plans: Path | None = None
) -> None:
    """Raise InputError for what `compare` refuses of these, before anything slow is done for it."""
    if budget < 0:
        raise InputError(f"the budget is {budget} simulations; expected at least 0")
    if not seeds:
        raise InputError("there are no seeds to compare with; give at least one")
    if min(seeds) < 0:
        raise InputError(f"a seed is {min(seeds)}; expected whole numbers >= 0")
    if len(set(seeds)) < len(seeds):
        raise InputError(f"seed {Counter(seeds).most_common(1)[0][0]} is given twice")
    if workers < 1:
        raise InputError(f"workers is {workers}; expected at least 1")
    if workers > 1:
        check_guarded()
    check_writable(journal)
    if plans is not None:
        if plans.exists() and not plans.is_dir():
            raise InputError(f"cannot write plans to {plans}: it is a file; name a folder")
        check_writable(plans / "any.plan.json" if plans.is_dir() else plans)


def _done(
    works: Sequence[Work], kept: Journal, workers: int, on_record: Callable[[Record], None] | None, quiet: bool
) -> dict[str, KeptPlan | Failure]:
    """What became of each work, by its key; what the journal does not hold yet is done."""
    found: dict[str, KeptPlan | Failure] = {work.key: kept.kept[work.key] for work in works if work.key in kept.kept}
    left = [work for work in works if work.key not in found]
    hidden = True if quiet else None  # None: shown on a terminal
    with tqdm(total=len(works), initial=len(found), desc="comparing", unit="plan", disable=hidden) as bar:
        try:
            for work, result in _results(left, workers):
                bar.set_postfix_str(f"{short_name(work.placer.name)} on {work.shown_as}")
                bar.update()
                found[work.key] = result
                if isinstance(result, KeptPlan):
                    kept.add(result)
                    if on_record is not None:
                        on_record(work.shown(result.record))
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(_stopped(stop, len(found), len(works), kept)) from None
    return found


def _stopped(stop: KeyboardInterrupt, done: int, total: int, kept: Journal) -> str:
    where = (
        f"{kept.path} keeps them, and the same command resumes from there"
        if kept.path
        else "with a journal, the same command would resume"
    )
    said = f"{stop}; " if str(stop) else ""  # as by a search that saves where it stands
    return f"{said}stopped after {done} of {total} plans; {where}"


def _results(works: Sequence[Work], workers: int) -> Iterator[tuple[Work, KeptPlan | Failure]]:
    """In order, or as they come from several processes."""
    if not works:
        return
    if workers == 1:
        _warm_up(works[0].problem)
        for work in works:
            yield work, work.do()
        return
    for work, result in shared(works, Work.do, min(workers, len(works)), partial(_warm_up, works[0].problem)):
        yield work, work.failure(result.reason) if isinstance(result, Killed) else result


def _warm_up(problem: Problem) -> None:
    """Compile the simulator off the clock."""
    Simulator(problem).run([0] * problem.graph.num_units)


def _timed(problem: Problem, cost_model: CostModel | str | None) -> Problem:
    """The problem with what its ops cost. Raises InputError if that is nothing."""
    if cost_model is not None or problem.op_seconds is None:
        return timed(problem, AUTO if cost_model is None else cost_model)
    check_costs(problem, costs_of(problem))
    if not problem.op_seconds.any():
        raise InputError(f"all ops of {problem.name} take 0 s; there is nothing to compare")
    return problem


def _named(problems: Sequence[Problem]) -> list[tuple[Problem, str, str]]:
    """Each problem with a name of its own, and its digits; some of them follow a name that several have."""
    digits = [problem_digits(problem) for problem in problems]
    _check("problem", [problem.name for problem in problems], digits)
    count = Counter(problem.name for problem in problems)
    return [
        (problem, problem.name if count[problem.name] == 1 else f"{problem.name} #{own[:6]}", own)
        for problem, own in zip(problems, digits, strict=True)
    ]


def _allowed(placers: Sequence[Placer], budget: int, exceptions: Mapping[str, int]) -> dict[str, int]:
    """How many placements each may simulate, by name."""
    allowed = {placer.name: exceptions.get(placer.name, budget) for placer in placers}
    if strangers := [name for name in exceptions if name not in allowed]:
        raise InputError(f"budgets: {by_name.unknown('placer', strangers[0], allowed)}")
    for name, count in allowed.items():
        if count < 0:
            raise InputError(f"budgets: that of {name!r} is {count} simulations; expected at least 0")
    return allowed


def _comparison(results: Sequence[Record | Failure]) -> Comparison:
    records = tuple(result for result in results if isinstance(result, Record))
    failures = tuple(result for result in results if isinstance(result, Failure))
    if not records:
        raise InputError(f"every placer failed: {failures[0].placer} on {failures[0].problem}: {failures[0].reason}")
    return Comparison(records, failures)


def _check(what: str, names: Sequence[str], contents: Iterable[str] | None = None) -> None:
    """Raise InputError if there are none, or two are alike: the name and, if that is given, the content."""
    count = Counter(zip(names, contents or names, strict=True))
    if not count:
        raise InputError(f"there are no {what}s to compare; give at least one")
    (name, _), times = count.most_common(1)[0]
    if times > 1:
        raise InputError(f"{what} {name!r} is given twice")
