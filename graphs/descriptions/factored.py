"""FactoredGraph: every op of a graph in index notation, by the tensors that its producers make.

An op's description speaks of its operands as the op reads them, through views. Here all dimensions are taken apart into
factors (`graphs.descriptions.axes`), so that what an op needs of a tensor is a box of the tensor that was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from graphs.descriptions.axes import Axes, Factors, factors_of
from graphs.descriptions.joining import (
    Digit,
    Names,
    Regroup,
    ViewedRead,
    access_of,
    before_view,
    digits_of,
    refined,
    relate,
    relate_view,
)  # fmt: skip
from graphs.foundation.errors import InputError
from graphs.notation.gradients import gradient
from graphs.notation.operator import Access, Operator
from graphs.notation.signatures import Shape, Signature, Signatures
from graphs.notation.views import Step, steps
from graphs.op_graph import OpGraph, Phase
from graphs.operators import described


@dataclass(frozen=True, eq=False)
class FactoredOp:
    """A forward op in index notation."""

    signature: Signature
    operator: Operator  # by factors of the tensors at its sources and of its own output
    plain: Operator  # by the tensors as it reads them
    names: Names  # the variables that each of `plain` is taken apart into, outermost first
    as_read: tuple[Access, ...]  # (reads,) by factors of the tensors as it reads them
    factors: tuple[tuple[int, ...], ...]  # (reads,) into how many factors each dimension of `plain` is taken apart
    origins: tuple[tuple[int | None, ...], ...]  # (reads,) per factor of a source, which one of `as_read` it is, or
    # which number `regroups` know it by; None for a single index
    regroups: tuple[tuple[Regroup, ...], ...]  # (reads,) reshapes between the two


class FactoredGraph:
    """The ops of a graph in index notation, and the shapes of its tensors by factors.

    A tensor is numbered as in `Signatures.sources`: the output of an op, a weight, or an input.
    """

    def __init__(self, graph: OpGraph) -> None:
        """Raises InputError for a graph without signatures of its batch, such as that of a profile."""
        if graph.signatures is None or graph.signatures.of_other_batch:
            raise InputError(
                f"graph {graph.name!r} does not know the shapes of its tensors; capture it from its model, with the "
                "batch that is wanted, or give a graph file of version 2 that was"
            )
        self.graph, self.signatures = graph, graph.signatures
        collector = _Collector(self.signatures)
        self._factors = factors_of(collector.axes)
        self._tensors = collector.tensors
        self._made: dict[Any, FactoredOp | None] = {}
        self.ops: tuple[FactoredOp | None, ...] = tuple(
            None if local is None else self._described(local) for local in collector.locals
        )

    def shape(self, tensor: int) -> Shape:
        """The shape of a tensor whose dimensions are factors; the elements are in the same order."""
        return tuple(size for axis in self._tensors[tensor] for size in self._factors.of(axis))

    def operator(self, op: int) -> Operator | None:
        """An op in index notation; None if it is not described, and is then not divided.

        A backward op is that of the gradients of `read_by` its forward op, over the variables of that op. An update
        reads and writes the weights that its op owns, element by element.
        """
        phase, mirror = int(self.graph.phase[op]), int(self.graph.mirror[op])
        if phase == Phase.FORWARD:
            forward = self.ops[op]
            return None if forward is None else forward.operator
        forward = self.ops[mirror] if mirror >= 0 else None
        if forward is None:
            return None
        if phase == Phase.BACKWARD:
            return gradient(forward.operator, self.gradients_of(op))
        every = frozenset(forward.operator.sizes)
        accesses = tuple(replace(forward.operator.reads[k], apart=every, fill=None) for k in self.gradients_of(op))
        return Operator(forward.operator.sizes, accesses, accesses, ordered=forward.operator.ordered)

    def gradients_of(self, op: int) -> list[int]:
        """Positions of reads of its forward op: those whose gradients a backward op computes, or that it updates."""
        forward = int(self.graph.mirror[op])
        numbers = self.signatures.numbers(forward)
        if self.graph.phase[op] == Phase.BACKWARD and not self.graph.kinds[op].endswith(".grad_weight"):
            return [k for k, number in enumerate(numbers) if number in self._receivers[op]]
        frozen = set(np.flatnonzero(self.graph.frozen).tolist())
        trained = set(range(len(self.graph.weights))) - frozen
        weights = [(k, -1 - number) for k, number in enumerate(numbers) if -1 - number in trained]
        if self.graph.phase[op] == Phase.BACKWARD:
            return [k for k, _ in weights]
        return [k for k, weight in weights if self._owner.get(weight) == forward]

    @cached_property
    def _receivers(self) -> list[set[int]]:
        """(ops,) the forward ops whose outputs' gradients each backward op computes: theirs read what it makes."""
        found: list[set[int]] = [set() for _ in range(len(self.graph))]
        producer, consumer = self.graph.edges[~self.graph.control].T
        is_backward = self.graph.phase == Phase.BACKWARD
        is_sent = is_backward[producer] & is_backward[consumer]
        for sender, reader in zip(producer[is_sent].tolist(), consumer[is_sent].tolist(), strict=True):
            found[sender].add(int(self.graph.mirror[reader]))
        return found

    @cached_property
    def _owner(self) -> dict[int, int]:
        """The op that updates each weight: the first one that reads it and has its gradient."""
        updated = set(self.graph.mirror[self.graph.phase == Phase.UPDATE].tolist())
        owner: dict[int, int] = {}
        for op in self.graph.topological_order.tolist():
            if op in updated:
                for number in self.signatures.numbers(op):
                    if 0 <= -1 - number < len(self.graph.weights):
                        owner.setdefault(-1 - number, op)
        return owner

    def _described(self, local: _Local) -> FactoredOp | None:
        of = self._factors.of
        axes = [*local.variables.values(), *local.output, *(a for each in local.reads for one in each for a in one)]
        key = local.number, tuple(map(of, axes))
        if key not in self._made:
            self._made[key] = _made(self.signatures.distinct[local.number], local, self._factors)
        return self._made[key]


def _has_nothing(signature: Signature) -> bool:
    """Whether an op reads or makes a tensor without elements, of which there are no parts."""
    return any(0 in shape for shape in (*signature.outputs, *(read.shape for read in signature.reads)) if shape)


@dataclass(frozen=True, eq=False)
class _Local:
    """The axes of one op."""

    number: int  # of its signature
    plain: Operator
    steps: tuple[tuple[Step, ...] | None, ...]  # (reads,)
    variables: dict[str, int]
    output: list[int]
    reads: list[list[list[int]]]  # (reads, views + 1, dimensions) of the source first, as it is read last


class _Collector:
    """The axes of all tensors and variables of a graph, and how they hang together."""

    def __init__(self, signatures: Signatures) -> None:
        self.axes = Axes()
        self.tensors: dict[int, list[int]] = {}
        self.locals: list[_Local | None] = []
        known = [
            (None if _has_nothing(each) else described(each), tuple(steps(read) for read in each.reads))
            for each in signatures.distinct
        ]
        for op, number in enumerate(signatures.of.tolist()):
            if number >= 0:
                self.tensors[op] = self.axes.add(signatures.distinct[number].shape)
        for op, number in enumerate(signatures.of.tolist()):
            plain, views = known[number] if number >= 0 else (None, ())
            if number >= 0:
                self._sources(signatures, op, signatures.distinct[number])
            self.locals.append(None if plain is None else self._local(signatures, op, plain, views))

    def _sources(self, signatures: Signatures, op: int, signature: Signature) -> None:
        for number, read in zip(signatures.numbers(op), signature.reads, strict=True):
            if number not in self.tensors:
                self.tensors[number] = self.axes.add(read.base)

    def _local(
        self, signatures: Signatures, op: int, plain: Operator, views: Sequence[tuple[Step, ...] | None]
    ) -> _Local:
        axes = self.axes
        variables = dict(zip(plain.sizes, axes.add(plain.sizes.values()), strict=True))
        for name in plain.ordered:
            axes.lock(variables[name])
        relate(plain, plain.writes[0], self.tensors[op], variables, axes)
        reads = list[list[list[int]]]()
        for access, chain, source in zip(plain.reads, views, signatures.numbers(op), strict=True):
            dimensions = [self.tensors[source]]
            for step in chain or ():
                dimensions.append(axes.add(step.after))
                relate_view(step, dimensions[-2], dimensions[-1], axes)
            if chain is None:
                dimensions.append(axes.add(access.shape))  # such an op is not described
            relate(plain, access, dimensions[-1], variables, axes)
            reads.append(dimensions)
        return _Local(int(signatures.of[op]), plain, tuple(views), variables, self.tensors[op], reads)


def _made(signature: Signature, local: _Local, factors: Factors) -> FactoredOp | None:
    """An op whose axes are taken apart; None if what it writes cannot be."""
    plain, of = local.plain, factors.of
    names = {name: _named(name, of(axis)) for name, axis in local.variables.items()}
    written = digits_of(plain, plain.writes[0], local.output, names, factors)
    if written is None:
        return None
    reads, as_read, looks, counts = list[Access](), list[Access](), list[ViewedRead](), list[tuple[int, ...]]()
    for access, chain, dimensions in zip(plain.reads, local.steps, local.reads, strict=True):
        digits = digits_of(plain, access, dimensions[-1], names, factors)
        looked = None if digits is None or chain is None else _at_source(digits, chain, dimensions, factors)
        if digits is None or looked is None:
            return None
        counts.append(tuple(map(len, digits)))
        as_read.append(access_of(access, digits, names))
        reads.append(access_of(access, looked.digits, names))
        looks.append(looked)
    operator = replace(
        plain,
        reads=tuple(reads),
        writes=(access_of(plain.writes[0], written, names),),
        **refined(plain, names),  # type: ignore[arg-type]
    )
    return FactoredOp(
        signature,
        operator,
        plain,
        names,
        tuple(as_read),
        tuple(counts),
        tuple(tuple(digit.origin for each in looked.digits for digit in each) for looked in looks),
        tuple(tuple(looked.regroups) for looked in looks),
    )


def _named(name: str, sizes: tuple[int, ...]) -> dict[str, int]:
    """The variables that one is taken apart into: itself, or "n.0", "n.1" and so on."""
    return {name: sizes[0]} if len(sizes) == 1 else {f"{name}.{i}": size for i, size in enumerate(sizes)}


def _at_source(
    digits: list[list[Digit]], chain: tuple[Step, ...], dimensions: Sequence[Sequence[int]], factors: Factors
) -> ViewedRead | None:
    """How the op looks at the tensor at the source; None if a view is not taken apart alike."""
    found: ViewedRead | None = ViewedRead(digits, [])
    for step, before in zip(reversed(chain), reversed(dimensions[:-1]), strict=True):
        found = None if found is None else before_view(step, found, before, factors)
    return found
