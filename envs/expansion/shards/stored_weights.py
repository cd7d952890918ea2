"""Stored weights: which part of each weight a device holds, and the parts that it has to fetch.

A device stores the box of a weight that its shard of the update writes: the split of an update is the layout of its
weights. What others read of a weight that their device does not store is sent there each time, once the op before them
has what it waits for. Of weights that are not updated, a device stores what is read there.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.expansion.expanded import Role, TensorSlice
from envs.expansion.reads import Reads
from envs.expansion.shards.boxes import cover, hold, volume
from envs.expansion.shards.exchange import Exchange, nearest
from envs.expansion.shards.moves import Place
from envs.expansion.shards.shards import UNKNOWN, Partition
from graphs.algorithms.pairs import equal_pairs
from graphs.descriptions.descriptions import updated_weights
from graphs.notation.described import Source
from graphs.notation.ranges import Box, contains, elements, whole
from graphs.op_graph import Floats, Ints, Phase

Stored = dict[int, tuple[Box, ...]]  # by device the boxes of a weight
Before = dict[int, tuple[int, int]]  # by the first copy of an op the first of another one, and which op that is


@dataclass(frozen=True, eq=False)
class StoredWeights:
    """The weights of a layout whose plan divides ops by their indices."""

    partition: Partition

    @cached_property
    def read_by(self) -> list[list[tuple[int, tuple[Box, ...]]]]:
        """(weights,) the ops that read each, and (shards,) the box that each shard reads."""
        graph = self.partition.layout.problem.graph
        found: list[list[tuple[int, tuple[Box, ...]]]] = [[] for _ in graph.weights]
        named: set[tuple[int, int]] = set()
        for op, (described, shards) in enumerate(zip(self.partition.described, self.partition.shards, strict=True)):
            for number, source in enumerate(() if described is None else described.sources):
                if source is not None and source.weight >= 0:
                    named.add((op, source.weight))
                    found[source.weight].append((op, shards.read[number]))
        for op, weight in graph.weight_uses.tolist():
            if (op, weight) not in named:
                found[weight].append((op, (self.shape[weight],) * len(self.partition.shards[op])))
        return found

    @cached_property
    def shape(self) -> list[Box]:
        """(weights,) all of each, or `UNKNOWN`."""
        found = [UNKNOWN] * len(self.partition.layout.problem.graph.weights)
        for described in self.partition.described:
            if described is not None:
                for source, access in zip(described.sources, described.operator.reads, strict=True):
                    if source is not None and source.weight >= 0:
                        found[source.weight] = whole(access.shape)
        return found

    @cached_property
    def by_device(self) -> list[Stored]:
        """(weights,) what each device stores of each."""
        layout = self.partition.layout
        graph = layout.problem.graph
        boxes: list[defaultdict[int, list[Box]]] = [defaultdict(list) for _ in graph.weights]
        for weight, (readers, updated) in enumerate(zip(self.read_by, self._updated_by, strict=True)):
            for op, of_shards in updated or readers:
                for device, box in zip(layout.plan.devices[op], of_shards, strict=True):
                    boxes[weight][device].append(box)
        return [{device: _largest(several) for device, several in of.items()} for of in boxes]

    @cached_property
    def _updated_by(self) -> list[list[tuple[int, tuple[Box, ...]]]]:
        """(weights,) the updates of each, and what brings it to further ops, and (shards,) the box that each writes.

        What has no description writes all weights of its forward op.
        """
        graph, described = self.partition.layout.problem.graph, self.partition.described
        found: list[list[tuple[int, tuple[Box, ...]]]] = [[] for _ in graph.weights]
        is_known = np.array([each is not None for each in described], np.bool_)
        is_update = graph.phase >= Phase.UPDATE
        for op in np.flatnonzero(is_update & is_known).tolist():
            for weight, boxes in zip(updated_weights(described, op), self.partition.shards[op].made, strict=True):
                found[weight].append((op, boxes))
        which, use = equal_pairs(np.where(is_update & ~is_known, graph.mirror, -1), graph.weight_uses[:, 0])
        for op, weight in dict.fromkeys(zip(which.tolist(), graph.weight_uses[use, 1].tolist(), strict=True)):
            found[weight].append((op, (self.shape[weight],) * len(self.partition.shards[op])))
        return found

    def pieces(self, origin: Ints, device: Ints, work: Ints) -> tuple[Floats, Ints, Ints]:
        """(pieces,) the share that devices store of weights, (uses, 2) op, piece, and (pieces,) the weight of each.

        `work` are the ops of the draft that compute, (work,); of all ops are given the op that each is a copy of and
        its device, (ops,).
        """
        graph = self.partition.layout.problem.graph
        numbers: dict[tuple[int, tuple[Box, ...]], int] = {}
        shares, uses = list[float](), list[tuple[int, int]]()
        which, use = equal_pairs(origin[work], graph.weight_uses[:, 0])
        for op, weight in zip(work[which].tolist(), graph.weight_uses[use, 1].tolist(), strict=True):
            boxes = self.by_device[weight].get(int(device[op]), ())
            if not boxes:
                continue
            number = numbers.setdefault((weight, boxes), len(numbers))
            if number == len(shares):
                shares.append(volume(boxes) / max(elements(self.shape[weight]), 1))
            uses.append((op, number))
        parts = np.array([weight for weight, _ in numbers], np.int64)
        return np.array(shares, np.float64), np.array(uses, np.int64).reshape(-1, 2), parts

    def fetch(self, exchange: Exchange, reads: Reads) -> None:
        """Pieces of weights to the shards that read them and do not store them."""
        layout = self.partition.layout
        before = _first_producers(reads)
        is_update = (layout.problem.graph.phase >= Phase.UPDATE).tolist()
        copies: defaultdict[int, set[int]] = defaultdict(set)
        for op, first in zip(reads.consumer.tolist(), reads.reader.tolist(), strict=True):
            copies[op].add(first)
        for weight, readers in enumerate(self.read_by):
            stored = self.by_device[weight]
            for op, boxes in readers:
                here = zip(layout.plan.devices[op], boxes, strict=True)
                if is_update[op] or all(hold(stored.get(device, ()), box) for device, box in here):
                    continue
                for first in sorted({int(layout.first[op]), *copies[op]}):
                    self._fetch(exchange, weight, op, first, boxes, before)

    def _fetch(
        self, exchange: Exchange, weight: int, op: int, first: int, boxes: tuple[Box, ...], before: Before
    ) -> None:
        """Pieces of a weight to the copies of an op, of which the first is given."""
        layout, moves, source = exchange.layout, exchange.moves, Source(-1 - weight)
        held = [(device, box) for device, several in self.by_device[weight].items() for box in several]
        devices, held_boxes = tuple(device for device, _ in held), tuple(box for _, box in held)
        size = float(layout.problem.graph.weights[weight]) / max(elements(self.shape[weight]), 1)
        step = exchange.step(op)
        trigger = before.get(before[first][0]) if first in before else None
        sent: dict[tuple[int, Box], int] = {}
        # Each shard reads a box of the weight. What its device does not store is sent from the nearest devices
        # that store it, once for all readers of the same piece.
        for shard, (device, needed) in enumerate(zip(layout.plan.devices[op], boxes, strict=True)):
            reader = moves.copy(first + shard, step)
            order = nearest(layout.problem.cluster, devices, device, shard)
            for number, box in cover(needed, held_boxes, order):
                if devices[number] == device:
                    continue
                piece = sent.get((number, box))
                if piece is None:
                    place = Place(devices[number], op, int(layout.stage[op]), -1)
                    piece = moves.add(
                        Role.SLICE, place, TensorSlice(source, box), elements(box) * size, repeated=step > 0
                    )
                    sent[number, box] = piece
                    if trigger is not None:
                        self._wait(exchange, *trigger, shard, piece)
                moves.connect(piece, reader)

    def _wait(self, exchange: Exchange, first: int, op: int, shard: int, piece: int) -> None:
        """A piece waits for a copy of an op, of which the first is given."""
        layout = exchange.layout
        step = exchange.step(op)
        exchange.moves.connect(
            exchange.moves.copy(first + min(shard, int(layout.width[op]) - 1), step), piece, control=True
        )


def _first_producers(reads: Reads) -> Before:
    """By the first copy of an op that of the op whose output it reads first, and which op that is."""
    found: Before = {}
    columns = (reads.read, reads.producer, reads.reader, reads.control)
    for read, producer, reader, orders in zip(*(column.tolist() for column in columns), strict=True):
        if not orders:
            found.setdefault(reader, (read, producer))
    return found


def _largest(boxes: list[Box]) -> tuple[Box, ...]:
    """The boxes that are in no other one, each once, in ascending order."""
    distinct = sorted(set(boxes))
    return tuple(box for box in distinct if not any(box != other and contains(other, box) for other in distinct))
