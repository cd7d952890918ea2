"""Task: one placer on one problem with one seed, and the record of its plan."""

from __future__ import annotations

import time
from dataclasses import dataclass

from msgspec.structs import replace

from envs.bounds import lower_bound
from envs.costs.costs import timing
from envs.objectives import evaluate_objective
from envs.placer_result import PlacerResult
from envs.robustness import Robustness, robustness
from envs.simulation.simulator import simulate
from envs.timeline import Timeline
from evaluation.identity import key_of
from evaluation.journal_entry import JournalEntry
from evaluation.record import Failure, Record
from graphs.foundation.errors import DoesNotFitError, InputError
from graphs.problem import Problem
from placers.contract.placer import Placer, as_result


@dataclass(frozen=True, eq=False)
class Task:
    """One placer on one problem with one seed."""

    problem: Problem  # with what its ops cost
    shown_as: str  # its name, and something more if another problem has the same name
    placer: Placer
    seed: int
    budget: int  # placements that the placer may simulate
    digits: tuple[str, str]  # of the problem and the placer (`evaluation.identity`)
    robust: bool = False  # whether the plan is to be timed under noise, too

    @property
    def key(self) -> str:
        """What the record is found by."""
        return key_of(*self.digits, self.seed, self.budget, robust=self.robust)

    @property
    def case(self) -> tuple[str, str, int]:
        """Problem, placer and seed."""
        return self.shown_as, self.placer.name, self.seed

    def do(self) -> JournalEntry | Failure:
        """Place, and simulate the plan. Whatever the placer raises becomes a failure: the others are done."""
        try:
            return self._placed()
        except (InputError, DoesNotFitError) as error:  # in a sentence for users
            return self.failure(str(error))
        except SystemExit as error:
            return self.failure(f"it would have ended the process (SystemExit: {error.code})")
        except Exception as error:
            return self.failure(f"{type(error).__name__}: {error}")

    def failure(self, reason: str) -> Failure:
        """That there is no plan."""
        problem, placer, seed = self.case
        return Failure(problem=problem, placer=placer, seed=seed, reason=reason)

    def shown(self, record: Record) -> Record:
        """The record as this comparison shows it: by the problem's name there, and what its ops are timed by."""
        return replace(record, problem=self.shown_as, cost_model=timing(self.problem))

    def _placed(self) -> JournalEntry:
        started = time.perf_counter()
        found = self.placer.place(self.problem, seed=self.seed, budget=self.budget)
        search_seconds = time.perf_counter() - started
        result = as_result(found, self.placer.name, self.seed)
        if result.simulations > self.budget:
            raise InputError(
                f"placer {self.placer.name!r} simulated {result.simulations} placements of {self.problem.name!r}, "
                f"but its budget is {self.budget}"
            )
        plan = result.plan
        record = record_of(self.problem, result, simulate(self.problem, plan), search_seconds)
        if self.robust:
            record = with_robustness(record, robustness(self.problem, plan, seed=self.seed))
        return JournalEntry(
            record=replace(record, placer=self.placer.name, seed=self.seed, key=self.key, budget=self.budget),
            graph=self.problem.graph.fingerprint,
            cluster=self.problem.cluster.fingerprint,
            devices=tuple(plan.per_unit(self.problem).tolist()),
        )


def record_of(problem: Problem, result: PlacerResult, simulated: Timeline, search_seconds: float) -> Record:
    """A plan in numbers. Raises InputError as the problem's objective does."""
    value = evaluate_objective(problem, result.plan)
    return Record(
        problem=problem.name,
        placer=result.placer,
        seed=result.seed,
        step_seconds=simulated.step_seconds,
        fits=simulated.fits,
        peak_bytes=tuple(simulated.peak_bytes.tolist()),
        simulations=result.simulations,
        search_seconds=search_seconds,
        lower_bound_seconds=lower_bound(problem),
        curve=result.curve,
        max_load=1e3 * value if value is not None and problem.objective == "max-load" else None,
        cost_model=timing(problem),
        objective=problem.objective,
        objective_value=value,
        notes=result.notes,
    )


def with_robustness(record: Record, found: Robustness) -> Record:
    """The record, with how the plan fares under noise and without contention."""
    return replace(
        record,
        robust_seconds=found.median_seconds,
        worst_seconds=found.worst_seconds,
        free_seconds=found.free_seconds,
    )
