"""Contest: plans of all kinds and from all planners, compared in the same engine, op by op."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from envs.objectives import evaluate_objective
from envs.plans.plan import Plan
from envs.simulation.simulator import LaidOut
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.pipelines.budget import Spent
from placers.pipelines.merit import INVALID, Merit
from placers.pipelines.size import copies_of, is_large, is_too_large


@dataclass(frozen=True, eq=False)
class Contestant:
    """A plan, who made it, and what it is worth."""

    who: str
    plan: Plan
    merit: Merit
    peak_bytes: Floats  # (devices,)


class Contest:
    """Keeps the best plan, and what each planner's best is worth."""

    def __init__(self, problem: Problem, spent: Spent) -> None:
        self._problem, self._spent = problem, spent
        self._known: dict[Plan, tuple[Merit, Floats]] = {}
        self.best: Contestant | None = None
        self.entries: dict[str, Contestant] = {}  # of each planner the best
        self.refused: dict[str, str] = {}  # of planners without a plan for the problem, why
        self.curve: list[tuple[int, float]] = []

    @property
    def left(self) -> int:
        """Simulations that may still be made."""
        return self._spent.left

    @property
    def is_large(self) -> bool:
        """Whether few plans should be tried, as each takes seconds to simulate."""
        return is_large(self._problem)

    def offer(self, who: str, plan: Plan, *, even_if_stopped: bool = False) -> Contestant | None:
        """Simulate a plan, unless that was done before; None if no simulations are left.

        Raises InputError for a plan that is not valid for the problem, or too large.
        """
        if plan not in self._known:
            if not (self._spent.left or (even_if_stopped and self._spent.simulations < self._spent.budget)):
                return None
            self._known[plan] = self._simulated(plan)
        return self.joined(Contestant(who, plan, *self._known[plan]))

    def joined(self, entry: Contestant) -> Contestant:
        """A plan that has been simulated takes part."""
        who = entry.who
        self._known.setdefault(entry.plan, (entry.merit, entry.peak_bytes))
        if who not in self.entries or entry.merit < self.entries[who].merit:
            self.entries[who] = entry
        if self.best is None or entry.merit < self.best.merit:
            self.best = entry
            if entry.merit.lacking == 0:
                self.curve.append((self._spent.simulations, entry.merit.value))
        return entry

    def compare(self, who: str, placer: Placer, seed: int, budget: int | None = None) -> Contestant | None:
        """Simulate the plan of another placer, whose own simulations count, too: at most `budget`, if that is given.

        None, and InputError, likewise.
        """
        left = max(self._spent.left - 1, 0)
        found = placer.place(self._problem, seed=seed, budget=left if budget is None else min(left, budget))
        self._spent.add(found.simulations)
        return self.offer(who, found.plan)

    def near(self, factor: float) -> Merit:
        """The merit of a plan by its step time over that of the best; of any plan, while none fits."""
        best = self.best
        return INVALID if best is None or best.merit.lacking else best.merit._replace(value=factor * best.merit.value)

    def fitting(self) -> Iterator[Plan]:
        """All plans that were simulated and fit, the best first."""
        known = ((merit, plan) for plan, (merit, _) in self._known.items() if not merit.lacking)
        yield from (plan for _, plan in sorted(known, key=lambda each: each[0]))

    def others(self, who: str) -> list[Contestant]:
        """The best plans of all planners but one, the best first."""
        return sorted((entry for name, entry in self.entries.items() if name != who), key=lambda entry: entry.merit)

    def _simulated(self, plan: Plan) -> tuple[Merit, Floats]:
        copies = copies_of(plan)
        if is_too_large(self._problem, copies):
            raise InputError(f"it has {copies:,} copies of ops, too many to be simulated one by one")
        laid = LaidOut.of(self._problem, plan)
        outcome = laid.simulator().run(laid.placement)
        self._spent.add(1)
        value = evaluate_objective(self._problem, plan, outcome.step_seconds)
        lacking = np.maximum(outcome.peak_bytes - self._problem.cluster.memory_bytes, 0.0).sum()
        merit = Merit(float(lacking), outcome.step_seconds if value is None else value)
        return min(merit, INVALID), outcome.peak_bytes
