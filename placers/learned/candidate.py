"""A simulated candidate of a policy: a placement with its order, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from envs.objectives import Evaluator
from envs.prepared_problem import outcomes_of
from envs.simulation.simulator import Outcome
from graphs.op_graph import Floats, Ints


@dataclass(frozen=True, eq=False)
class Candidate:
    """A placement, (units,) devices, that was simulated."""

    placement: Ints
    order: Floats | None  # (ops,) priorities, or those of the problem's rule
    outcome: Outcome

    @classmethod
    def best_of(cls, evaluator: Evaluator, placements: Ints, orders: Floats | None) -> Candidate:
        """Simulate (plans, units) placements, under their (plans, ops) orders if they have some; the best of them."""
        outcomes = outcomes_of(evaluator, placements, orders)
        best = outcomes.best()
        return cls(placements[best], None if orders is None else orders[best], outcomes.of(best))

    def or_by(self, evaluator: Evaluator, order: Floats | None) -> Candidate:
        """The same placement under another order, if that is better by a further simulation."""
        other = Candidate.best_of(evaluator, self.placement[None], None if order is None else order[None])
        return self.or_other(other)

    def or_other(self, other: Candidate) -> Candidate:
        """The other candidate, if that is better."""
        return other if other._badness < self._badness else self

    @property
    def _badness(self) -> tuple[bool, float]:
        return not self.outcome.fits, self.outcome.step_seconds
