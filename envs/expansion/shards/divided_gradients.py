"""Gradients of weights to the updates that read them, where the plan divides ops by their indices.

They are added up over micro-batches first: in place, if the device stores all of the weight that its shard has the
gradient of, which is then held until the update (`envs.expansion.held_gradients`), and else in a buffer. Partial sums
that all of the shards want are put into buckets, each with an all-reduce of its own; others are added up and sent as
any tensor is.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from envs.expansion.buckets import as_made
from envs.expansion.expanded import Role, TensorSlice
from envs.expansion.held_gradients import first_made
from envs.expansion.shards.exchange import Exchange, HeldBox, Reader
from envs.expansion.shards.moves import Place
from graphs.notation.described import Source
from graphs.notation.ranges import Box, contains, elements, hull

Gradients = defaultdict[tuple[int, int], list[Reader]]  # by op and result who reads it


def sum_divided_gradients(exchange: Exchange, gradients: Gradients) -> None:
    """Connect the shards that make gradients with those that read them for updates."""
    graph = exchange.layout.problem.graph
    sums = _GradientSums(exchange)
    producers = np.array([producer for producer, _ in gradients], np.int64)
    turn = {op: number for number, op in enumerate(as_made(graph, producers).tolist())}
    for producer, result in sorted(gradients, key=lambda key: (turn[key[0]], key[1])):
        sums.add(producer, result, gradients[producer, result])
    sums.close()


@dataclass
class _Bucket:
    """Gradients that are summed up together, over the same shards."""

    producer: int  # the op that is made last
    bytes: float = 0.0
    copies: list[tuple[int, ...]] = field(default_factory=list)  # (gradients, members)
    sums: list[TensorSlice] = field(default_factory=list)  # (gradients,)
    readers: list[Reader] = field(default_factory=list)


class _GradientSums:
    """Takes gradients in the order in which they are made."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange, self.moves, self.layout = exchange, exchange.moves, exchange.layout
        self._is_held = exchange.layout.problem.weight_memory.gradients
        self._first_made = first_made(exchange.layout)[:, 0]
        self._open: dict[tuple[int, ...], _Bucket] = {}  # by the devices of its members

    def add(self, producer: int, result: int, readers: list[Reader]) -> None:
        """A gradient, summed up over micro-batches and shards, to its readers."""
        shards, devices = self.exchange.partition.shards[producer], self.layout.plan.devices[producer]
        first, step = int(self.layout.first[producer]), self.exchange.step(producer)
        copies = [self.moves.copy(first + shard, step) for shard in range(len(devices))]
        made, groups = shards.made[result], shards.groups[result]
        here = {device: shard for shard, device in enumerate(devices)}
        room = _wanted_on(readers)
        if all(len(group) == 1 for group in groups) and all(
            reader.device in here and contains(made[here[reader.device]], reader.box) for reader in readers
        ):
            for reader in readers:
                self.moves.connect_all(copies[here[reader.device]], reader.copy, control=True)
            self._hold(producer, copies, readers)
            return
        if self._is_all_reduced(made, groups, devices, room):
            size = self.exchange.partition.element_bytes[producer]
            self._hold(producer, copies, readers)
            for group in groups:
                members = tuple(devices[shard] for shard in group)
                bucket = self._open.setdefault(members, _Bucket(producer))
                bucket.producer = producer
                bucket.bytes += elements(made[group[0]]) * size
                bucket.copies.append(tuple(copies[shard] for shard in group))
                bucket.sums.append(TensorSlice(Source(producer, result), made[group[0]]))
                bucket.readers += [reader for reader in readers if reader.device in members]
                if bucket.bytes >= self.layout.bucket_bytes:
                    self._all_reduce(members, self._open.pop(members))
            return
        holdings = [
            self._accumulated(Source(producer, result), shard, device, copies[shard], room)
            for shard, device in enumerate(devices)
        ]
        if self._is_held[producer]:  # there is no room but what is held
            room = {holding.device: holding.box for holding in holdings if holding.in_place}
            self._hold(producer, copies, [reader for reader in readers if reader.device in room])
        self.exchange.distribute(Source(producer, result), holdings, readers, room)

    def _hold(self, producer: int, copies: list[int], readers: list[Reader]) -> None:
        """Until those who read it on the same device have ended, a shard's gradient is held, from the first on."""
        if not self._is_held[producer]:
            return
        copy_on = dict(zip(self.layout.plan.devices[producer], copies, strict=True))
        micro_batch = int(self._first_made[self.layout.stage[producer]])
        for reader in readers:
            self.moves.connect_one(copy_on[reader.device], reader.copy, micro_batch)

    def close(self) -> None:
        """Sum up what is in buckets that are not full."""
        for members, bucket in self._open.items():
            self._all_reduce(members, bucket)
        self._open.clear()

    def _is_all_reduced(
        self, made: tuple[Box, ...], groups: tuple[tuple[int, ...], ...], devices: tuple[int, ...], room: dict[int, Box]
    ) -> bool:
        """Whether all shards of every group made parts of the same box, and want and store the sum of all of it."""
        if self.layout.all_reduce == "direct" or room.keys() != set(devices):
            return False
        return all(
            len(group) > 1 and all(made[shard] == made[group[0]] == room[devices[shard]] for shard in group)
            for group in groups
        )

    def _all_reduce(self, members: tuple[int, ...], bucket: _Bucket) -> None:
        stage = int(self.layout.stage[bucket.producer])
        places = [Place(device, bucket.producer, stage, -1) for device in members]
        gates = [self.moves.add(Role.GATE, place, None, 0.0, repeated=False) for place in places]
        for copies in bucket.copies:
            for copy, gate in zip(copies, gates, strict=True):
                self.moves.connect_all(copy, gate, control=True)
        ends = self.moves.all_reduce(gates, places, bucket.bytes, bucket.sums, repeated=False)
        done = dict(zip(members, ends, strict=True))
        for reader in bucket.readers:
            self.moves.connect(done[reader.device], reader.copy, control=True)

    def _accumulated(self, source: Source, shard: int, device: int, copy: int, room: dict[int, Box]) -> HeldBox:
        """The gradient that a shard has made once it is added up over micro-batches."""
        moves, box = self.moves, self.exchange.partition.shards[source.op].made[source.result][shard]
        place = Place(device, source.op, int(self.layout.stage[source.op]), shard)
        in_place, op = device in room and contains(room[device], box), copy
        if in_place:
            op = moves.add(Role.GATE, place, TensorSlice(source, box), 0.0, repeated=False)
            moves.connect_all(copy, op, control=True)
        elif self.layout.micro_batches > 1:
            size = elements(box) * self.exchange.partition.element_bytes[source.op]
            op = moves.add(Role.SUM, place, TensorSlice(source, box), size, repeated=True)
            moves.connect(copy, op)
            moves.connect_next(op, op)
        return HeldBox(op, device, box, repeated=False, in_place=in_place, made_by=copy)


def _wanted_on(readers: list[Reader]) -> dict[int, Box]:
    """By device the box that its readers want."""
    boxes: defaultdict[int, list[Box]] = defaultdict(list)
    for reader in readers:
        boxes[reader.device].append(reader.box)
    return {device: hull(several) for device, several in boxes.items()}
