"""A move of a local search in a user's own file, FILE.py:FUNCTION.

    def move(problem, placement, generator, progress):
        placement[generator.integers(len(placement))] = generator.integers(len(problem.cluster))
        return placement

It gets the problem, a copy of the placement, (units,) devices, a NumPy generator, and the share of the search that is
over, from 0 to 1; it returns another placement. A unit that may not run where it is put is moved to where it may.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphs.foundation.errors import InputError
from graphs.foundation.user_code import user_callable
from graphs.op_graph import Ints
from graphs.problem import Problem


@dataclass(frozen=True)
class OwnMove:
    """A function of a user's file, which other processes load again by its name."""

    spec: str

    def __post_init__(self) -> None:
        """Raises InputError for a file or a function that does not exist, UserCodeError for a file that fails."""
        assert self.function is not None

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The function itself."""
        return user_callable(self.spec)

    def proposals(self, problem: Problem, generator: np.random.Generator) -> OwnProposals:
        """What a search on a problem tries."""
        return OwnProposals(self, problem, generator)

    def __reduce__(self) -> tuple[type[OwnMove], tuple[str]]:
        return OwnMove, (self.spec,)


@dataclass(frozen=True)
class OwnProposals:
    """Placements that a user's move makes, checked."""

    move: OwnMove
    problem: Problem
    generator: np.random.Generator

    def propose(self, placement: Ints, progress: float = 1.0) -> Ints:
        """A changed copy of a placement, (units,).

        Raises UserCodeError for what the function raises, and InputError for anything but a device for each unit.
        """
        found = np.asarray(self.move.function(self.problem, placement.copy(), self.generator, progress))
        devices = len(self.problem.cluster)
        if found.shape != placement.shape or not np.issubdtype(found.dtype, np.integer):
            raise InputError(
                f"{self.move.spec}: expected a placement, {len(placement)} whole numbers, got {found.dtype} of shape "
                f"{found.shape}"
            )
        if len(found) and not 0 <= found.min() <= found.max() < devices:
            raise InputError(
                f"{self.move.spec}: expected devices from 0 to {devices - 1}, got {found.min()} to {found.max()}"
            )
        return self.problem.made_allowed(found.astype(np.int64))
