"""Exchange: what shards that divide ops by their indices send each other.

A shard reads a box of each input (`envs.expansion.shards.shards`). What its device holds of that is read where it is.
Pieces that others hold are cut out there and sent, from the nearest devices that hold them:

    work 0 -> slice -> reader 1       a piece of what work 0 made; all of it is sent without being cut

Partial sums are added up first, each shard taking the box for which least has to be moved
(`envs.expansion.shards.boxes`):

    work 0 -> send -> sum 1           a reduce-scatter, if readers want what their device has added up,
    work 1 ---------> sum 1           and an all-reduce once the sums are sent on to all
"""

from dataclasses import dataclass
from functools import lru_cache

from envs.expansion.expanded import Role, TensorSlice
from envs.expansion.servers import MESSAGE
from envs.expansion.shards.boxes import Wanted, adding, cover
from envs.expansion.shards.moves import GraphTemplate, Place
from envs.expansion.shards.shards import Partition
from graphs.cluster import Cluster
from graphs.notation.described import Source
from graphs.notation.operator import STATISTIC_BYTES
from graphs.notation.ranges import Box, contains, elements, hull, intersection


@dataclass(frozen=True)
class Reader:
    """A shard that reads a box."""

    copy: int  # by its number in `GraphTemplate`
    device: int
    shard: int
    box: Box


@dataclass
class HeldBox:
    """A box that is on a device, once an op has ended."""

    op: int  # by its number in `GraphTemplate`
    device: int
    box: Box
    repeated: bool  # for every micro-batch, and not once for all
    in_place: bool = False  # in room that is set aside: the output of the op is not it
    is_sum: bool = False
    after: int = -1  # what else a reader waits for: the end of an all-reduce, which turns parts into sums
    made_by: int = -1  # of a gradient of weights, the copies that add to it, which a reader there waits for


class Exchange:
    """Connects the shards of a layout."""

    def __init__(self, partition: Partition, moves: GraphTemplate) -> None:
        self.partition, self.moves = partition, moves
        self.layout = partition.layout
        self._steps: list[int] = (self.layout.is_repeated * self.layout.width).tolist()
        self._exchanged: dict[int, dict[int, int]] = {}  # by the first copy of an op
        self._cut: dict[tuple[int, int, Box], int] = {}  # by op, which of its results, and box

    def step(self, op: int) -> int:
        """From a copy of an op to that for the next micro-batch; 0 if there is one for all."""
        return self._steps[op]

    def read(self, first: int, producer: int, result: int, readers: list[Reader]) -> None:
        """Bring a result of an op to its readers; `first` is the first copy of the op, in the draft."""
        shards = self.partition.shards[producer]
        step = self.step(producer)
        made = shards.made[result]
        ends = self._statistics(first, producer)
        holdings = [
            HeldBox(self.moves.copy(first + shard, step), device, box, repeated=step > 0, after=ends.get(shard, -1))
            for shard, (device, box) in enumerate(zip(self.layout.plan.devices[producer], made, strict=True))
        ]
        self.distribute(Source(producer, result), holdings, readers)

    def _statistics(self, first: int, op: int) -> dict[int, int]:
        """By shard the end of the exchange of statistics, for which readers of its results wait.

        Shards exchange them once they have run; in truth, before they write their results.
        """
        if first in self._exchanged:
            return self._exchanged[first]
        layout, ends = self.layout, dict[int, int]()
        step, devices = self.step(op), layout.plan.devices[op]
        for group, count in self.partition.shards[op].exchanged:
            places = [Place(devices[shard], op, int(layout.stage[op]), shard) for shard in group]
            ready, size = [self.moves.copy(first + shard, step) for shard in group], count * STATISTIC_BYTES
            ends |= zip(group, self.moves.all_reduce(ready, places, size, repeated=step > 0), strict=True)
        self._exchanged[first] = ends
        return ends

    def bring(self, source: Source, holdings: list[HeldBox], readers: list[Reader]) -> None:
        """Send each reader its pieces of what is held; partial sums have been added up already."""
        held = tuple(holding.box for holding in holdings)
        devices = tuple(holding.device for holding in holdings)
        for reader in readers:
            order = nearest(self.layout.problem.cluster, devices, reader.device, reader.shard)
            for number, box in cover(reader.box, held, order):
                self._send(source, holdings[number], box, reader.copy, reader.device)

    def distribute(
        self, source: Source, holdings: list[HeldBox], readers: list[Reader], room: dict[int, Box] | None = None
    ) -> None:
        """Like `bring`, after partial sums have been added up."""
        groups = self.partition.shards[source.op].groups[source.result]
        is_loss = room is None and self.partition.stays_in_parts(source)
        if is_loss or all(len(group) == 1 for group in groups):
            self.bring(source, holdings, readers)
            return
        sums: list[HeldBox] = []
        for group in groups:
            sums += self._add_up(source, [holdings[shard] for shard in group], readers, room or {})
        self.bring(source, sums, readers)

    def _add_up(
        self, source: Source, parts: list[HeldBox], readers: list[Reader], room: dict[int, Box]
    ) -> list[HeldBox]:
        """The sums of parts; each holder of a part adds up some of it."""
        wanted = _wanted(parts, readers)
        if not wanted:
            return []
        sums, size = [], self.partition.element_bytes[source.op]
        if self.is_all_reduced(parts, wanted):
            return self._all_reduce(source, parts)
        own = adding(tuple(part.box for part in parts), wanted)
        for part, box in zip(parts, own, strict=True):
            if not elements(box):
                continue
            in_place = part.device in room and contains(room[part.device], box)
            place = Place(part.device, source.op, int(self.layout.stage[source.op]), -1)
            output_bytes = 0.0 if in_place else elements(box) * size
            op = self.moves.add(Role.SUM, place, TensorSlice(source, box), output_bytes, repeated=part.repeated)
            pieces = {held: intersection(box, held) for held in {other.box for other in parts}}
            some = {held for held, piece in pieces.items() if elements(piece)}
            for other in parts:
                if other.box in some:
                    self._send(source, other, pieces[other.box], op, part.device, is_summand=True)
            sums.append(HeldBox(op, part.device, box, part.repeated, in_place, is_sum=True))
        return sums

    def is_all_reduced(self, parts: list[HeldBox], wanted: Wanted) -> bool:
        """Whether all holders of parts want all of the sum, and add up as the schedule says."""
        if self.layout.all_reduce == "direct" or any(part.box != parts[0].box for part in parts):
            return False
        return all((place, part.box) in wanted for place, part in enumerate(parts))

    def _all_reduce(self, source: Source, parts: list[HeldBox]) -> list[HeldBox]:
        """The sums, in place of the parts."""
        box, repeated = parts[0].box, parts[0].repeated
        ready = [part.op if part.after < 0 else part.after for part in parts]
        places = [Place(part.device, source.op, int(self.layout.stage[source.op]), -1) for part in parts]
        size = elements(box) * self.partition.element_bytes[source.op]
        done = self.moves.all_reduce(ready, places, size, [TensorSlice(source, box)], repeated=repeated)
        return [
            HeldBox(end, part.device, box, repeated, in_place=True, is_sum=True)
            if part.in_place
            else HeldBox(part.op, part.device, box, repeated, is_sum=True, after=end)
            for part, end in zip(parts, done, strict=True)
        ]

    def _send(
        self, source: Source, holding: HeldBox, box: Box, reader: int, device: int, *, is_summand: bool = False
    ) -> None:
        """A piece of what is held to an op on a device."""
        moves = self.moves
        if holding.device == device:
            if holding.made_by >= 0 and not is_summand:
                moves.connect_all(holding.made_by, reader, control=True)
            else:
                moves.connect(holding.op, reader, control=holding.in_place)
                if holding.after >= 0:
                    moves.connect(holding.after, reader, control=True)
            return
        is_all = box == holding.box and len(self.partition.shards[source.op].whole) == 1  # that the op has made
        if is_all and not holding.in_place and holding.made_by < 0 and holding.after < 0:
            moves.connect(holding.op, reader)
            return
        piece = self._cut.get((holding.op, source.result, box))
        if piece is None:
            role = Role.SEND if is_summand or holding.is_sum else Role.SLICE
            stage = int(self.layout.stage[source.op])
            size = elements(box) * self.partition.element_bytes[source.op]
            place = Place(holding.device, source.op, stage, -1)
            piece = moves.add(role, place, TensorSlice(source, box), size, repeated=holding.repeated)
            self._cut[holding.op, source.result, box] = piece
            moves.connect(holding.op, piece, control=holding.in_place)
            if holding.after >= 0:
                moves.connect(holding.after, piece, control=True)
        moves.connect(piece, reader)


def _wanted(parts: list[HeldBox], readers: list[Reader]) -> Wanted:
    """What readers want of the sums of parts, by the part on their device."""
    whole = hull(part.box for part in parts)
    place = {part.device: number for number, part in enumerate(parts)}
    inside = {box: intersection(whole, box) for box in {reader.box for reader in readers}}  # most want the same ones
    some = {box: part for box, part in inside.items() if elements(part)}
    return tuple(
        dict.fromkeys((place.get(reader.device, -1), some[reader.box]) for reader in readers if reader.box in some)
    )


@lru_cache(1 << 14)
def nearest(cluster: Cluster, devices: tuple[int, ...], device: int, shard: int) -> tuple[int, ...]:
    """Positions in `devices`, those from which a piece arrives first; of equal ones those after `shard` come first."""

    def distance(position: int) -> tuple[float, int]:
        other = devices[position]
        if other == device:
            return 0.0, 0
        seconds = cluster.latency[other, device] + MESSAGE / cluster.bandwidth[other, device]
        return float(seconds), (position - shard) % len(devices)

    return tuple(sorted(range(len(devices)), key=distance))
