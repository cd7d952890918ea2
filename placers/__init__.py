"""Floor 2, who decides: anything that turns a problem into a plan. An extension folder: one file, one placer."""

from __future__ import annotations

from typing import Protocol

from envs.plan import Plan
from graphs.problem import Problem


class Placer(Protocol):
    """Anything that decides where the ops of a problem go."""

    @property
    def name(self) -> str:
        """The spec that builds this placer again, such as "metis:seeds=20"."""
        ...

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> Plan:
        """A plan for the problem; equal seeds give equal plans.

        `budget` is how many placements the placer may have timed by a simulator; `Plan.simulations` says how many it
        did. A plan need not fit the devices' memory: the simulator is the judge of that.
        """
        ...
