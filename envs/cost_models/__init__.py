"""Cost models: how long each op takes on each device. An extension folder: one file, one cost model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from graphs.op_graph import Floats
from graphs.problem import Problem


@dataclass(frozen=True, eq=False)
class Costs:
    """What the ops of a problem cost."""

    op_seconds: Floats  # (ops, devices) seconds, without the launch hold that follows an op


class CostModel(Protocol):
    """Anything that knows how long ops take."""

    def costs(self, problem: Problem) -> Costs:
        """Seconds of every op on every device of the problem's cluster."""
        ...
