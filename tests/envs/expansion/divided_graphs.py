"""Graphs in index notation, plans that divide them at random, and NumPy that computes them whole and by shards."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from envs.expansion.expanded import Expansion, Role
from envs.expansion.layout import Layout
from envs.expansion.shards import Partition, Shards
from envs.expansion.stored_weights import StoredWeights
from graphs.batch_law import BatchLaw
from graphs.described import Described, Source
from graphs.descriptions import descriptions_of
from graphs.notation.affine import variable
from graphs.notation.operator import Access, Operator, Space, tensor
from graphs.notation.ranges import Box, slices
from graphs.op_graph import OpGraph, Phase

Array = NDArray[np.float64]
ITEM = 4.0  # bytes of an element
WINDOW = ("kh", "kw")  # indices of a convolution's window, which are not divided
RATE = 0.25  # of the update: sums of gradients are exact


@dataclass
class Net:
    """A training step while it is written, an op with one result at a time."""

    samples: int
    names: list[str] = field(default_factory=list)
    described: list[Described] = field(default_factory=list)
    combine: list[Callable[..., Array]] = field(default_factory=list)
    phase: list[Phase] = field(default_factory=list)
    mirror: list[int] = field(default_factory=list)
    weights: list[tuple[int, ...]] = field(default_factory=list)  # shapes
    uses: list[tuple[int, int]] = field(default_factory=list)

    def weight(self, *shape: int) -> Source:
        """A weight of a shape."""
        self.weights.append(shape)
        return Source(-len(self.weights))

    def add(
        self, name: str, sizes: Mapping[str, int], writes: Access, reads: Sequence[tuple[Access, Source]],
        combine: Callable[..., Array], *, phase: Phase = Phase.FORWARD, of: Source | None = None,
    ) -> Source:  # fmt: skip
        """An op that combines, at every point, what it reads; the sum over points that write the same is its result."""
        op = len(self.names)
        operator = Operator(dict(sizes), tuple(access for access, _ in reads), (writes,))
        batch = "n" if "n" in sizes else ""
        self.described.append(Described(operator, tuple(source for _, source in reads), batch))
        self.names.append(name)
        self.combine.append(combine)
        self.phase.append(phase)
        self.mirror.append(-1 if of is None else of.op)
        if phase is Phase.FORWARD:
            self.uses += [(op, source.weight) for _, source in reads if source.op < 0]
        return Source(op)

    @property
    def graph(self) -> OpGraph:
        """The op graph."""
        edges = [
            (source.op, op)
            for op, each in enumerate(self.described)
            for source in dict.fromkeys(each.sources)
            if source is not None and source.op >= 0
        ]
        flops = [2.0 * each.operator.points * (len(each.operator.reads) > 0) for each in self.described]
        written = [ITEM * math.prod(each.operator.writes[0].shape) for each in self.described]
        read = [ITEM * sum(math.prod(access.shape) for access in each.operator.reads) for each in self.described]
        return OpGraph(
            "net", tuple(self.names), ("toy",) * len(self.names), np.array(flops),
            np.array(read) + np.array(written) * (np.array(read) > 0), np.array(written), np.array(edges, np.int64),
            weights=np.array([ITEM * math.prod(shape) for shape in self.weights]),
            weight_uses=np.array(self.uses, np.int64), phase=np.array(self.phase), mirror=np.array(self.mirror),
            described=tuple(self.described), batch_law=BatchLaw(self.samples),
        )  # fmt: skip


def product(a: Array, b: Array) -> Array:
    """Of matrices and convolutions."""
    return a * b


def mlp(widths: Sequence[int], samples: int) -> Net:
    """A training step of a perceptron whose loss is half the sum of the squares of its outputs."""
    net, n = Net(samples), samples
    x = net.add("x", {"n": n, "i": widths[0]}, tensor((n, widths[0]), "n", "i"), [], np.array)
    saved: list[tuple[Source, Source, Source, Source, int, int]] = []
    for number, (i, o) in enumerate(pairwise(widths)):
        w = net.weight(o, i)
        sizes, of_x, of_w = {"n": n, "o": o, "i": i}, tensor((n, i), "n", "i"), tensor((o, i), "o", "i")
        y = net.add(f"mm{number}", sizes, tensor((n, o), "n", "o"), [(of_x, x), (of_w, w)], product)
        of_y = tensor((n, o), "n", "o")
        z = net.add(f"relu{number}", {"n": n, "o": o}, of_y, [(of_y, y)], lambda a: np.maximum(a, 0.0))
        saved.append((x, w, y, z, i, o))
        x = z
    gradient = x  # of half the squares
    gradients: list[tuple[Source, Source, Source, int, int]] = []
    for number, (x, w, y, z, i, o) in reversed(list(enumerate(saved))):
        sizes, of_x, of_w = {"n": n, "o": o, "i": i}, tensor((n, i), "n", "i"), tensor((o, i), "o", "i")
        of_y = tensor((n, o), "n", "o")
        dy = net.add(
            f"relu{number}.grad", {"n": n, "o": o}, of_y, [(of_y, gradient), (of_y, z)],
            lambda a, b: a * (b > 0), phase=Phase.BACKWARD, of=z,
        )  # fmt: skip
        dw = net.add(
            f"mm{number}.grad_weight", sizes, of_w, [(of_y, dy), (of_x, x)], product, phase=Phase.BACKWARD, of=y
        )
        gradients.append((dw, w, y, i, o))
        if number:
            gradient = net.add(
                f"mm{number}.grad", sizes, of_x, [(of_y, dy), (of_w, w)], product, phase=Phase.BACKWARD, of=y
            )
    for dw, w, y, i, o in gradients:
        of_w = tensor((o, i), "o", "i")
        net.add(
            f"{net.names[y.op]}.update", {"o": o, "i": i}, of_w, [(of_w, w), (of_w, dw)],
            lambda a, b: a - RATE * b, phase=Phase.UPDATE, of=y,
        )  # fmt: skip
    return net


def convolutions(samples: int, channels: Sequence[int], side: int, kernel: int = 3) -> Net:
    """Convolutions that keep the size of images, and a training step for them."""
    net, n, middle = Net(samples), samples, kernel // 2
    h, w = variable("h") + variable("kh") - middle, variable("w") + variable("kw") - middle

    def image(c: int, index: str, *, window: bool = False) -> Access:
        if window:
            return tensor((n, c, side, side), "n", index, h, w, fill=0.0)
        return tensor((n, c, side, side), "n", index, "h", "w")

    x = net.add("x", {"n": n, "ci": channels[0], "h": side, "w": side}, image(channels[0], "ci"), [], np.array)
    saved = []
    for number, (ci, co) in enumerate(pairwise(channels)):
        weight, sizes = net.weight(co, ci, kernel, kernel), {
            "n": n, "co": co, "ci": ci, "h": side, "w": side, "kh": kernel, "kw": kernel,
        }  # fmt: skip
        of_weight = tensor((co, ci, kernel, kernel), "co", "ci", "kh", "kw")
        y = net.add(
            f"conv{number}", sizes, image(co, "co"), [(image(ci, "ci", window=True), x), (of_weight, weight)], product
        )
        saved.append((x, weight, y, sizes, of_weight, ci, co))
        x = y
    gradient, gradients = x, []
    for number, (x, weight, y, sizes, of_weight, ci, co) in reversed(list(enumerate(saved))):
        dw = net.add(
            f"conv{number}.grad_weight", sizes, of_weight,
            [(image(co, "co"), gradient), (image(ci, "ci", window=True), x)], product, phase=Phase.BACKWARD, of=y,
        )  # fmt: skip
        gradients.append((dw, weight, y, of_weight))
        if number:  # written where the window reads: shards' results overlap, and are added up
            gradient = net.add(
                f"conv{number}.grad", sizes, image(ci, "ci", window=True), [(image(co, "co"), gradient),
                (of_weight, weight)], product, phase=Phase.BACKWARD, of=y,
            )  # fmt: skip
    for dw, weight, y, of_weight in gradients:
        sizes = dict(zip(("co", "ci", "kh", "kw"), of_weight.shape, strict=True))
        net.add(
            f"{net.names[y.op]}.update", sizes, of_weight, [(of_weight, weight), (of_weight, dw)],
            lambda a, b: a - RATE * b, phase=Phase.UPDATE, of=y,
        )  # fmt: skip
    return net


# ---- computing -------------------------------------------------------------------------------------------------------


def computed(operator: Operator, combine: Callable[..., Array], space: Space, reads: Sequence[Array]) -> Array:
    """What a part of the iteration space adds to the result, (shape of the result); NaN outside of its box."""
    names = list(operator.sizes)
    grid = np.meshgrid(*(np.arange(space[name].low, space[name].high + 1) for name in names), indexing="ij")
    at = dict(zip(names, grid, strict=True))
    shape = tuple(space[name].size for name in names)
    values = [_looked_up(access, array, at, shape) for access, array in zip(operator.reads, reads, strict=True)]
    [written] = operator.writes
    index = _index(written, at, shape)
    inside = np.all([(i >= 0) & (i < size) for i, size in zip(index, written.shape, strict=True)], axis=0)
    result = np.full(written.shape, np.nan)
    result[slices(written.region(space))] = 0.0
    np.add.at(result, tuple(i[inside] for i in index), np.broadcast_to(combine(*values), shape)[inside])
    return result


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
                found.append(computed(part.operator, self.net.combine[op], part.operator.space, reads))
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
            self.held[op] = computed(operator, self.whole.net.combine[origin], space, reads)
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
            part = self.held[other][slices(box)]
            held[slices(box)] += np.where(np.isnan(part), 0.0, part)
        self.held[op] = held
        is_part = batch >= 0 and self.whole.micro_batches > 1 and self.whole.net.names[source.op].endswith("_weight")
        if role == Role.SLICE or (role == Role.SUM and not is_part):
            self._check(op, self.whole.value(source, batch), box)

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
            held = self.held[other]
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


def random_split(graph: OpGraph, mesh: Sequence[int], rng: np.random.Generator) -> tuple[tuple[str, ...], ...]:
    """(ops,) for every axis an index at random that is long enough, or none; () for ops without a description."""
    split = list[tuple[str, ...]]()
    for each in descriptions_of(graph):
        left = {} if each is None else {k: size for k, size in each.operator.sizes.items() if k not in WINDOW}
        if each is not None and each.batch:
            left[each.batch] //= 2  # of two micro-batches
        chosen = list[str]()
        for parts in mesh:
            may = ["", *(name for name, size in left.items() if size >= parts)]
            index = may[rng.integers(len(may))]
            if index:
                left[index] //= parts
            chosen.append(index)
        split.append(() if each is None else tuple(chosen))
    return tuple(split)
