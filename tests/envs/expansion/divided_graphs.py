"""Graphs in index notation, and plans that divide them at random."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.plans.mesh import Axis
from graphs.descriptions.descriptions import descriptions_of
from graphs.notation.affine import variable
from graphs.notation.described import Described, Source
from graphs.notation.operator import Access, Operator, Statistic, tensor
from graphs.op_graph import OpGraph, Phase
from graphs.op_graph.batch_law import BatchLaw

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
    statistic: list[Callable[..., Array] | None] = field(default_factory=list)
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
        statistic: Callable[..., Array] | None = None, per: str = "",
    ) -> Source:  # fmt: skip
        """An op that combines, at every point, what it reads; the sum over points that write the same is its result.

        It combines the sum of a statistic over all points with the same index `per` as well, if it has one.
        """
        op = len(self.names)
        statistics = () if statistic is None else (Statistic((per,)),)
        operator = Operator(dict(sizes), tuple(access for access, _ in reads), (writes,), statistics=statistics)
        batch = "n" if "n" in sizes else ""
        self.described.append(Described(operator, tuple(source for _, source in reads), batch))
        self.names.append(name)
        self.combine.append(combine)
        self.statistic.append(statistic)
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


def mlp(widths: Sequence[int], samples: int, centred: str = "") -> Net:
    """A training step of a perceptron whose loss is half the sum of the squares of its outputs.

    What products make may be centred for each "n", as layer normalisation does, or for each "o", as that of batches.
    """
    net, n = Net(samples), samples

    def centre(name: str, of_y: Access, y: Source, **phase: Any) -> Source:
        sizes = dict(zip(("n", "o"), of_y.shape, strict=True))

        def combine(a: Array, total: Array) -> Array:  # without a division, results are whole numbers
            return 4.0 * a - total

        return net.add(name, sizes, of_y, [(of_y, y)], combine, statistic=np.array, per=centred, **phase)

    x = net.add("x", {"n": n, "i": widths[0]}, tensor((n, widths[0]), "n", "i"), [], np.array)
    saved: list[tuple[Source, Source, Source, Source, int, int]] = []
    for number, (i, o) in enumerate(pairwise(widths)):
        w = net.weight(o, i)
        sizes, of_x, of_w = {"n": n, "o": o, "i": i}, tensor((n, i), "n", "i"), tensor((o, i), "o", "i")
        y = net.add(f"mm{number}", sizes, tensor((n, o), "n", "o"), [(of_x, x), (of_w, w)], product)
        of_y = tensor((n, o), "n", "o")
        product_of = y
        if centred:
            y = centre(f"centre{number}", of_y, y)
        z = net.add(f"relu{number}", {"n": n, "o": o}, of_y, [(of_y, y)], lambda a: np.maximum(a, 0.0))
        saved.append((x, w, product_of, z, i, o))
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
        if centred:
            dy = centre(f"centre{number}.grad", of_y, dy, phase=Phase.BACKWARD, of=Source(z.op - 1))
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


def random_split(graph: OpGraph, mesh: Sequence[Axis], rng: np.random.Generator) -> tuple[tuple[str, ...], ...]:
    """(ops,) for every axis an index at random that is long enough, or none; () for ops without a description."""
    split = list[tuple[str, ...]]()
    for each in descriptions_of(graph):
        left = {} if each is None else {k: size for k, size in each.operator.sizes.items() if k not in WINDOW}
        if each is not None and each.batch:
            left[each.batch] //= 2  # of two micro-batches
        chosen = list[str]()
        for axis in mesh:
            parts = axis if isinstance(axis, int) else int(sum(axis))
            may = ["", *(name for name, size in left.items() if size >= parts)]
            index = may[rng.integers(len(may))]
            if index:
                left[index] //= parts
            chosen.append(index)
        split.append(() if each is None else tuple(chosen))
    return tuple(split)
