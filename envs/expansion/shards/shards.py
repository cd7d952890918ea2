"""Shards: what each part of an op that is divided over a mesh reads and makes, for one micro-batch.

An op without a description is done as a whole by every shard. Of its output it is not known what is where: it is one
piece, `UNKNOWN`, that is read as a whole.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from envs.expansion.layout import Layout
from envs.expansion.shards.boxes import summands
from envs.expansion.shares import shared
from envs.plans.mesh import Mesh, Split, coordinates, mesh_of, spaces
from graphs.descriptions.descriptions import descriptions_of, read_by_loss
from graphs.notation.described import Described, Source, of_part
from graphs.notation.operator import Access, Operator
from graphs.notation.ranges import Box, Range, elements, whole
from graphs.op_graph import Floats, Phase
from graphs.problem import Problem

UNKNOWN: Box = (Range(0, 0),)

_KEPT = 1 << 14  # shards of operators: a search expands the same ones again and again


@dataclass(frozen=True, eq=False)
class Shards:
    """The shards of an op in index notation; `operator` is what it computes of one micro-batch, if that is known."""

    operator: Operator | None
    axes: Mesh
    split: Split
    is_replicated: bool = False  # each shard does with its part of the batch what the op does with all, as replicas do

    def __len__(self) -> int:
        return len(coordinates(self.axes))

    @cached_property
    def spaces(self) -> list[dict[str, Range]]:
        """(shards,) the part of the iteration space that each computes."""
        return spaces({} if self.operator is None else self.operator.space, self.split, self.axes)

    @cached_property
    def made(self) -> tuple[tuple[Box, ...], ...]:
        """(results, shards) the box of each result that each shard makes, or adds to."""
        return ((UNKNOWN,) * len(self),) if self.operator is None else tuple(map(self._boxes, self.operator.writes))

    @cached_property
    def read(self) -> tuple[tuple[Box, ...], ...]:
        """(reads, shards) the box of each input that each shard reads."""
        return () if self.operator is None else tuple(map(self._boxes, self.operator.reads))

    @cached_property
    def whole(self) -> tuple[Box, ...]:
        """(results,) all of each."""
        return (UNKNOWN,) if self.operator is None else tuple(whole(each.shape) for each in self.operator.writes)

    @cached_property
    def part(self) -> list[float]:
        """(shards,) the share of the points of the iteration space that each computes.

        Where shards along an axis all make the same, as the gradient of a bias that is added once, it is no less.
        """
        if self.operator is None:
            return [1.0] * len(self)
        sizes, divided = self.operator.sizes, [index for index in dict.fromkeys(self.split) if index]
        counts = [
            index
            for index in divided
            if any(index in access.variables or index not in access.apart for access in self.operator.writes)
        ]
        return [math.prod(space[index].size / sizes[index] for index in counts) for space in self.spaces]

    @cached_property
    def groups(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """(results,) the groups of shards whose boxes have to be added up; groups of one have nothing to add."""
        if self.operator is None:
            return (tuple((shard,) for shard in range(len(self))),)
        found = []
        for access, boxes in zip(self.operator.writes, self.made, strict=True):
            same = [not index or (index in access.apart and index not in access.variables) for index in self.split]
            alike: dict[tuple[int, ...], int] = {}
            numbers = tuple(
                alike.setdefault(tuple(at for at, is_same in zip(each, same, strict=True) if is_same), len(alike))
                for each in coordinates(self.axes)
            )
            found.append(summands(boxes, numbers))
        return tuple(found)

    @cached_property
    def exchanged(self) -> tuple[tuple[tuple[int, ...], int], ...]:
        """Groups of shards that exchange statistics while they run, as a mean or a maximum, and how many elements."""
        operator, found = self.operator, defaultdict[tuple[int, ...], list[int]](list)
        if operator is None or operator.is_number or self.is_replicated:
            return ()
        across = [bool(index) and operator.exchanged(index) > 0 for index in self.split]
        if not any(across):
            return ()
        for shard, at in enumerate(coordinates(self.axes)):
            found[tuple(-1 if is_across else place for place, is_across in zip(at, across, strict=True))].append(shard)
        divided = [index for index, is_across in zip(self.split, across, strict=True) if is_across]
        return tuple(
            (
                tuple(group),
                sum(
                    each.forward * math.prod(self.spaces[group[0]][name].size for name in each.index)
                    for each in operator.statistics
                    if any(index not in each.index for index in divided)
                ),
            )
            for group in found.values()
        )

    def _boxes(self, access: Access) -> tuple[Box, ...]:
        return tuple(map(access.region, self.spaces))


@lru_cache(_KEPT)
def _shards(operator: Operator | None, batch: str, batches: int, axes: Mesh, split: Split) -> Shards:
    """The shards of an op, for one of several micro-batches."""
    if operator is None:
        return Shards(None, axes, ("",) * len(axes))
    part = of_part(operator, batch, 1, batches)
    assert part is not None  # by the plan's checks
    return Shards(part, axes, split or (batch,) * len(axes), not split)


@dataclass(frozen=True, eq=False)
class Partition:
    """The shards of all ops of a layout whose plan divides ops by their indices."""

    layout: Layout

    @cached_property
    def described(self) -> tuple[Described | None, ...]:
        """(ops,) each op in index notation, for the whole batch."""
        return descriptions_of(self.layout.problem.graph)

    @cached_property
    def shards(self) -> list[Shards]:
        """(ops,) the shards of each op; ops of the same operator have the same ones."""
        plan, found = self.layout.plan, list[Shards]()
        repeated, phase = self.layout.is_repeated.tolist(), self.layout.problem.graph.phase.tolist()
        for op, (each, split, devices) in enumerate(zip(self.described, plan.split, plan.devices, strict=True)):
            if not split and phase[op] == Phase.REFRESH:
                split = self._as_updated(op, devices)
            axes, batches = mesh_of(plan.mesh, len(devices)), self.layout.micro_batches if repeated[op] else 1
            found.append(
                _shards(None, "", 1, axes, ())
                if each is None
                else _shards(each.operator, each.batch, batches, axes, split)
            )
        return found

    def _as_updated(self, op: int, devices: tuple[int, ...]) -> Split:
        """How a refresh is divided of which the plan says nothing: as the update that it follows, on the same devices.

        That is where their indices have the same names; else each shard does all of it.
        """
        described, plan = self.described[op], self.layout.plan
        for source in () if described is None else described.sources:
            if described is not None and source is not None and plan.devices[source.op] == devices:
                split = plan.split[source.op]
                return split if all(not index or index in described.operator.sizes for index in split) else ()
        return ()

    def stays_in_parts(self, source: Source) -> bool:
        """Whether each shard goes on with its own part of a number that is a loss, or one of a replica.

        What is computed with other numbers, as the count in a mean or a norm, needs their sum.
        """
        shards, is_loss = self.shards[source.op], read_by_loss(self.layout.problem.graph)
        return elements(shards.whole[source.result]) == 1 and (shards.is_replicated or is_loss[source.op])

    @cached_property
    def whole_ops(self) -> Problem:
        """The problem of a micro-batch, whose ops are not divided."""
        return shared(self.layout.problem, 1.0 / self.layout.micro_batches)

    @cached_property
    def element_bytes(self) -> list[float]:
        """(ops,) bytes of an element of each result, or all of what is `UNKNOWN`.

        A gradient of several tensors has one output in the graph, as large as they are on average or, if they are
        weights, together (`graphs.capture.training_step`).
        """
        layout, graph = self.layout, self.layout.problem.graph
        together = layout.is_weight_gradient | layout.reads_all
        found: list[float] = self.whole_ops.graph.output_bytes.tolist()
        for op, each in enumerate(self.described):
            if each is not None:
                counts = [math.prod(access.shape) for access in each.operator.writes]
                total = sum(counts) if together[op] else sum(counts) / max(len(counts), 1)
                found[op] = float(graph.output_bytes[op]) / total if total else 0.0
        return found


def least_shares(partition: Partition) -> Floats:
    """(ops,) the least part of each op that a shard computes for a micro-batch, as a share of the whole op."""
    layout = partition.layout
    batches = np.where(layout.is_repeated, layout.micro_batches, 1)
    return np.array([min(shards.part) for shards in partition.shards]) / batches
