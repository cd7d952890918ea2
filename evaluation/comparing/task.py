"""Task: one placer on one problem with one seed, and the record of its plan."""

from dataclasses import dataclass

from msgspec.structs import replace

from envs.costs.costs import timing
from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.records.identity import key_of
from evaluation.records.journal import JournalEntry
from evaluation.records.record import Failure, Record
from graphs.foundation.errors import DoesNotFitError, InputError
from graphs.problem import Problem
from placers.contract.placer import Placer


@dataclass(frozen=True, eq=False)
class Task:
    """One placer on one problem with one seed."""

    problem: Problem  # with what its ops cost
    shown_as: str  # its name, with digits after it if another problem has the same name
    placer: Placer
    seed: int
    budget: int  # placements that the placer may simulate
    digits: tuple[str, str]  # of the problem and the placer (`evaluation.records.identity`)
    robust: bool = False  # whether the plan is timed under noise, too

    @property
    def key(self) -> str:
        """What the record is found by."""
        return key_of(*self.digits, self.seed, self.budget, robust=self.robust)

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
        """The record of a failure."""
        return Failure(problem=self.shown_as, placer=self.placer.name, seed=self.seed, reason=reason)

    def shown(self, record: Record) -> Record:
        """The record as this comparison shows it: by the problem's name there, and what its ops are timed by."""
        return replace(record, problem=self.shown_as, cost_model=timing(self.problem))

    def _placed(self) -> JournalEntry:
        placed = SimulatedPlan.by(self.placer, self.problem, seed=self.seed, budget=self.budget)
        if placed.result.simulations > self.budget:
            raise InputError(
                f"placer {self.placer.name!r} simulated {placed.result.simulations} placements of "
                f"{self.problem.name!r}, but its budget is {self.budget}"
            )
        record = (placed.with_robustness() if self.robust else placed).record
        record = replace(record, placer=self.placer.name, seed=self.seed, key=self.key, budget=self.budget)
        return JournalEntry.of(record, self.problem, placed.plan)
