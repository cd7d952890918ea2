"""What a policy may do beyond placing all units: repair plans, and choose an order."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch

from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.contract.current_plan import CurrentPlan

Decisions = Literal["all", "devices", "order"]


class Repairer(Protocol):
    """Repairs plans of one problem."""

    def propose(self, plan: CurrentPlan, count: int, generator: np.random.Generator) -> Ints:
        """(count, units) placements that differ from a plan's in some units, from sober to bold."""
        ...


@runtime_checkable
class Repairs(Protocol):
    """A policy that can place a part of the units of a plan again, the others staying where they are."""

    def repair(self, batch: Any, samples: int, generator: torch.Generator, plans: Sequence[CurrentPlan | None]) -> Any:
        """Draw actions as `Policy.act`, but place only some units of the problems of which a plan is given."""
        ...

    def repairer(self, problem: Problem, threads: int) -> Repairer:
        """What repairs plans of a problem, on some threads; how many changes no result."""
        ...


@runtime_checkable
class Orders(Protocol):
    """A policy that can choose in which order devices run what is ready."""

    def learn(self, what: Decisions) -> None:
        """In training decide and learn devices alone, the order alone, given placements of its own, or both.

        Raises InputError if its network chooses no order.
        """
        ...
