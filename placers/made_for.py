"""Made for another runtime: the plan that a placer makes where plans are run in another way than the problem says.

So it shows what a placer gains by knowing how its plans are run:

    placelab compare --suite gdp12 --runtime parallelize --placers annealing:policy=default,made_for,single_device
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from envs.plans.placer_result import PlacerResult
from graphs.foundation import by_name
from graphs.foundation.by_name import Named
from graphs.problem import Problem
from graphs.runtime import runtime_of
from placers.contract.placer import Placer, as_result
from placers.contract.time_limit import Stoppable

BY_REQUEST = True  # it is another placer's plan


@dataclass(frozen=True)
class MadeFor(Named):
    """A placer that takes a problem for one of another runtime."""

    runtime: str = "ideal"
    """The runtime."""
    placer: str = "annealing:policy=default"
    """The placer that plans for it, by a spec of at most one knob."""
    seconds: float = math.inf
    """A limit of processor seconds for that, if it can stop itself."""

    def __post_init__(self) -> None:
        _ = runtime_of(self.runtime), self.planning  # refused here, not after a model was captured

    @cached_property
    def planning(self) -> Placer:
        """What `placer` names."""
        built: Placer = by_name.build("placers", self.placer)
        return built if math.isinf(self.seconds) or not isinstance(built, Stoppable) else built.within(self.seconds)

    def within(self, seconds: float) -> Self:
        """As `placers.contract.time_limit.Stoppable.within`."""
        return replace(self, seconds=seconds) if isinstance(self.planning, Stoppable) else self

    @property
    def divides_batch(self) -> bool:
        """Whether its plans may divide the batch."""
        return bool(getattr(self.planning, "divides_batch", False))

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The other placer's plan; its curve, which is of the other runtime, is left out."""
        other = replace(problem, runtime=runtime_of(self.runtime))
        found = as_result(self.planning.place(other, seed=seed, budget=budget), self.name, seed)
        return replace(found, placer=self.name, curve=())


build = MadeFor
