"""Fifo: first come, first served, as papers simulate: what has been ready longest runs first."""

from dataclasses import dataclass

import numpy as np

from graphs.op_graph import Floats
from graphs.problem import Problem


@dataclass(frozen=True)
class FirstComeFirstServed:
    """No priorities at all."""

    def priorities(self, problem: Problem, op_seconds: Floats) -> Floats:  # noqa: ARG002 - the contract of rules
        """An empty array."""
        return np.zeros(0)


build = FirstComeFirstServed
