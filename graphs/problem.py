"""Problem: what is placed, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from graphs.cluster import Cluster
from graphs.errors import InputError
from graphs.op_graph import Floats, OpGraph

# bytes per parameter byte while training: itself, its gradient, and the optimizer's state; "none" for weights that
# say already what all of it takes
OPTIMIZER_BYTES = {"sgd": 2.0, "momentum": 3.0, "adam": 4.0, "none": 1.0}
Objective = Literal["step-time", "max-load"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


@dataclass(frozen=True, eq=False)
class Problem:
    """An op graph to be placed on a cluster, and the optimizer state that its parameters bring along.

    The objective says what a placer that can choose minimises: the simulated step time of one training step, or the
    load of the busiest device when samples are pipelined (`envs.max_load`). Raises InputError for an unknown
    optimizer or objective.
    """

    graph: OpGraph
    cluster: Cluster
    optimizer: str = "adam"  # a key of OPTIMIZER_BYTES; read only if the graph is a training step
    op_seconds: Floats | None = None  # (ops, devices) what ops cost, if not what the roofline says
    objective: Objective = "step-time"

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZER_BYTES:
            raise InputError(f"unknown optimizer {self.optimizer!r}; there are {', '.join(OPTIMIZER_BYTES)}")
        if self.objective not in OBJECTIVES:
            raise InputError(f"unknown objective {self.objective!r}; there are {', '.join(OBJECTIVES)}")

    @property
    def name(self) -> str:
        """The graph's name and the cluster's."""
        return f"{self.graph.name}@{self.cluster.name}"

    @property
    def bytes_per_weight_byte(self) -> float:
        """What one byte of parameters occupies: itself and, in training, its gradient and optimizer state."""
        return OPTIMIZER_BYTES[self.optimizer] if self.graph.is_training else 1.0
