"""Descriptions: what is known, in index notation, of the ops of a graph.

Of a captured step, it is what each op reads of which other op:

    X               what its forward op reads; inputs and constants are on every device, so nothing is read of those
    X.grad          the gradients of X's output that its consumers made, what autograd kept, and weights of products
    X.grad_weight   likewise
    X.update        its gradients and weights, element by element; X.refresh: the new values
    loss            what the forward pass ends with, if that is one tensor, or single numbers

An op without a description is not divided: what PyTorch makes no known part of (`graphs.operators`). The gradient of a
slice is described as large as the slice, and what is sliced reads it at the slice's place.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from graphs.descriptions.factored import FactoredGraph, FactoredOp
from graphs.notation.affine import variable
from graphs.notation.described import Described, Source
from graphs.notation.gradients import gradient
from graphs.notation.operator import Access, Operator, tensor
from graphs.op_graph import RECOMPUTED, OpGraph, Phase
from graphs.operators import kinds
from graphs.transforms.batch import grows

# The gradient of what these read needs their weights; that of a weight needs other weights, of which it is a factor.
_PRODUCTS = {"aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.convolution", "aten.mul", "aten.div"}
_SCALED = {"aten.native_layer_norm", "aten._native_batch_norm_legit_functional"}  # its own gradient needs none
_LOSS = "loss"
_KEPT = 32  # graphs: a search asks for one again and again

Read = tuple[Access, Source | None]


@lru_cache(_KEPT)
def descriptions_of(graph: OpGraph) -> tuple[Described | None, ...]:
    """(ops,) each op in index notation; None where that is not known.

    A graph that says nothing of it itself is described from its signatures, if it was captured with its batch.
    """
    if graph.described or graph.signatures is None or graph.signatures.of_other_batch:
        return graph.described or (None,) * len(graph)
    return _Describer(graph).build()


@lru_cache(_KEPT)
def read_by_loss(graph: OpGraph) -> tuple[bool, ...]:
    """(ops,) whether the loss of a step and its gradient are all that reads an op.

    Parts of such a number need not be added up: the gradient of each is one, and the loss itself is for reports.
    """
    found = np.ones(len(graph), np.bool_)
    producer, consumer = graph.edges[~graph.control].T
    is_loss = np.array([kind in (_LOSS, f"{_LOSS}.grad") for kind in graph.kinds], np.bool_)
    found[producer[~is_loss[consumer]]] = False
    return tuple(found.tolist())


def updated_weights(described: Sequence[Described | None], op: int) -> list[int]:
    """(results,) the weights that an update writes, or that a refresh brings from updates.

    `described` are the ops of its graph. There are none for an op without a description.
    """
    each = described[op]
    count, found = 0 if each is None else len(each.operator.writes), list[int]()
    for number in range(count):
        assert each is not None
        weight, made = each.sources[number], each.sources[count + number]
        if weight is None:
            assert made is not None  # by an update
            found.append(updated_weights(described, made.op)[made.result])
        else:
            found.append(weight.weight)
    return found


class _Describer:
    """Ops that are alike share their operator: whoever computes with operators does so once."""

    def __init__(self, graph: OpGraph) -> None:
        self.graph, self.factored = graph, FactoredGraph(graph)
        self.producers: dict[int, list[int]] = defaultdict(list)
        self.consumers: dict[int, list[int]] = defaultdict(list)
        for producer, consumer in graph.edges[~graph.control].tolist():
            self.producers[consumer].append(producer)
            self.consumers[producer].append(consumer)
        self.backward: dict[tuple[int, bool], int] = {}  # forward op, whether of weights -> its backward op
        for op, (phase, mirror, kind) in enumerate(zip(graph.phase, graph.mirror, graph.kinds, strict=True)):
            if phase == Phase.BACKWARD and not kind.endswith(RECOMPUTED):
                self.backward[int(mirror), kind.endswith(".grad_weight")] = op
        self.batch = _batches(self.factored)
        self._shared: dict[Any, Operator] = {}

    def build(self) -> tuple[Described | None, ...]:
        return tuple(self._described(op) for op in range(len(self.graph)))

    def _described(self, op: int) -> Described | None:
        graph = self.graph
        if graph.kinds[op] == _LOSS:
            return self._loss(op)
        if graph.kinds[op] == f"{_LOSS}.grad":
            return self._loss_gradient(op)
        forward = op if graph.phase[op] == Phase.FORWARD else int(graph.mirror[op])
        found = self.factored.ops[forward] if forward >= 0 else None
        if found is None:
            return None
        if forward == op:
            sources = [self._source(number) for number in self.factored.signatures.numbers(op)]
            return Described(found.operator, tuple(sources), self.batch[op])
        if graph.kinds[op].endswith(RECOMPUTED):
            sources = [self._again(op, number) for number in self.factored.signatures.numbers(forward)]
            return Described(found.operator, tuple(sources), self.batch[forward])
        if graph.phase[op] == Phase.BACKWARD:
            return self._gradient(op, forward, found)
        return self._update(op, forward, found)

    def _source(self, number: int) -> Source | None:
        return Source(number) if number >= -len(self.graph.weights) else None

    def _again(self, op: int, number: int) -> Source | None:
        """What an op reads that runs again: what its forward op reads, or that again."""
        again = (each for each in self.producers[op] if number >= 0 and self.graph.mirror[each] == number)
        return Source(next(again, number)) if number >= -len(self.graph.weights) else None

    # ---- gradients ---------------------------------------------------------------------------------------

    def _gradient(self, op: int, forward: int, found: FactoredOp) -> Described:
        operator, of = found.operator, self.factored.gradients_of(op)
        reads: list[Read] = self._arriving(op, forward, operator.writes[0])
        kept = {int(self.graph.mirror[each]): each for each in self.producers[op] if self._runs_again(each)}
        kept |= {each: each for each in self.producers[op] if self.graph.phase[each] == Phase.FORWARD}
        if forward in kept:  # autograd kept the output
            reads.append((operator.writes[0], Source(kept[forward])))
        numbers = self.factored.signatures.numbers(forward)
        for k, (access, number) in enumerate(zip(operator.reads, numbers, strict=True)):
            is_weight = -len(self.graph.weights) <= number < 0
            if number in kept or (is_weight and self._needs_weight(op, k, operator)):
                reads.append((access, Source(kept.get(number, number))))
        made = None if self._is_of_weights(op) else _as_part(found)
        key = id(found), tuple(of), made is not None, tuple(access for access, _ in reads)
        if key not in self._shared:
            whole_gradient = gradient(operator, of)
            writes = whole_gradient.writes if made is None else (operator.writes[0],)
            accesses = tuple(access for access, _ in reads)
            self._shared[key] = replace(whole_gradient, reads=accesses, writes=writes)
        return Described(self._shared[key], tuple(source for _, source in reads), self.batch[forward])

    def _needs_weight(self, op: int, read: int, forward: Operator) -> bool:
        """Whether a gradient is computed with a weight that the forward op reads."""
        kind = self.graph.kinds[int(self.graph.mirror[op])]
        if forward.reads[read].apart:
            return False
        if not self._is_of_weights(op):
            return kind in _PRODUCTS or kind in _SCALED
        others = [k for k in self.factored.gradients_of(op) if k != read and not forward.reads[k].apart]
        return kind in _PRODUCTS and bool(others)

    def _runs_again(self, op: int) -> bool:
        return self.graph.kinds[op].endswith(RECOMPUTED)

    def _is_of_weights(self, op: int) -> bool:
        return self.graph.kinds[op].endswith(".grad_weight")

    def _arriving(self, op: int, forward: int, written: Access) -> list[Read]:
        """The gradients of a forward op's output: of every consumer, one for each time that it reads it."""
        arriving = list[Read]()
        for producer in self.producers[op]:
            consumer = int(self.graph.mirror[producer])
            is_gradient = self.graph.phase[producer] == Phase.BACKWARD and not self._runs_again(producer)
            if not is_gradient or self._is_of_weights(producer):
                if self.graph.kinds[producer] == _LOSS:
                    arriving.append((written, Source(producer)))
                continue
            if self.graph.kinds[producer] == f"{_LOSS}.grad":
                arriving.append((written, Source(producer, self._ends(consumer).index(forward))))
                continue
            numbers, of = self.factored.signatures.numbers(consumer), self.factored.gradients_of(producer)
            reader = self.factored.ops[consumer]
            for result, k in enumerate(of):
                if numbers[k] == forward:
                    places = None if reader is None else _as_part(reader)
                    access = written if reader is None or places is None else _at_part(reader, places, written)
                    known = 0 if reader is None else result  # what is not described has one output, whatever is in it
                    arriving.append((access, Source(producer, known)))
        if self._is_of_weights(op):  # the sum so far, of a weight that other ops read as well
            arriving += self._carried(op, forward)
        return arriving

    def _carried(self, op: int, forward: int) -> list[Read]:
        """Gradients of the same weights that other ops have added up."""
        numbers, found = self.factored.signatures.numbers(forward), self.factored.ops[forward]
        assert found is not None
        carried = list[Read]()
        for producer in self.producers[op]:
            if self.graph.phase[producer] != Phase.BACKWARD or not self._is_of_weights(producer):
                continue
            theirs = self.factored.signatures.numbers(int(self.graph.mirror[producer]))
            for result, k in enumerate(self.factored.gradients_of(producer)):
                carried += [
                    (access, Source(producer, result))
                    for access, number in zip(found.operator.reads, numbers, strict=True)
                    if number == theirs[k]
                ]
        return carried

    # ---- updates -----------------------------------------------------------------------------------------

    def _update(self, op: int, forward: int, found: FactoredOp) -> Described | None:
        numbers, owned = self.factored.signatures.numbers(forward), self.factored.gradients_of(op)
        if self.graph.phase[op] == Phase.REFRESH:
            if any(self.factored.ops[int(self.graph.mirror[update])] is None for update in self.producers[op]):
                return None  # nobody knows what the update makes
            owned = self._refreshed(op, numbers)
        key = id(found), "update", tuple(owned)
        if key not in self._shared:
            of_weights = [replace(found.operator.reads[k], fill=None) for k in owned]
            used = frozenset[str]().union(*(access.variables for access in of_weights))
            accesses = tuple(replace(access, apart=used) for access in of_weights)
            sizes = {name: size for name, size in found.operator.sizes.items() if name in used}
            self._shared[key] = Operator(sizes, (*accesses, *accesses), accesses)
        weights: list[Source | None] = [Source(numbers[k]) for k in owned]
        made = [self._made_for(op, numbers[k]) for k in owned]
        if self.graph.phase[op] == Phase.REFRESH:
            weights = [None] * len(owned)
        return Described(self._shared[key], (*weights, *made))

    def _refreshed(self, op: int, numbers: Sequence[int]) -> list[int]:
        """Positions of the weights whose new values are brought to an op."""
        updated = {weight for producer in self.producers[op] for weight in self._weights_of(producer)}
        return [k for k, number in enumerate(numbers) if number in updated]

    def _made_for(self, op: int, weight: int) -> Source | None:
        """Which result of which op an update, or a refresh, reads for a weight."""
        for producer in self.producers[op]:
            made = self._weights_of(producer)
            if weight in made:
                return Source(producer, made.index(weight))
        return None

    def _weights_of(self, op: int) -> list[int]:
        """The weights, as sources number them, that an update or a gradient of weights makes something for."""
        numbers = self.factored.signatures.numbers(int(self.graph.mirror[op]))
        return [numbers[k] for k in self.factored.gradients_of(op)]

    # ---- the loss ----------------------------------------------------------------------------------------

    def _ends(self, loss: int) -> list[int]:
        """The ops whose outputs the loss adds up."""
        return self.producers[loss]

    def _loss(self, op: int) -> Described | None:
        reads = self._of_ends(op)
        if reads is None:
            return None
        operator = Operator(_sizes(reads), tuple(reads), (tensor(()),))
        return Described(operator, tuple(Source(end) for end in self._ends(op)))

    def _loss_gradient(self, op: int) -> Described | None:
        loss = int(self.graph.mirror[op])
        reads = self._of_ends(loss)
        if reads is None:
            return None
        return Described(Operator(_sizes(reads), (tensor(()),), tuple(reads)), (Source(loss),))

    def _of_ends(self, loss: int) -> list[Access] | None:
        """What a loss reads: several tensors have no index in common, so these are described if they are numbers."""
        shapes = [self.factored.shape(end) for end in self._ends(loss)]
        if len(shapes) > 1 and any(shapes):
            return None
        return [Access(shape, tuple(variable(f"d{i}") for i in range(len(shape)))) for shape in shapes]


def _sizes(accesses: Sequence[Access]) -> dict[str, int]:
    return {f"d{i}": size for access in accesses for i, size in enumerate(access.shape)}


def _as_part(op: FactoredOp) -> list[tuple[int, int]] | None:
    """Of an op whose output is a range of what it reads, which dimension each of the output is there, and from where.

    None of other ops. The gradient of such an op can be as large as the range, and not as what it is a range of.
    """
    if kinds().get(op.signature.function) != "parts" or any(op.regroups):
        return None
    [read], [written] = op.operator.reads, op.operator.writes
    places = [(None if each is None else each.terms, i) for i, each in enumerate(read.index)]
    found = list[tuple[int, int]]()
    for each in written.index:
        place = next((i for terms, i in places if each is not None and terms == each.terms), None)
        if place is None:
            return None
        places = [(terms, i) for terms, i in places if i != place]
        index = read.index[place]
        assert index is not None
        found.append((place, index.constant))
    return None if places else found


def _at_part(part: FactoredOp, places: Sequence[tuple[int, int]], of: Access) -> Access:
    """The access to the gradient of a range by the variables of what it is a range of."""
    index = [(of.index[place], start) for place, start in places]
    moved = tuple(None if each is None else each - start for each, start in index)
    return Access(part.operator.writes[0].shape, moved, clipped=True, apart=of.apart)


def _batches(factored: FactoredGraph) -> list[str]:
    """(ops,) the variable of each forward op that runs over the samples, or "".

    The samples are the first dimension of inputs, where that is as long. From there on an op's variable is that by
    which it reads the samples of what other ops make, or else of an input, or that of its output's first dimension.
    """
    graph, signatures = factored.graph, factored.signatures
    growing, found = grows(graph).tolist(), [""] * len(graph)
    place: dict[int, int] = {}  # tensor -> which of its factors the samples are
    for op in graph.topological_order.tolist():
        described = factored.ops[op]
        if described is None or not growing[op] or graph.samples < 1:
            continue
        numbers = signatures.numbers(op)
        candidates = list[str]()
        for number, access in sorted(zip(numbers, described.operator.reads, strict=True), key=lambda pair: -pair[0]):
            is_input = number < -len(graph.weights)
            at = place.get(number, 0 if is_input and access.shape[:1] == (graph.samples,) else -1)
            index = access.index[at] if at >= 0 else None
            if index is not None and len(index.terms) == 1:
                candidates.append(index.variables[0])
        [written] = described.operator.writes
        if not candidates and written.shape[:1] == (graph.samples,) and written.index[0]:
            candidates += written.index[0].variables  # a weight, or a constant, that is repeated for all samples
        for name in candidates:
            at = next((i for i, each in enumerate(written.index) if each == variable(name)), -1)
            found[op] = found[op] or name
            if at >= 0:
                place.setdefault(op, at)
    return found
