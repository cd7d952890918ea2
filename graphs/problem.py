"""Problem: what is placed, and where."""

from __future__ import annotations

from dataclasses import dataclass

from graphs.cluster import Cluster
from graphs.errors import InputError
from graphs.op_graph import Floats, OpGraph

OPTIMIZER_BYTES = {"sgd": 0.0, "momentum": 1.0, "adam": 2.0}  # bytes of state per parameter byte


@dataclass(frozen=True, eq=False)
class Problem:
    """An op graph to be placed on a cluster, and the optimizer state that its parameters bring along.

    Raises InputError for an unknown optimizer.
    """

    graph: OpGraph
    cluster: Cluster
    optimizer: str = "adam"  # a key of OPTIMIZER_BYTES; read only if the graph is a training step
    op_seconds: Floats | None = None  # (ops, devices) what ops cost, if not what the roofline says

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZER_BYTES:
            raise InputError(f"unknown optimizer {self.optimizer!r}; there are {', '.join(OPTIMIZER_BYTES)}")

    @property
    def name(self) -> str:
        """The graph's name and the cluster's."""
        return f"{self.graph.name}@{self.cluster.name}"

    @property
    def bytes_per_weight_byte(self) -> float:
        """What one byte of parameters occupies: itself and, in training, its gradient and optimizer state."""
        return 2.0 + OPTIMIZER_BYTES[self.optimizer] if self.graph.is_training else 1.0
