"""Sequences: the index of each op that runs along the positions of a sequence, such as the tokens of a text.

A product by a weight has, besides samples, rows and columns of the weight, one index more in a Transformer: the
position, which each of its inputs has a row for. From there on an op's index is that by which it reads the positions of
another op, or by which others read its own. What adds up over positions, or normalises over them, has none: each device
does all of that. In attention that is the index of queries, since scores are normalised over keys; so keys and values
are needed whole, and gathered.
"""

from collections.abc import Iterator, Mapping

from graphs.descriptions.descriptions import read_by_loss
from graphs.notation.affine import Affine
from graphs.notation.described import Described
from graphs.notation.operator import Access
from graphs.op_graph import OpGraph, Phase
from placers.splits.column_row import columns_and_rows_of, forward_ops, is_reduced, may_divide, mirrored
from placers.splits.split_graph import NONE


def along_sequence(graph: OpGraph, count: int) -> tuple[str, ...]:
    """(ops,) the index of positions that each op divides into `count` parts, or ""; gradients as their forward ops.

    Updates have none: weights are the same for all positions.
    """
    split = mirrored(graph, _Positions(graph, count).found(), count)
    return tuple(NONE if phase >= Phase.UPDATE else name for name, phase in zip(split, graph.phase, strict=True))


def followed(made: Access, name: str, read: Access) -> Iterator[str]:
    """The variables by which a reader goes along the dimensions of a tensor that a variable of its maker runs along."""
    for own, index in zip(made.index, read.index, strict=True):
        if _steps_by_one(own) == name and (found := _steps_by_one(index)):
            yield found


def readers_of(ops: Mapping[int, Described]) -> dict[int, list[tuple[int, int, int]]]:
    """Of each op which of its results is read, by which op, and as which of that one's reads."""
    found: dict[int, list[tuple[int, int, int]]] = {op: [] for op in ops}
    for op, each in ops.items():
        for place, source in enumerate(each.sources):
            if source is not None and source.op in ops:
                found[source.op].append((source.result, op, place))
    return found


def _steps_by_one(index: Affine | None) -> str:
    """The variable that an index is, but for where it starts; "" for any other index."""
    return index.terms[0][0] if index is not None and len(index.terms) == 1 and index.terms[0][1] == 1 else NONE


class _Positions:
    """The forward ops of a graph, and which index of each is chosen."""

    def __init__(self, graph: OpGraph, count: int) -> None:
        self.count, self.is_of_loss = count, read_by_loss(graph)
        self.ops = forward_ops(graph)
        self.order = [op for op in graph.topological_order.tolist() if op in self.ops]
        self.readers = readers_of(self.ops)
        self.chosen: dict[int, str] = {}

    def found(self) -> dict[int, str]:
        """Of each forward op that has one, the index of positions."""
        for op, each in self.ops.items():
            self._choose(op, _positions_of(each))
        before = -1
        while before < len(self.chosen):
            before = len(self.chosen)
            for op in self.order:
                self._choose(op, self._as_read(op))
            for op in reversed(self.order):
                self._choose(op, self._as_others_read(op))
        return self.chosen

    def _choose(self, op: int, names: Iterator[str]) -> None:
        """The first of some indices that can be divided without adding up, or exchanging, anything."""
        if op in self.chosen:
            return
        each = self.ops[op]
        is_end = self.is_of_loss[op] and each.operator.is_number
        for name in names:
            is_apart = is_end or not is_reduced(each.operator, name)
            if name != each.batch and is_apart and may_divide(each.operator, name, self.count):
                self.chosen[op] = name
                return

    def _as_read(self, op: int) -> Iterator[str]:
        each = self.ops[op]
        for source, access in zip(each.sources, each.operator.reads, strict=True):
            if source is not None and source.op in self.chosen:
                made = self.ops[source.op].operator.writes[source.result]
                yield from followed(made, self.chosen[source.op], access)

    def _as_others_read(self, op: int) -> Iterator[str]:
        made = self.ops[op].operator.writes
        for result, reader, place in self.readers[op]:
            if reader in self.chosen:
                read = self.ops[reader].operator.reads[place]
                yield from followed(read, self.chosen[reader], made[result])


def _positions_of(each: Described) -> Iterator[str]:
    """The indices of a product by a weight that are neither samples nor of the weight, the longest first."""
    if not any(columns_and_rows_of(each)):
        return iter(())
    sizes, of_weights = each.operator.sizes, set[str]()
    for source, access in zip(each.sources, each.operator.reads, strict=True):
        if source is not None and source.op < 0:
            of_weights |= access.variables
    return iter(sorted((name for name in sizes if name not in of_weights), key=lambda name: -sizes[name]))
