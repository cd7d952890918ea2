"""Descriptions: what is known, in index notation, of the ops of a graph.

Of a captured model that follows from the signatures of its ops (`graphs.notation.factored`):

- A forward op reads what its signature says.
- A backward op reads the gradients that its forward op's readers have computed of its result, as many as there are, and
  what is kept for it: results and inputs of the forward op from which the graph has an edge. The gradient of a weight
  that other ops use as well is added to theirs.
- An update reads weights and their gradients, and writes the weights, over the indices of these. A refresh reads them
  from the update, for another op that uses them.

The batch is the index of the model's inputs that is as long as a step has samples, and what ops that read them count
with it; of an op that reads nothing of the batch, and makes more for more samples, its first index of that length.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import lru_cache

from graphs.batch import law_of
from graphs.described import Described, Source
from graphs.notation.factored import FactoredGraph
from graphs.notation.operator import Access, Operator
from graphs.op_graph import OpGraph, Phase

_KEPT = 32  # graphs: a search asks for one again and again


@lru_cache(_KEPT)
def descriptions_of(graph: OpGraph) -> tuple[Described | None, ...]:
    """(ops,) each op in index notation; None where that is not known."""
    if graph.described or graph.signatures is None:
        return graph.described or (None,) * len(graph)
    return _Derived(graph).described()


class _Derived:
    """The ops of a graph that has signatures."""

    def __init__(self, graph: OpGraph) -> None:
        self.graph, self.factored = graph, FactoredGraph(graph)
        self.numbers = self.factored.signatures.numbers
        self.mirror, self.phase = graph.mirror.tolist(), graph.phase.tolist()
        self.producers: list[list[int]] = [[] for _ in graph.names]
        for producer, consumer in graph.edges[~graph.control].tolist():
            self.producers[consumer].append(producer)
        self._operators: dict[tuple[object, ...], Operator] = {}
        self._of: dict[int, list[int]] = {}

    def described(self) -> tuple[Described | None, ...]:
        """(ops,) each of them."""
        batches = self._batches()
        found: list[Described | None] = []
        for op, phase in enumerate(self.phase):
            operator = self._refresh(op) if phase == Phase.REFRESH else self.factored.operator(op)
            if operator is None or not operator.writes:
                found.append(None)
            elif phase == Phase.FORWARD:
                found.append(Described(operator, tuple(map(self._source, self.numbers(op))), batches.get(op, "")))
            elif phase == Phase.BACKWARD:
                found.append(self._backward(op, operator, batches.get(self.mirror[op], "")))
            elif phase == Phase.UPDATE:
                found.append(self._update(op, operator))
            else:
                found.append(Described(operator, tuple(self._updated(op).values())))
        return tuple(found)

    def _source(self, number: int) -> Source | None:
        """Where a read comes from, by its number in the signatures; None for an input of the model."""
        return Source(number) if number >= -len(self.graph.weights) else None

    def _gradients_of(self, op: int) -> list[int]:
        """Positions of the reads of its forward op whose gradients a backward op computes."""
        if op not in self._of:
            self._of[op] = self.factored.gradients_of(op)
        return self._of[op]

    def _gradients(self, op: int, number: int) -> list[Source]:
        """The results of a backward op that are gradients of a tensor, by its number in the signatures."""
        if self.phase[op] != Phase.BACKWARD or self.mirror[op] < 0 or self.factored.ops[self.mirror[op]] is None:
            return []
        numbers = self.numbers(self.mirror[op])
        return [Source(op, at) for at, read in enumerate(self._gradients_of(op)) if numbers[read] == number]

    def _backward(self, op: int, operator: Operator, batch: str) -> Described:
        forward, producers, of = self.mirror[op], self.producers[op], self._gradients_of(op)
        numbers, is_of_weights = self.numbers(forward), self.graph.kinds[op].endswith(".grad_weight")
        arriving = [source for each in producers for source in self._gradients(each, forward)]
        result, arrived = Source(forward) if forward in producers else None, arriving[:1]
        sources = [arrived[0] if arrived else None, result]
        for number in numbers:
            is_kept = number in producers if number >= 0 else not is_of_weights
            sources.append(self._source(number) if is_kept else None)
        further = [(operator.reads[0], source) for source in arriving[1:]]
        if is_of_weights:
            further += [
                (access, source)
                for access, read in zip(operator.writes, of, strict=True)
                for each in producers
                for source in self._gradients(each, numbers[read])
            ]
        return self._made(op, operator, sources, further, batch)

    def _update(self, op: int, operator: Operator) -> Described:
        numbers = self.numbers(self.mirror[op])
        weights = [numbers[read] for read in self._gradients_of(op)]
        further = [
            (access, source)
            for access, weight in zip(operator.reads, weights, strict=True)
            for each in self.producers[op]
            for source in self._gradients(each, weight)
        ]
        return self._made(op, operator, list(map(self._source, weights)), further)

    def _updated(self, op: int) -> dict[int, Source]:
        """By the read of its forward op, the results of updates that a refresh brings to it."""
        found: dict[int, Source] = {}
        for each in self.producers[op]:
            if self.phase[each] == Phase.UPDATE:
                found |= {
                    self.numbers(self.mirror[each])[read]: Source(each, at)
                    for at, read in enumerate(self._gradients_of(each))
                }
        numbers = enumerate(self.numbers(self.mirror[op]))
        return {read: found[number] for read, number in numbers if number in found}

    def _refresh(self, op: int) -> Operator | None:
        """What brings weights to other ops that use them."""
        forward = self.factored.ops[self.mirror[op]] if self.mirror[op] >= 0 else None
        if forward is None:
            return None
        operator, every = forward.operator, frozenset(forward.operator.sizes)
        accesses = tuple(replace(operator.reads[read], apart=every, fill=None) for read in self._updated(op))
        key = id(forward), "refresh", accesses
        if key not in self._operators:
            self._operators[key] = replace(operator, reads=accesses, writes=accesses, statistics=())
        return self._operators[key]

    def _made(
        self,
        op: int,
        operator: Operator,
        sources: list[Source | None],
        further: list[tuple[Access, Source]],
        batch: str = "",
    ) -> Described:
        """An op that reads more than its operator says. Ops that are alike have the same operator."""
        accesses = tuple(access for access, _ in further)
        forward = self.factored.ops[self.mirror[op]]
        key = id(forward), self.phase[op], tuple(self._gradients_of(op)), accesses
        if key not in self._operators:
            self._operators[key] = replace(operator, reads=(*operator.reads, *accesses))
        return Described(self._operators[key], (*sources, *(source for _, source in further)), batch)

    def _batches(self) -> dict[int, str]:
        """By forward op the index that is its batch, where it has one."""
        samples = self.graph.samples
        dimension: dict[int, int] = {}  # by tensor the one that runs over the samples
        found: dict[int, str] = {}
        if samples < 2:
            return found
        grows = (law_of(self.graph).output_bytes < self.graph.output_bytes).tolist()
        for op in self.graph.topological_order.tolist():
            forward = self.factored.ops[op] if self.phase[op] == Phase.FORWARD else None
            if forward is None:
                continue
            operator, votes = forward.operator, defaultdict[str, float](float)
            for number, access in zip(self.numbers(op), operator.reads, strict=True):
                at = dimension.get(number, -1)
                if self._source(number) is None and at < 0:
                    at = next((i for i, size in enumerate(access.shape) if size == samples), -1)
                index = access.index[at] if at >= 0 else None
                if index is not None and len(index.terms) == 1:
                    votes[index.terms[0][0]] += 1.0 if number >= 0 else 0.5
            if not votes and grows[op]:
                votes |= dict.fromkeys(_of_length(operator, samples)[:1], 1.0)
            if votes:
                found[op] = max(votes, key=votes.__getitem__)
                for at, index in enumerate(operator.writes[0].index):
                    if index is not None and found[op] in index.variables:
                        dimension[op] = at
        return found


def _of_length(operator: Operator, length: int) -> list[str]:
    """The indices of the result that run over so many values."""
    named = (name for index in operator.writes[0].index if index is not None for name in index.variables)
    return [name for name in named if operator.sizes[name] == length]
