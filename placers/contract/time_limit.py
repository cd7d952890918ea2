"""A limit of processor seconds, for placers that can stop themselves: searches, and policies that draw samples.

Others may say what they take, so that whoever has a limit need not ask them.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.contract.placer import Placer

UNLIMITED = 10**9  # simulations, where seconds are the limit


@dataclass(frozen=True)
class Seconds:
    """How long a placer may take on a problem, in seconds of the processor, in place of a budget of simulations."""

    value: float

    def __post_init__(self) -> None:
        """Raises InputError for what is no time, and for a time that never ends."""
        if not 0 < self.value < math.inf:
            raise InputError(f"seconds is {self.value}; expected a finite number > 0, or a budget in place of it")

    def given(self, placer: Placer) -> tuple[Placer, int]:
        """A placer and its budget: with this limit and all the simulations that it has time for, if it can stop.

        Another one takes as long as it takes, and gives what it gives without simulations to choose by.
        """
        limited = placer.within(self.value) if isinstance(placer, Stoppable) else placer
        return limited, 1 if limited is placer else UNLIMITED


@runtime_checkable
class Stoppable(Protocol):
    """A placer that stops when its time is up."""

    def within(self, seconds: float) -> Placer:
        """The same placer with a limit of processor seconds, which its name tells; itself if it has no use for one."""
        ...


@runtime_checkable
class Estimated(Protocol):
    """A placer that says how long it takes before it is asked for a plan."""

    def least_seconds(self, problem: Problem) -> float:
        """An estimate of the processor seconds of its fastest answer; 0 if there is none."""
        ...
