"""Computing: what the shards of an op of a captured training step make of the parts of tensors that they read.

forward       the ATen operation, on slices
backward      PyTorch's gradient of the forward operation, on slices of what the backward op reads, and no more
update        weight - rate * gradient, element by element; a refresh passes on what updates have made
loss          the sum of what the forward pass ends with, whose gradients are ones
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from envs.expansion.shards.shards import Partition, Shards
from graphs.descriptions.factored import FactoredGraph, FactoredOp
from graphs.foundation.errors import InputError
from graphs.notation.affine import Affine
from graphs.notation.described import Described, Source
from graphs.notation.operator import Access, Space, Statistic
from graphs.notation.ranges import Range, shape_of
from graphs.op_graph import OpGraph, Phase
from tests.oracle.sharded.backward import run_gradients
from tests.oracle.sharded.boxed import Boxed, cut_out, slices
from tests.oracle.sharded.running import run_factored

Known = TypeVar("Known")


@dataclass(frozen=True)
class ShardReads:
    """What a shard of an op has."""

    shard: int
    parts: Sequence[Tensor | None]  # (reads,) by its description, as large as its boxes; None of inputs
    summands: frozenset[int] = frozenset()  # reads that are yet to be added up with those of other shards

    def __getitem__(self, read: int) -> Tensor:
        part = self.parts[read]
        assert part is not None
        return part


@dataclass(frozen=True)
class _Roles:
    """What the reads of a backward op are, by their positions in its description."""

    arriving: tuple[int, ...]  # gradients of what the forward op made
    carried: tuple[tuple[int, int], ...]  # sums of other ops' gradients, and the result that each is added to
    output: int | None  # what the forward op made
    reads: dict[int, int]  # what it read: by position there


@dataclass(frozen=True, eq=False)
class Computing:
    """The ops of a captured step, on numbers."""

    partition: Partition
    given: Mapping[int, Tensor]
    """Weights and inputs by number (`Builder.given`); inputs are on every device."""
    rate: float

    @property
    def graph(self) -> OpGraph:
        """The step that is computed."""
        return self.partition.layout.problem.graph

    @cached_property
    def factored(self) -> FactoredGraph:
        """Its ops, by which shards are run."""
        return FactoredGraph(self.graph)

    @cached_property
    def whole(self) -> dict[int, Tensor]:
        """The given tensors, by their numbers, with dimensions that are factors."""
        return {number: each.detach().reshape(self.factored.shape(number)) for number, each in self.given.items()}

    def described(self, op: int) -> Described:
        """An op in index notation. Raises InputError if it is not described."""
        return self._there(op, self.partition.described[op])

    def statistics(self, op: int) -> tuple[Statistic, ...]:
        """What shards of an op, or of its forward op, compute together; a backward op has those of its forward op.

        Replicas have statistics of their own, but for how many targets a loss is the mean of.
        """
        forward = op if self.graph.phase[op] == Phase.FORWARD else int(self.graph.mirror[op])
        found = None if self.graph.phase[op] >= Phase.UPDATE else self.factored.ops[forward]
        shards = self.partition.shards[op]
        if found is None or (shards.is_replicated and not found.operator.is_number):
            return ()
        return found.operator.statistics

    def run(self, op: int, several: Sequence[ShardReads], micro_batch: int) -> list[list[Boxed]]:
        """(several, results) what shards of an op make together, of one micro-batch or, with -1, of all."""
        shards, phase, kind = self.partition.shards[op], self.graph.phase[op], self.graph.kinds[op]
        if kind == "loss":
            made = [[torch.stack([part.sum() for part in each.parts if part is not None]).sum()] for each in several]
        elif kind == "loss.grad":
            made = [self._ones(op, shards, each.shard) for each in several]
        elif phase == Phase.FORWARD:
            made = self._forward(op, shards, several, micro_batch)
        elif phase == Phase.BACKWARD:
            made = self._backward(op, shards, several, micro_batch)
        else:
            made = [self._update(op, each) for each in several]
        return [
            [Boxed(boxes[each.shard], one) for boxes, one in zip(shards.made, results, strict=True)]
            for each, results in zip(several, made, strict=True)
        ]

    def dtype(self, source: Source) -> torch.dtype:
        """Of a result of an op, or of a weight; that of a gradient is that of what its forward op makes."""
        if source.op < 0:
            return self.given[source.op].dtype
        mirror = int(self.graph.mirror[source.op])
        signature = self.factored.signatures.signature(source.op if mirror < 0 else mirror)
        return torch.float32 if signature is None else getattr(torch, signature.dtype)

    def _ones(self, op: int, shards: Shards, shard: int) -> list[Tensor]:
        ends = [each.op for each in self.described(int(self.graph.mirror[op])).sources if each is not None]
        boxes = [boxes[shard] for boxes in shards.made]
        return [torch.ones(shape_of(box), dtype=self.dtype(Source(end))) for box, end in zip(boxes, ends, strict=True)]

    # ---- forward -----------------------------------------------------------------------------------------

    def _forward(self, op: int, shards: Shards, several: Sequence[ShardReads], micro_batch: int) -> list[list[Tensor]]:
        found, described = self._found(op), self.described(op)
        spaces = [shards.spaces[each.shard] for each in several]
        tensors = []
        for each, space in zip(several, spaces, strict=True):
            tensors.append(
                [
                    self._input(op, k, space, described.batch, micro_batch) if part is None else part
                    for k, part in enumerate(each.parts)
                ]
            )
        with torch.no_grad():
            return [[each] for each in run_factored(found, spaces, tensors)]

    def _found(self, op: int) -> FactoredOp:
        return self._there(op, self.factored.ops[op])

    def _there(self, op: int, found: Known | None) -> Known:
        if found is None:
            raise InputError(f"op {self.graph.names[op]!r} has no description, so its shards cannot be run")
        return found

    def _input(self, forward: int, read: int, space: Space, batch: str, micro_batch: int) -> Tensor:
        """A slice of an input or a constant, for a part of a micro-batch."""
        number = self.factored.signatures.numbers(forward)[read]
        if number not in self.whole:
            raise InputError(f"what op {self.graph.names[forward]!r} reads is not given: input {number}")
        moved = dict(space)
        if batch and micro_batch > 0:
            first = micro_batch * self._found(forward).operator.sizes[batch] // self.partition.layout.micro_batches
            moved[batch] = Range(space[batch].low + first, space[batch].high + first)
        return cut_out(self.whole[number], self._found(forward).operator.reads[read].region(moved)).values

    # ---- backward ----------------------------------------------------------------------------------------

    def _backward(self, op: int, shards: Shards, several: Sequence[ShardReads], micro_batch: int) -> list[list[Tensor]]:
        forward, described, of = int(self.graph.mirror[op]), self.described(op), self.factored.gradients_of(op)
        found, roles = self._found(forward), self._roles(op)
        spaces = [shards.spaces[each.shard] for each in several]
        arriving = [
            self._arrived(found, described, roles, each, space) for each, space in zip(several, spaces, strict=True)
        ]
        if described.operator.writes == (found.operator.writes[0],) and found.operator.reads[of[0]].shape != (
            found.operator.writes[0].shape
        ):  # of a part of a tensor the gradient is as large as the part
            return [[each] for each in arriving]
        reads, outputs = list[list[Tensor | None]](), list[Tensor | None]()
        for each, space in zip(several, spaces, strict=True):
            numbers = self.factored.signatures.numbers(forward)
            own = [each[roles.reads[k]] if k in roles.reads else None for k in range(len(numbers))]
            for k, number in enumerate(numbers):
                if number < -len(self.graph.weights):
                    own[k] = self._input(forward, k, space, described.batch, micro_batch)
            reads.append(own)
            outputs.append(None if roles.output is None else each[roles.output])
        made = run_gradients(found, spaces, reads, outputs, arriving, of)
        for each, space, results in zip(several, spaces, made, strict=True):
            for read, result in roles.carried:
                if read in each.summands or _adds(shards, space, result):
                    results[result] = results[result] + each[read]
        return made

    def _arrived(
        self, found: FactoredOp, described: Described, roles: _Roles, each: ShardReads, space: Space
    ) -> Tensor:
        """The gradient of what a part of the forward op makes: the sum of those of all that read it."""
        written = found.operator.writes[0]
        box = written.region(space)
        total = torch.zeros(shape_of(box), dtype=getattr(torch, found.signature.dtype))
        for read in roles.arriving:
            access = described.operator.reads[read]
            part = _placed(access, written, Boxed(access.region(space), each[read]))
            total[slices(part.box, box)] += part.values
        return total

    def _roles(self, op: int) -> _Roles:
        graph, forward, described = self.graph, int(self.graph.mirror[op]), self.described(op)
        numbers, of, of_weights = (
            self.factored.signatures.numbers(forward), self.factored.gradients_of(op),
            graph.kinds[op].endswith(".grad_weight"),
        )  # fmt: skip
        arriving, carried, output, reads, following = list[int](), list[tuple[int, int]](), None, dict[int, int](), 0
        for read, source in enumerate(described.sources):
            assert source is not None
            is_backward = source.op >= 0 and graph.phase[source.op] == Phase.BACKWARD
            if is_backward and of_weights and graph.kinds[source.op].endswith(".grad_weight"):
                theirs = self.factored.signatures.numbers(int(graph.mirror[source.op]))
                weight = theirs[self.factored.gradients_of(source.op)[source.result]]
                carried.append((read, [numbers[k] for k in of].index(weight)))
            elif is_backward or (source.op >= 0 and graph.kinds[source.op] == "loss"):
                arriving.append(read)
            elif source.op == forward:
                output = read
            else:
                position = numbers.index(source.op, following)
                reads[position], following = read, position + 1
        return _Roles(tuple(arriving), tuple(carried), output, reads)

    # ---- updates -----------------------------------------------------------------------------------------

    def _update(self, op: int, each: ShardReads) -> list[Tensor]:
        """Of a refresh there are no weights among the parts: they are what it brings."""
        count = len(self.described(op).operator.writes)
        if self.graph.phase[op] == Phase.REFRESH:
            return [each[count + number] for number in range(count)]
        return [each[number] - self.rate * each[count + number] for number in range(count)]


def _adds(shards: Shards, space: Space, result: int) -> bool:
    """Whether a shard, and not another one that makes a summand of the same result, adds what counts once."""
    assert shards.operator is not None
    written = shards.operator.writes[result]
    summed = shards.operator.sizes.keys() - written.variables - written.apart
    return all(space[name].low == 0 for name in summed)


def _placed(access: Access, written: Access, part: Boxed) -> Boxed:
    """A gradient of a range of what was written, as a part of the gradient of all of it.

    The range may have its dimensions in another order: each has the terms of one of what was written.
    """
    left, order, box = list(range(len(written.index))), [0] * len(written.index), [Range(0, 0)] * len(written.index)
    for number, (each, own) in enumerate(zip(access.index, part.box, strict=True)):
        place = next(i for i in left if _terms(written.index[i]) == _terms(each))
        left.remove(place)
        whole = written.index[place]
        start = 0 if whole is None or each is None else whole.constant - each.constant
        order[place], box[place] = number, Range(own.low + start, own.high + start)
    return Boxed(tuple(box), part.values.permute(order))


def _terms(index: Affine | None) -> object:
    return None if index is None else index.terms
