"""Placer: anything that turns a problem into a plan, placelab's own or a user's."""

from dataclasses import dataclass, replace
from typing import Any, Protocol

from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.user_code import user_code
from graphs.problem import Problem


class Placer(Protocol):
    """Anything that decides where the ops of a problem go.

    `divides_batch = True` says that plans may divide the batch: how costs grow with it is then found out exactly.
    """

    @property
    def name(self) -> str:
        """The spec that builds this placer again, such as "metis:seeds=20"."""
        ...

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """A plan for the problem, and how it was found; equal seeds give equal results.

        `budget` is how many placements the placer may have timed by a simulator; `PlacerResult.simulations` says how
        many it did. A plan need not fit the devices' memory: the simulator checks that.
        """
        ...


@dataclass(frozen=True)
class OwnPlacer(by_name.OwnExtension[Placer]):
    """A placer from a user's file."""

    folder = "placers"

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """What the user's placer returns.

        Raises UserCodeError for errors of its code, InputError for a plan that is not valid for the problem.
        """
        with user_code(self.file):
            found = self.built.place(problem, seed=seed, budget=budget)
        result = as_result(found, self.name, seed)
        result.plan.check(problem)
        return replace(result, placer=self.name, seed=seed)


def checked(spec: str, built: Any) -> Placer:
    """What `build` of a user's file or of another package returned. Raises InputError for what is no placer."""
    if not callable(getattr(built, "place", None)):
        raise InputError(f"{spec!r}: expected a placer, with a method `place`, got {type(built).__name__}")
    if own := by_name.own(spec):
        return OwnPlacer(spec, own.file, built)
    if not isinstance(getattr(built, "name", None), str):
        raise InputError(f"{spec!r}: the placer has no `name`, the spec that builds it again")
    placer: Placer = built
    return placer


def as_result(found: object, placer: str, seed: int) -> PlacerResult:
    """What a placer returned, where that may be a plan alone. Raises InputError if it is neither result nor plan."""
    if isinstance(found, Plan):
        return PlacerResult(found, placer, seed)
    if not isinstance(found, PlacerResult) or not isinstance(found.plan, Plan):
        raise InputError(
            f"placer {placer!r}: expected a placelab.Plan or a placelab.PlacerResult from `place`, got "
            f"{type(found).__name__}"
        )
    return found
