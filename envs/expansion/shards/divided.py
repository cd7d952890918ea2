"""Divided: connects the copies of ops where the plan divides ops by their indices."""

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

from envs.expansion.draft import Draft
from envs.expansion.expanded import Role
from envs.expansion.reads import Reads
from envs.expansion.recompute import recomputed
from envs.expansion.shards.divided_gradients import Gradients, sum_divided_gradients
from envs.expansion.shards.exchange import Exchange, Reader
from envs.expansion.shards.moves import GraphTemplate
from envs.expansion.shards.shards import Partition, Shards
from envs.expansion.shards.stored_weights import StoredWeights
from graphs.notation.ranges import Box, contains, whole
from graphs.op_graph import Phase

ALL = -1

_KEPT = 1 << 14  # pairs of shards: a search expands the same ones again and again

Tensor = tuple[int, int, int]  # first copy of an op in the draft, the op, which of its results


def connect_shards(draft: Draft, partition: Partition, stored: StoredWeights) -> None:
    """All edges between copies, of gradients and of what is computed again too, and pieces of weights."""
    layout, moves = draft.layout, GraphTemplate(draft)
    exchange = Exchange(partition, moves)
    reads = recomputed(draft, Reads.of(layout))
    is_order = reads.control | (draft.column("role")[reads.reader] == Role.ARRIVE)
    _order(exchange, reads[is_order])
    is_sum = layout.is_weight_gradient[reads.producer] & layout.is_weight_gradient[reads.consumer]
    columns = reads.read, reads.reader, reads.producer, reads.consumer, is_order, is_sum
    rows = (column.tolist() for column in columns)
    tensors: defaultdict[Tensor, list[Reader]] = defaultdict(list)
    for first, reader, producer, consumer, orders, adds in zip(*rows, strict=True):
        if not orders and not (adds and _passes_on(exchange, first, reader, producer, consumer)):
            for result, number in needs(partition, producer, consumer):
                if not _is_local(exchange, first, reader, producer, consumer, result, number):
                    boxes = _boxes(partition.shards[producer], result, partition.shards[consumer], number)
                    tensors[first, producer, result] += _readers(exchange, consumer, reader, boxes)
    graph, first_copy = layout.problem.graph, layout.first.tolist()
    gradients: Gradients = defaultdict(list)
    for producer, consumer in graph.edges[layout.is_summed].tolist():
        for result, number in needs(partition, producer, consumer):
            boxes = _boxes(partition.shards[producer], result, partition.shards[consumer], number)
            readers = _readers(exchange, consumer, first_copy[consumer], boxes)
            if graph.phase[consumer] >= Phase.UPDATE:
                gradients[producer, result] += readers
            else:  # a weight that stages share
                tensors[first_copy[producer], producer, result] += readers
    for (first, producer, result), several in tensors.items():
        exchange.read(first, producer, result, several)
    sum_divided_gradients(exchange, gradients)
    stored.fetch(exchange, reads)
    draft.pieces = moves.write()


def _passes_on(exchange: Exchange, first: int, reader: int, producer: int, consumer: int) -> bool:
    """Whether another op that adds to a gradient of a weight divides it alike; then each shard reads its own.

    So partial sums over steps of time, or layers that share a weight, are added up over shards once, at the end.
    """
    layout, partition, moves = exchange.layout, exchange.partition, exchange.moves
    described, shards = partition.described[consumer], partition.shards[consumer]
    if described is None or partition.described[producer] is None:
        return False
    if layout.plan.devices[producer] != layout.plan.devices[consumer]:
        return False
    made = partition.shards[producer]
    named = False
    for source, access in zip(described.sources, described.operator.reads, strict=True):
        if source is None or source.op != producer:
            continue
        named = True
        results = [number for number, each in enumerate(described.operator.writes) if each.index == access.index]
        if not any(
            shards.made[number] == made.made[source.result] and shards.groups[number] == made.groups[source.result]
            for number in results
        ):
            return False
    if not named:
        return False
    moves.connect_shards((first, exchange.step(producer)), (reader, exchange.step(consumer)), len(shards))
    return True


def needs(partition: Partition, producer: int, consumer: int) -> Iterator[tuple[int, int]]:
    """Results of an op that another one reads, and which of its reads each is.

    All of every result is read, which is read `ALL`, if the reader has no description, or does not say so. Results of
    an op without a description are one piece, as of the gradient of a loss of several outputs.
    """
    described, named = partition.described[consumer], False
    if partition.described[producer] is None:
        yield 0, ALL
        return
    for number, source in enumerate(() if described is None else described.sources):
        if source is not None and source.op == producer:
            named = True
            yield source.result, number
    if not named:
        for result in range(len(partition.shards[producer].whole)):
            yield result, ALL


@lru_cache(_KEPT)
def _boxes(made: Shards, result: int, reader: Shards, number: int) -> tuple[Box, ...]:
    """(shards,) the box of a result that each shard of a reader reads: all of it, if it takes it for another tensor."""
    all_of_it = made.whole[result]
    fits = number != ALL and reader.operator is not None and whole(reader.operator.reads[number].shape) == all_of_it
    return reader.read[number] if fits else (all_of_it,) * len(reader)


@lru_cache(_KEPT)
def _is_held(made: Shards, result: int, reader: Shards, number: int) -> bool:
    """Whether each shard of a reader on the same devices finds what it reads on its own."""
    return (
        len(made) == len(reader)
        and not made.exchanged
        and all(len(group) == 1 for group in made.groups[result])
        and all(map(contains, made.made[result], _boxes(made, result, reader, number)))
    )


def _is_local(
    exchange: Exchange, first: int, reader: int, producer: int, consumer: int, result: int, number: int
) -> bool:
    """Whether all that is read is there without a transfer; the shards are then connected."""
    layout, shards = exchange.layout, exchange.partition.shards
    if layout.plan.devices[producer] != layout.plan.devices[consumer]:
        return False
    if not _is_held(shards[producer], result, shards[consumer], number):
        return False
    exchange.moves.connect_shards(
        (first, exchange.step(producer)), (reader, exchange.step(consumer)), len(shards[producer])
    )
    return True


def _readers(exchange: Exchange, op: int, first: int, boxes: tuple[Box, ...]) -> Iterator[Reader]:
    """The shards of an op, the first of which is a given copy."""
    layout, step = exchange.layout, exchange.step(op)
    for shard, (device, box) in enumerate(zip(layout.plan.devices[op], boxes, strict=True)):
        yield Reader(exchange.moves.copy(first + shard, step), device, shard, box)


def _order(exchange: Exchange, reads: Reads) -> None:
    """What only waits for another op does so for its shard on the same device, or as far along."""
    layout, moves = exchange.layout, exchange.moves
    rows = (column.tolist() for column in (reads.read, reads.reader, reads.producer, reads.consumer))
    for first, reader, producer, consumer in zip(*rows, strict=True):
        steps = [exchange.step(op) for op in (producer, consumer)]
        for shard, other in enumerate(layout.nearest(producer, consumer).tolist()):
            moves.connect(moves.copy(first + other, steps[0]), moves.copy(reader + shard, steps[1]), control=True)
