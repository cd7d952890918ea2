"""Compare placers: let each place each problem with each seed, and judge all plans by one simulator."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from envs.bounds import lower_bound
from envs.cost_models import CostModel, costs_of
from envs.max_load import max_load
from envs.plan import Plan
from envs.simulator import Simulator, simulate
from evaluation.comparison import Comparison, short_name
from evaluation.journal import Journal
from evaluation.record import Failure, Record
from graphs import by_name
from graphs.errors import DoesNotFitError, InputError
from graphs.problem import Problem
from placers import Placer

_UNGUARDED = "a script that compares with several workers must do so under `if __name__ == '__main__':`"


@dataclass(frozen=True, eq=False)
class Work:
    """One placer on one problem with one seed."""

    problem: Problem
    placer: Placer
    seed: int
    budget: int  # placements that the placer may simulate
    cost_model: CostModel | None

    @property
    def key(self) -> tuple[str, str, int]:
        """What names it in a record."""
        return self.problem.name, self.placer.name, self.seed

    def do(self) -> Record | Failure:
        """Place, and simulate the plan. Whatever the placer raises becomes a failure: the others go on."""
        problem, placer, seed = self.key
        try:
            return self._record()
        except Exception as error:
            told = isinstance(error, (InputError, DoesNotFitError))  # in a sentence for users
            what = str(error) if told else f"{type(error).__name__}: {error}"
            return Failure(problem=problem, placer=placer, seed=seed, reason=what)

    def _record(self) -> Record:
        started = time.perf_counter()
        plan = self.placer.place(self.problem, seed=self.seed, budget=self.budget)
        search_seconds = time.perf_counter() - started
        problem, placer, seed = self.key
        if plan.simulations > self.budget:
            raise InputError(
                f"placer {placer!r} simulated {plan.simulations} placements of {problem!r}, "
                f"but its budget is {self.budget}"
            )
        outcome = simulate(self.problem, plan, cost_model=self.cost_model)
        return Record(
            problem=problem,
            placer=placer,
            seed=seed,
            step_seconds=outcome.step_seconds,
            fits=outcome.fits,
            peak_bytes=tuple(outcome.peak_bytes.tolist()),
            simulations=plan.simulations,
            search_seconds=search_seconds,
            lower_bound_seconds=lower_bound(self.problem, self.cost_model),
            curve=plan.curve,
            max_load=self._max_load(plan),
        )

    def _max_load(self, plan: Plan) -> float | None:
        """Milliseconds, where that is the objective."""
        if self.problem.objective != "max-load":
            return None
        return 1e3 * max_load(self.problem, plan.placement, costs_of(self.problem, self.cost_model))


def compare(
    placers: Sequence[Placer | str],
    problems: Sequence[Problem],
    *,
    budget: int = 1,
    budgets: Mapping[str, int] | None = None,
    seeds: Sequence[int] = (0,),
    cost_model: CostModel | None = None,
    workers: int = 1,
    journal: Path | None = None,
    on_record: Callable[[Record], None] | None = None,
    quiet: bool = False,
) -> Comparison:
    """Let each placer place each problem with each seed, and simulate what it says.

    `budget` is how many placements a placer may simulate per problem, `budgets` the exceptions, by placer name.
    Placers may be given by spec. With several `workers` as many processes share the work: the same plans, though
    `search_seconds` grow where there are fewer cores. The file `journal` keeps each record as it comes; what it holds
    already is not done again. `on_record` sees each new record. Progress goes to stderr if that is a terminal.

    A placer that fails on a problem is told of in `failures`. Raises InputError if there is nothing to compare, a name
    is given twice, the journal is of another comparison, or everything failed.
    """
    built = [by_name.build("placers", placer) if isinstance(placer, str) else placer for placer in placers]
    _check("placer", [placer.name for placer in built])
    _check("problem", [problem.name for problem in problems])
    allowed = {placer.name: (budgets or {}).get(placer.name, budget) for placer in built}
    if strangers := [name for name in budgets or {} if name not in allowed]:
        raise InputError(f"budgets: {by_name.unknown('placer', strangers[0], allowed)}")
    if budget < 0:
        raise InputError(f"the budget is {budget} simulations; expected at least 0")
    if not seeds:
        raise InputError("there are no seeds to compare with; give at least one")
    works = [
        Work(problem, placer, seed, allowed[placer.name], cost_model)
        for problem in problems for placer in built for seed in seeds
    ]  # fmt: skip
    kept = Journal.open(journal, allowed) if journal is not None else Journal()
    done: dict[tuple[str, str, int], Record | Failure] = {record.key: record for record in kept.records}
    left = [work for work in works if work.key not in done]
    hidden = True if quiet else None  # None: shown on a terminal
    with tqdm(total=len(works), initial=len(works) - len(left), desc="comparing", unit="plan", disable=hidden) as bar:
        for work, result in _results(left, workers):
            bar.set_postfix_str(f"{short_name(work.placer.name)} on {work.problem.name}")
            bar.update()
            done[work.key] = result
            if isinstance(result, Record):
                kept.add(result)
                if on_record is not None:
                    on_record(result)
    return _comparison([done[work.key] for work in works])


def _results(works: Sequence[Work], workers: int) -> Iterator[tuple[Work, Record | Failure]]:
    """In order, or as they come from several processes."""
    if workers <= 1 or len(works) <= 1:
        if works:
            _warm_up(works[0])
        for work in works:
            yield work, work.do()
        return
    if multiprocessing.parent_process() is not None:
        raise InputError(_UNGUARDED)
    # forking a process that runs threads, as numerical libraries do, may hang it
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _warm_up, (works[0],))
    try:
        futures = {pool.submit(work.do): work for work in works}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool as error:
        raise InputError(f"a worker process ended before its work was done; {_UNGUARDED}") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _warm_up(work: Work) -> None:
    """Compile the simulator off the clock."""
    Simulator(work.problem, cost_model=work.cost_model).run([0] * work.problem.graph.num_units)


def _comparison(results: Sequence[Record | Failure]) -> Comparison:
    records = tuple(result for result in results if isinstance(result, Record))
    failures = tuple(result for result in results if isinstance(result, Failure))
    if not records:
        raise InputError(f"every placer failed: {failures[0].placer} on {failures[0].problem}: {failures[0].reason}")
    return Comparison(records, failures)


def _check(what: str, names: Iterable[str]) -> None:
    count = Counter(names)
    if not count:
        raise InputError(f"there are no {what}s to compare; give at least one")
    name, times = count.most_common(1)[0]
    if times > 1:
        raise InputError(f"{what} {name!r} is given twice; each {what} of a comparison needs a name of its own")
