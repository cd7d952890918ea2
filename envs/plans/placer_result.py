"""PlacerResult: the plan that a placer returns, and how it was found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from envs.orders import OrderLike
from envs.plans.conditions import Conditions
from envs.plans.plan import Plan
from graphs.problem import Problem


@dataclass(frozen=True)
class PlacerResult:
    """A plan, who found it and at what cost."""

    plan: Plan
    placer: str = ""  # spec of the placer that found it
    seed: int = 0
    simulations: int = 0  # how many it took
    curve: tuple[tuple[int, float], ...] = ()  # of a search: (simulations, seconds of the objective) at each better one
    notes: tuple[str, ...] = ()  # sentences for who reads a report, such as what a search had to leave out
    made_for: Conditions | None = None  # what the plan is made for, if that is known
    compared: Mapping[str, Plan] = field(default_factory=dict)  # by placers' specs, plans that the search compared
    runnable: Plan | None = None  # the best that it knows and that processes run, if they do not run the plan

    @classmethod
    def of_units(
        cls, problem: Problem, placement: NDArray[np.integer] | Sequence[int], placer: str, seed: int, *,
        simulations: int = 0, curve: Iterable[tuple[int, float]] = (), notes: Iterable[str] = (),
        order: OrderLike = None,
    ) -> PlacerResult:  # fmt: skip
        """The result of placing each unit of the problem's graph on one device, (units,); as `Plan.of_units`."""
        plan = Plan.of_units(problem, placement, order=order)
        return cls(plan, placer, seed, simulations, tuple(curve), tuple(notes))
