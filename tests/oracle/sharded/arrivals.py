"""Arrivals: what an op of an expanded graph has of a tensor, by the edges that lead to it.

An edge brings all that the op before it holds, to whichever device. What only orders brings nothing to another one,
but within an all-reduce of kind `nccl`, of which a transfer stands for all steps of a ring.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch

from envs.expansion.expanded import Expansion, Role
from envs.expansion.shards.shards import Partition
from envs.expansion.shards.stored_weights import StoredWeights
from graphs.notation.described import Source
from graphs.notation.ranges import Box, elements, intersection, shape_of
from graphs.op_graph import Phase
from tests.oracle.sharded.boxed import Boxed, added, cut_out, joined
from tests.oracle.sharded.computing import Computing

_PASSED = (Role.SEND, Role.SUM, Role.GATE)  # what lies between the summands of an all-reduce and its end


class MissingPart(Exception):  # noqa: N818 - says what is missing
    """An op of an expansion reads what is not there."""


class Arrivals:
    """What ops hold, while a step is run; `held`, by expanded op: the results of a copy of an op, or pieces."""

    def __init__(self, expansion: Expansion, partition: Partition, computing: Computing) -> None:
        self.expansion, self.partition, self.computing = expansion, partition, computing
        self.held: dict[int, list[Boxed]] = {}
        self.unsummed: dict[int, tuple[int, ...]] = {}
        """By copy of an op the shards that have a part each of the number that it made: the part of a loss."""
        self.before: list[dict[int, None]] = [{} for _ in expansion.problem.graph.names]
        edges, control = expansion.problem.graph.edges, expansion.problem.graph.control
        one_transfer = np.isin(expansion.role, (Role.SEND, Role.SUM)) & (expansion.plan.schedule.all_reduce == "nccl")
        for (producer, consumer), orders in zip(edges.tolist(), control.tolist(), strict=True):
            is_here = expansion.placement[producer] == expansion.placement[consumer]
            if not orders or is_here or (one_transfer[producer] and one_transfer[consumer]):
                self.before[consumer][producer] = None  # two edges bring it once

    # ---- weights -----------------------------------------------------------------------------------------

    @cached_property
    def stored(self) -> dict[tuple[int, int], list[Boxed]]:
        """By weight and device what is stored of the weight before the step."""
        return {
            (weight, device): [cut_out(self.computing.whole[-1 - weight], box) for box in boxes]
            for weight, by_device in enumerate(StoredWeights(self.partition).by_device)
            for device, boxes in by_device.items()
        }

    def _stored(self, op: int, weight: int) -> list[Boxed]:
        return self.stored.get((weight, int(self.expansion.placement[op])), [])

    # ---- what is read ------------------------------------------------------------------------------------

    def read(self, op: int, source: Source, box: Box) -> tuple[Boxed, tuple[int, ...]]:
        """A box of a tensor, for a copy of an op, and the shards that have summands of it each, if any.

        Those are not added up of a single number, a loss, or of a gradient of weights that goes on being added to.
        Raises MissingPart if some of it did not arrive.
        """
        inside = self._made_at_all(source, box)
        complete = [part for other in self._of_micro_batch(op) for part in self._piece_of(other, source)]
        copies = [other for other in self._of_micro_batch(op) if self._is_copy_of(other, source)]
        group: tuple[int, ...] = ()
        if not elements(inside):
            found = None
        elif source.op < 0:
            found = joined([*self._stored(op, source.weight), *complete], inside)
        elif copies and len(self.summands(copies[0], source)) == 1:
            found = joined([*self._made(op, source, copies, inside), *complete], inside)
        else:
            found = joined(complete, inside)
            if copies and found is None and self._may_be_summand(op, source):
                found = added([self.held[other][source.result] for other in copies], inside)
                group = self.summands(copies[0], source)
        if elements(inside):
            found = self._there(found, op, source, inside)
        nothing = Boxed(box, torch.zeros(shape_of(box), dtype=self.computing.dtype(source)))
        return nothing if found is None else found if inside == box else nothing.replaced(found), group

    def _made_at_all(self, source: Source, box: Box) -> Box:
        """What an op, or its shards together, makes of a box: of the gradient of one index, all other indices are 0."""
        if source.op < 0 or (operator := self.partition.shards[source.op].operator) is None:
            return box
        return intersection(box, operator.writes[source.result].region(operator.space))

    def _made(self, op: int, source: Source, copies: list[int], box: Box) -> list[Boxed]:
        """What copies have made of a box: those of all micro-batches are summands of what an update reads."""
        for other in copies:
            self._check_exchange(op, other, source)
        parts = [self.held[other][source.result] for other in copies]
        if self._is_of_step(op) and not self._is_of_step(copies[0]):
            within = [part.cut(box) for part in parts]
            total = added(within, within[0].box)
            return [] if total is None else [total]
        return parts

    def _there(self, found: Boxed | None, op: int, source: Source, box: Box) -> Boxed:
        if found is None:
            names, graph = self.expansion.problem.graph.names, self.computing.graph
            what = f"weight {source.weight}" if source.op < 0 else f"result {source.result} of {graph.names[source.op]}"
            raise MissingPart(f"{names[op]} lacks some of {what} in {' x '.join(f'{r.low}..{r.high}' for r in box)}")
        return found

    def _of_micro_batch(self, op: int) -> list[int]:
        """The ops before one but for those that end another micro-batch, for which its device waits."""
        batch = self.expansion.micro_batch
        return [other for other in self.before[op] if batch[op] < 0 or batch[other] in (-1, batch[op])]

    def _is_of_step(self, op: int) -> bool:
        return bool(self.expansion.micro_batch[op] < 0)

    def _is_copy_of(self, op: int, source: Source) -> bool:
        return bool(self.expansion.role[op] <= Role.RECOMPUTED and self.expansion.origin[op] == source.op >= 0)

    def _piece_of(self, op: int, source: Source) -> list[Boxed]:
        """What an op that is no copy holds of a tensor."""
        if op in self.expansion.pieces:
            return self.held[op] if self.expansion.pieces[op].source == source else []
        if op not in self.expansion.sums:
            return []
        pairs = zip(self.expansion.sums[op], self.held[op], strict=True)
        return [part for each, part in pairs if each.source == source]

    def summands(self, copy: int, source: Source) -> tuple[int, ...]:
        """The shards that have summands of the same as what a copy has made: it alone if that is added up."""
        if copy in self.unsummed:
            return self.unsummed[copy]
        shard = int(self.expansion.replica[copy])
        [group] = [each for each in self.partition.shards[source.op].groups[source.result] if shard in each]
        return group

    def _may_be_summand(self, op: int, source: Source) -> bool:
        is_number = elements(self.partition.shards[source.op].whole[source.result]) == 1
        gradients = self.partition.layout.is_weight_gradient
        origin = int(self.expansion.origin[op])
        if gradients[source.op]:
            return bool(gradients[origin] and self.computing.graph.phase[origin] == Phase.BACKWARD)
        return is_number and self.computing.graph.kinds[origin] in ("loss", "loss.grad")

    def _check_exchange(self, op: int, copy: int, source: Source) -> None:
        """Raise MissingPart unless what reads a result of shards that exchange statistics waits until they have."""
        shards, shard = self.partition.shards[source.op], int(self.expansion.replica[copy])
        for group, _ in shards.exchanged:
            if shard in group and elements(shards.whole[source.result]) > 1:
                first = copy - shard
                waits = set[int]().union(*(self._summands(other) for other in self.before[op]))
                if not {first + member for member in group} <= waits:
                    name = self.computing.graph.names[source.op]
                    raise MissingPart(
                        f"{self.expansion.problem.graph.names[op]} does not wait for statistics of {name}"
                    )

    # ---- what is cut out, sent and added up --------------------------------------------------------------

    def hold(self, op: int) -> None:
        """Note what an op that is no copy holds, if it holds something."""
        if op in self.expansion.pieces:
            self.held[op] = [self._piece(op)]
        elif op in self.expansion.sums:
            self.held[op] = [self._all_reduced(op, *each) for each in self.expansion.sums[op]]

    def _piece(self, op: int) -> Boxed:
        source, box = self.expansion.pieces[op]
        if source.op < 0:
            return self._there(joined(self._stored(op, source.weight), box), op, source, box)
        complete = [part for other in self.before[op] for part in self._piece_of(other, source)]
        copies = [other for other in self._of_micro_batch(op) if self._is_copy_of(other, source)]
        if self.expansion.role[op] in (Role.SUM, Role.GATE):  # of shards, micro-batches, or both
            parts = [*complete, *(self.held[other][source.result] for other in copies)]
            return self._there(added(parts, box), op, source, box)
        if not complete:
            for other in copies:
                self._check_exchange(op, other, source)
            complete = [self.held[other][source.result] for other in copies]
        return self._there(joined(complete, box), op, source, box)

    def _all_reduced(self, op: int, source: Source, box: Box) -> Boxed:
        """The sum at the end of an all-reduce of all summands that are on their way to it."""
        parts = list[Boxed]()
        for other in sorted(self._summands(op)):
            if self._is_copy_of(other, source):
                parts.append(self.held[other][source.result])
            else:
                parts += self._piece_of(other, source)
        return self._there(added(parts, box), op, source, box)

    def _summands(self, op: int) -> set[int]:
        """What holds something, before the steps of an all-reduce that end at an op; of a copy nothing."""
        found, seen, stack = set[int](), {op}, [op]
        while stack:
            each = stack.pop()
            if each != op and each in self.held:
                found.add(each)
            elif self.expansion.role[each] in _PASSED and each not in self.expansion.pieces:
                new = [other for other in self.before[each] if other not in seen]
                seen.update(new)
                stack += new
        return found

    def copies(self, op: int) -> Iterator[tuple[int, list[Boxed]]]:
        """Each copy of an op of the given graph, and what it has made; not of what is computed again."""
        for copy, held in self.held.items():
            if self.expansion.role[copy] == Role.WORK and self.expansion.origin[copy] == op:
                yield copy, held
