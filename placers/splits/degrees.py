"""Degrees: what each op divides by the degrees of parallelism inside of a stage, as Megatron-LM combines them.

    axis of the mesh     divides
    dp / ep              samples, in equal parts or in shares
    ep                   experts, and samples of all that is no expert
    cp                   positions of the sequence
    tp                   columns and rows of weights and, with `sequence`, positions of all else

The last axis runs fastest: the devices of a tensor-parallel group follow one another. With `sequence`, what an
all-reduce adds up between rows and columns is added up by a reduce-scatter, and gathered before the next columns
(Korthikanti et al. 2022). Of `cp`, keys and values are gathered before attention, and their gradients added up by a
reduce-scatter (Llama Team 2024, section 3.3.2).
"""

from dataclasses import dataclass

from envs.plans.mesh import Mesh, Split
from envs.plans.schedule import Shares
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from placers.splits.axes import By, along_batch, over_mesh, where_none
from placers.splits.column_row import columns_and_rows
from placers.splits.experts import along_experts
from placers.splits.sequences import along_sequence
from placers.splits.sharded_updates import with_sharded_updates

Divided = tuple[tuple[Split, ...], Mesh, tuple[str, ...]]


@dataclass(frozen=True)
class Degrees:
    """How many parts the devices of a stage divide ops into, and of what."""

    dp: int
    ep: int
    cp: int
    tp: int
    sequence: bool
    sharded: bool = False
    """Whether replicas, and parts of the sequence, store parts of weights alone, and gather the others to use them."""
    shares: Shares = ()
    """How many parts of the samples each replica takes, with one device for all experts; () for equally many."""

    def of_ops(self, graph: OpGraph) -> Divided:
        """The split of each op, its mesh, and notes of what part of the FLOPs is divided.

        Raises InputError for a degree by which nothing can be divided.
        """
        if self.ep * self.cp * self.tp == 1:
            return (), (), ()
        samples, nothing = along_batch(graph, sum(self.shares) or self.dp), ("",) * len(graph)
        experts = self._experts(graph) if self.ep > 1 else nothing
        weights = self._weights(graph) if self.tp > 1 else nothing
        positions = self._positions(graph) if self.cp > 1 or self.sequence else nothing
        axes = (
            (self.shares or self.dp // self.ep, samples),
            (self.ep, where_none(experts, samples)),
            (self.cp, positions),
            (self.tp, where_none(weights, positions) if self.sequence else weights),
        )
        split, mesh = over_mesh(graph, axes)
        if self.sharded:
            split = with_sharded_updates(graph, split, mesh, range(len(mesh) - (self.tp > 1)))
        notes = [
            f"parallel: {_share(graph, by):.0%} of the FLOPs are divided {what}, each of which does all else {how}."
            for count, by, what, how in (
                (self.ep, experts, f"by experts among {self.ep} devices", "for its part of the samples"),
                (self.cp, positions, f"along the sequence among {self.cp} devices", "in whole"),
                (
                    self.tp, weights, f"among the {self.tp} shards",
                    "for its part of the sequence, or in whole" if self.sequence else "in whole",
                ),
            )
            if count > 1
        ]  # fmt: skip
        return split, mesh, tuple(notes)

    def _weights(self, graph: OpGraph) -> By:
        by = columns_and_rows(graph, self.tp)
        if not any(by):
            raise InputError(
                f"parallel: no product of {graph.name!r} can be divided by {self.tp} columns, and the next one by "
                "rows; choose a tp that divides the numbers of heads and of features, or 1"
            )
        return by

    def _positions(self, graph: OpGraph) -> By:
        parts = self.cp * (self.tp if self.sequence else 1)
        by = along_sequence(graph, parts)
        if not any(by):
            raise InputError(
                f"parallel: no product of {graph.name!r} can be divided along a sequence into {parts} parts, as a "
                "Transformer's by its positions; " + ("choose cp=1" if self.cp > 1 else "leave sequence out")
            )
        return by

    def _experts(self, graph: OpGraph) -> By:
        by = along_experts(graph, self.ep)
        if not any(by):
            raise InputError(
                f"parallel: {graph.name!r} has no {self.ep} experts or more whose weights are one tensor, as of a "
                "mixture of experts by torch.bmm; choose a smaller ep, or 1"
            )
        return by


def _share(graph: OpGraph, by: By) -> float:
    """The part of the FLOPs that is of ops that are divided."""
    return float(graph.flops[[bool(index) for index in by]].sum() / graph.flops.sum())
