"""GraphSummary: what a graph holds, at a glance."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table

from envs.costs.costs import cost_model_of
from evaluation.records import formatting
from evaluation.records.printed import Printed
from graphs.algorithms.order import levels
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph, Phase
from graphs.transforms.batch import law_of

LARGEST = 5


@dataclass(frozen=True)
class GraphSummary(Printed):
    """Counts, totals, and the largest tensors of a graph."""

    name: str
    fingerprint: str
    ops: int
    edges: int
    units: int  # decisions that a placement takes
    ops_by_phase: dict[str, int]
    ops_by_kind: dict[str, int]  # most frequent first
    flops: float  # FLOP of one step
    bytes_accessed: float
    weight_bytes: float  # each parameter tensor once
    output_bytes: float
    samples: int  # of a step; 0 if not known
    fixed_bytes_accessed: float  # of bytes_accessed, what does not grow with the samples
    measured_ops: int  # with measured times
    cost_model: str  # that times the ops unless another is named; empty if that does not follow from the graph
    critical_path_ops: int  # ops on the longest chain
    largest_outputs: dict[str, float]  # op -> bytes

    @classmethod
    def of(cls, graph: OpGraph) -> GraphSummary:
        """Summarise a graph."""
        try:
            cost_model = cost_model_of(graph)
        except InputError:  # both times and FLOPs, or neither: said when the graph is placed
            cost_model = ""
        law, largest = law_of(graph), np.argsort(-graph.output_bytes, kind="stable")[:LARGEST]
        return cls(
            name=graph.name,
            fingerprint=graph.fingerprint,
            ops=len(graph),
            edges=len(graph.edges),
            units=graph.num_units,
            ops_by_phase={p.name.lower(): int((graph.phase == p).sum()) for p in Phase if (graph.phase == p).any()},
            ops_by_kind=dict(Counter(graph.kinds).most_common()),
            flops=float(graph.flops.sum()),
            bytes_accessed=float(graph.bytes_accessed.sum()),
            weight_bytes=float(graph.weights.sum()),
            output_bytes=float(graph.output_bytes.sum()),
            samples=law.samples,
            fixed_bytes_accessed=float(law.bytes_accessed.sum()),
            measured_ops=int((~np.isnan([graph.measured_seconds, *graph.measured_on.values()]).all(axis=0)).sum()),
            cost_model=cost_model,
            critical_path_ops=int(levels(graph.edges, len(graph)).max()) + 1,
            largest_outputs={graph.names[i]: float(graph.output_bytes[i]) for i in largest},
        )

    def to_json(self) -> dict[str, object]:
        """As a flat record."""
        return asdict(self)

    def _shown(self) -> RenderableType:
        """Two tables: totals, and the largest tensors."""
        title = f"{self.name}  ({self.fingerprint})"
        totals = Table(title=title, title_style="bold", title_justify="left", box=None, show_header=False)
        phases = ", ".join(f"{count:,} {phase}" for phase, count in self.ops_by_phase.items())
        totals.add_row("ops", f"{self.ops:,} ({phases})")
        kinds = list(self.ops_by_kind.items())[:LARGEST]
        totals.add_row("most frequent", ", ".join(f"{count:,} {kind}" for kind, count in kinds))
        totals.add_row("edges", f"{self.edges:,}")
        totals.add_row("units to place", f"{self.units:,}")
        totals.add_row("longest chain", f"{self.critical_path_ops:,} ops")
        totals.add_row("compute", _gigaflop(self.flops))
        totals.add_row("memory traffic", formatting.memory(self.bytes_accessed))
        totals.add_row("parameters", formatting.memory(self.weight_bytes))
        totals.add_row("outputs of all ops", formatting.memory(self.output_bytes))
        if self.samples:
            fixed = self.fixed_bytes_accessed / self.bytes_accessed if self.bytes_accessed else 0.0
            totals.add_row(
                "samples of a step", f"{self.samples:,}; {fixed:.0%} of memory traffic does not grow with them"
            )
        if self.measured_ops:
            totals.add_row("measured times", f"of {self.measured_ops:,} ops")
        totals.add_row("timed by", self.cost_model or "what --cost-model names: some ops have times, others FLOPs")
        tensors = formatting.table("", "largest outputs", *formatting.numbers("size"))
        for name, size in self.largest_outputs.items():
            tensors.add_row(name, formatting.memory(size))
        return Group(totals, tensors)


def _gigaflop(flops: float) -> str:
    """With three digits at least, also of small models."""
    amount = flops / 1e9
    return f"{amount:,.1f} GFLOP" if amount >= 10 else f"{amount:.3g} GFLOP"
