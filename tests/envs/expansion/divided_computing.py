"""NumPy that computes graphs in index notation whole, and by the shards of a plan that divides them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from envs.expansion.expanded import Expansion, Role
from envs.expansion.layout import Layout
from envs.expansion.shards.shards import Partition, Shards
from envs.expansion.shards.stored_weights import StoredWeights
from graphs.notation.described import Source
from graphs.notation.operator import Access, Operator, Space
from graphs.notation.ranges import Box
from graphs.op_graph import Phase
from tests.envs.expansion.divided_graphs import Array, Net
from tests.oracle.sharded.boxed import slices


def computed(
    operator: Operator, combine: Callable[..., Array], space: Space, reads: Sequence[Array], total: Array | None = None
) -> Array:
    """What a part of the iteration space adds to the result, (shape of the result); NaN outside of its box.

    `total` is that of the statistic, if the operator has one.
    """
    at, shape, values = _points(operator, space, reads)
    if total is not None:
        [per] = operator.statistics[0].index
        values.append(total[at[per]])
    [written] = operator.writes
    index = _index(written, at, shape)
    inside = np.all([(i >= 0) & (i < size) for i, size in zip(index, written.shape, strict=True)], axis=0)
    result = np.full(written.shape, np.nan)
    result[slices(written.region(space))] = 0.0
    np.add.at(result, tuple(i[inside] for i in index), np.broadcast_to(combine(*values), shape)[inside])
    return result


def summed(operator: Operator, statistic: Callable[..., Array], space: Space, reads: Sequence[Array]) -> Array:
    """What a part of the iteration space adds to a statistic, (size of its index,)."""
    at, shape, values = _points(operator, space, reads)
    [index] = operator.statistics[0].index
    total = np.zeros(operator.sizes[index])
    np.add.at(total, at[index], np.broadcast_to(statistic(*values), shape))
    return total


def _points(
    operator: Operator, space: Space, reads: Sequence[Array]
) -> tuple[dict[str, NDArray[np.int64]], tuple[int, ...], list[Array]]:
    """The points of a part of the iteration space, by index, their shape, and what is read at each."""
    names = list(operator.sizes)
    grid = np.meshgrid(*(np.arange(space[name].low, space[name].high + 1) for name in names), indexing="ij")
    at = dict(zip(names, grid, strict=True))
    shape = tuple(space[name].size for name in names)
    return (
        at,
        shape,
        [_looked_up(access, array, at, shape) for access, array in zip(operator.reads, reads, strict=True)],
    )


def _index(access: Access, at: Mapping[str, NDArray[np.int64]], shape: tuple[int, ...]) -> list[NDArray[np.int64]]:
    found = []
    for each in access.index:
        assert each is not None
        total = np.full(shape, each.constant)
        for name, factor in each.terms:
            total = total + factor * at[name]
        found.append(total)
    return found


def _looked_up(access: Access, array: Array, at: Mapping[str, NDArray[np.int64]], shape: tuple[int, ...]) -> Array:
    index = _index(access, at, shape)
    inside = np.all([(i >= 0) & (i < size) for i, size in zip(index, access.shape, strict=True)], axis=0)
    values = np.full(shape, 0.0 if access.fill is None else access.fill)
    values[inside] = array[tuple(i[inside] for i in index)]
    return values


@dataclass
class Whole:
    """What a net computes undivided, for the inputs and weights that a seed gives; all numbers are small integers."""

    net: Net
    micro_batches: int
    seed: int
    weights: list[Array] = field(init=False)
    values: list[list[Array]] = field(init=False)  # (ops, micro-batches); of updates one

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.weights = [rng.integers(-2, 3, shape).astype(float) for shape in self.net.weights]
        self.values = []
        for op, each in enumerate(self.net.described):
            repeated = self.net.phase[op] < Phase.UPDATE
            found = []
            for batch in range(self.micro_batches if repeated else 1):
                part = each.of_part(1, self.micro_batches) if repeated else each
                assert part is not None
                if not part.sources:
                    found.append(rng.integers(-3, 4, part.operator.writes[0].shape).astype(float))
                    continue
                reads = [self.value(source, batch if repeated else -1) for source in part.sources if source is not None]
                operator, statistic = part.operator, self.net.statistic[op]
                total = None if statistic is None else summed(operator, statistic, operator.space, reads)
                found.append(computed(operator, self.net.combine[op], operator.space, reads, total))
            self.values.append(found)

    def value(self, source: Source, batch: int) -> Array:
        """What is read: for a micro-batch, or -1: gradients are summed up over them."""
        if source.op < 0:
            return self.weights[source.weight]
        return np.sum(self.values[source.op], axis=0) if batch < 0 else self.values[source.op][batch]


@dataclass
class Sharded:
    """The same, computed op by op of an expanded graph, each from what the ops before it hold. NaN: not held."""

    whole: Whole
    expansion: Expansion
    held: dict[int, Array] = field(default_factory=dict)
    added: dict[int, Array] = field(default_factory=dict)  # by op what its shard adds to a statistic
    waiting: dict[int, Callable[[Array], Array]] = field(default_factory=dict)  # by op what it makes of all of that
    checked: int = 0  # tensors that were compared with those of the whole

    def __post_init__(self) -> None:
        graph = self.expansion.problem.graph
        self.partition = Partition(Layout(self.expansion.given, self.expansion.plan))
        self.stored = StoredWeights(self.partition).by_device
        self.before: list[list[int]] = [[] for _ in graph.names]
        self.read: list[list[int]] = [[] for _ in graph.names]
        for (producer, consumer), control in zip(graph.edges.tolist(), graph.control.tolist(), strict=True):
            self.before[consumer].append(producer)
            if not control:
                self.read[consumer].append(producer)
        for op in graph.topological_order.tolist():
            if self.expansion.role[op] <= Role.RECOMPUTED:
                self._work(op)
            elif op in self.expansion.pieces:
                self._piece(op)

    def _shards(self, op: int) -> tuple[int, Shards, int]:
        origin, replica = int(self.expansion.origin[op]), int(self.expansion.replica[op])
        return origin, self.partition.shards[origin], replica

    def _work(self, op: int) -> None:
        origin, shards, shard = self._shards(op)
        assert shards.operator is not None
        batch = int(self.expansion.micro_batch[op])
        reads = []
        for number, source in enumerate(self.whole.net.described[origin].sources):
            assert source is not None
            reads.append(self._assembled(op, source, shards.read[number][shard]))
        box = shards.made[0][shard]
        expected = self.whole.values[origin][max(batch, 0)]
        if reads:
            space, operator = shards.spaces[shard], shards.operator
            combine, statistic, total = self.whole.net.combine[origin], self.whole.net.statistic[origin], None
            if statistic is not None:
                total = self.added[op] = summed(operator, statistic, space, reads)
            self.held[op] = computed(operator, combine, space, reads, total)
            if shards.exchanged:
                self.waiting[op] = lambda total: computed(operator, combine, space, reads, total)
                return
        else:
            self.held[op] = _only(expected, box)
        if all(len(group) == 1 for group in shards.groups[0]):
            self._check(op, expected, box)

    def _piece(self, op: int) -> None:
        source, box = self.expansion.pieces[op]
        role, batch = self.expansion.role[op], int(self.expansion.micro_batch[op])
        if source.op < 0:  # cut from what the device stores
            assert role == Role.SLICE
            self.held[op] = _only(self._stored(op, source.weight), box)
            self._check(op, self.whole.weights[source.weight], box)
            return
        held = np.full(self.held_like(op, source).shape, np.nan)
        held[slices(box)] = 0.0
        for other in self._holders(op, source):
            part = self._seen(other, op)[slices(box)]
            held[slices(box)] += np.where(np.isnan(part), 0.0, part)
        self.held[op] = held
        is_part = batch >= 0 and self.whole.micro_batches > 1 and self.whole.net.names[source.op].endswith("_weight")
        if role == Role.SLICE or (role == Role.SUM and not is_part):
            self._check(op, self.whole.value(source, batch), box)

    def _seen(self, op: int, reader: int) -> Array:
        """What a reader finds of an op: made with the statistics of those whose sum has arrived before it."""
        if op not in self.waiting:
            return self.held[op]
        expansion, found = self.expansion, set[int]()

        def acts_for_it(other: int) -> bool:
            return bool(expansion.origin[other] == expansion.origin[op])

        on_device = expansion.placement == expansion.placement[op]
        before = [o for o in self.before[reader] if on_device[o] and acts_for_it(o) and expansion.role[o] == Role.SUM]
        while before:
            other = before.pop()
            if other in self.added:
                found.add(other)
            elif acts_for_it(other):
                before += self.before[other]
        self.held[op] = self.waiting[op](np.sum([self.added[other] for other in found], axis=0))
        origin, shards, shard = self._shards(op)
        self._check(op, self.whole.values[origin][max(int(expansion.micro_batch[op]), 0)], shards.made[0][shard])
        return self.held[op]

    def held_like(self, op: int, source: Source) -> Array:
        return self.held[self._holders(op, source)[0]]

    def _holders(self, op: int, source: Source) -> list[int]:
        """The ops that hold some of a tensor and are read; gradients that are added up in place are waited for."""
        before = dict.fromkeys(self.before[op] if self.expansion.micro_batch[op] < 0 else self.read[op])
        return [other for other in before if other in self.held and self._source(other) == source]

    def _source(self, op: int) -> Source:
        if op in self.expansion.pieces:
            return self.expansion.pieces[op].source
        return Source(int(self.expansion.origin[op]))

    def _assembled(self, op: int, source: Source, box: Box) -> Array:
        """What a shard reads of a tensor; the copies of an op that update weights add up on their device."""
        holders = self._holders(op, source)
        batch = int(self.expansion.micro_batch[op])
        shape = (self.whole.weights[source.weight] if source.op < 0 else self.whole.value(source, batch)).shape
        found = np.full(shape, np.nan)
        if source.op < 0:
            found = self._stored(op, source.weight)
        copies = [other for other in holders if self.expansion.role[other] <= Role.RECOMPUTED]
        if batch < 0 and source.op >= 0 and copies:
            holders = [other for other in holders if other not in copies]
            found = np.sum([self.held[other] for other in copies], axis=0)
        for other in holders:
            held = self._seen(other, op)
            found = np.where(np.isnan(held), found, held)
        assert not np.isnan(found[slices(box)]).any(), f"{self.expansion.problem.graph.names[op]} misses {source}"
        return _only(found, box)

    def _stored(self, op: int, weight: int) -> Array:
        found = np.full(self.whole.weights[weight].shape, np.nan)
        for box in self.stored[weight].get(int(self.expansion.placement[op]), ()):
            found[slices(box)] = self.whole.weights[weight][slices(box)]
        return found

    def _check(self, op: int, expected: Array, box: Box) -> None:
        np.testing.assert_array_equal(
            self.held[op][slices(box)], expected[slices(box)], err_msg=self.expansion.problem.graph.names[op]
        )
        self.checked += 1


def _only(values: Array, box: Box) -> Array:
    found = np.full(values.shape, np.nan)
    found[slices(box)] = values[slices(box)]
    return found
