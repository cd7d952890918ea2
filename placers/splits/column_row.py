"""Columns, then rows: which index each op of a graph divides by Megatron-LM's rule (Shoeybi et al. 2019, section 3).

A matrix product by a weight divides a column of it, all ops after it divide what belongs to that, and a next product by
a weight sums over it: of that weight each device has rows. Only then is anything sent:

    x ---> x A --> gelu --> h B ---> y          forward: the parts of y are added up
    all    columns          rows    partial     backward: those of the gradient of x

In attention the columns of queries, keys and values are whole heads, since a softmax does not divide its rows. The
last product, whose columns are the vocabulary, is divided where a loss follows: each device has the loss of its words,
and the softmax before it exchanges two numbers for each row, and one in the backward pass. So are look-ups in tables
of as many rows, whose results are added up. A product after which something else would have to be gathered is not
divided, nor is anything else. A weight that `autocast` casts is divided before it is cast.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from graphs.descriptions.descriptions import descriptions_of, read_by_loss
from graphs.notation.described import Described, Source
from graphs.notation.operator import Access, Operator
from graphs.op_graph import OpGraph, Phase
from placers.splits.parts import moved, parts
from placers.splits.split_graph import NONE


def columns_and_rows(graph: OpGraph, count: int) -> tuple[str, ...]:
    """(ops,) the index that each op divides into `count` parts, or ""; gradients and updates as their forward ops."""
    return mirrored(graph, _Forward(graph, count).found(), count)


def most_columns_and_rows(graph: OpGraph, counts: Iterable[int]) -> tuple[int, tuple[str, ...]]:
    """Into which of several numbers of parts most FLOPs are divided, the largest of equal ones, and how; 1 of none."""
    found = {count: columns_and_rows(graph, count) for count in counts}
    flops = {count: float(graph.flops[[bool(index) for index in by]].sum()) for count, by in found.items()}
    best = max(found, key=lambda count: (flops[count], count), default=1)
    return best, found.get(best, (NONE,) * len(graph))


def mirrored(graph: OpGraph, forward: Mapping[int, str], count: int) -> tuple[str, ...]:
    """(ops,) what forward ops divide into `count` parts, and of other ops what their forward op does, if they can."""
    split = list[str]()
    for op, each in enumerate(descriptions_of(graph)):
        mirror = int(graph.mirror[op])
        name = forward.get(op if mirror < 0 else mirror, NONE)
        split.append(name if each is not None and may_divide(each.operator, name, count) else NONE)
    return tuple(split)


_CAST = "aten._to_copy"
_KEPT = 8  # graphs: several ways of dividing one are looked at in turn


@lru_cache(_KEPT)
def casts_of_weights(graph: OpGraph) -> Mapping[int, Described]:
    """The forward ops that cast a weight to another type."""
    return {
        op: each
        for op, each in enumerate(descriptions_of(graph))
        if graph.phase[op] == Phase.FORWARD and each is not None and graph.kinds[op] == _CAST
        if all(source is not None and source.op < 0 for source in each.sources)
    }


@lru_cache(_KEPT)
def forward_ops(graph: OpGraph) -> Mapping[int, Described]:
    """The forward ops that are described but for casts of weights; who reads a cast reads the weight itself."""
    casts = casts_of_weights(graph)

    def uncast(source: Source | None) -> Source | None:
        return casts[source.op].sources[0] if source is not None and source.op in casts else source

    return {
        op: replace(each, sources=tuple(map(uncast, each.sources)))
        for op, each in enumerate(descriptions_of(graph))
        if graph.phase[op] == Phase.FORWARD and each is not None and op not in casts
    }


class _Forward:
    """The forward ops of a graph, and who reads what they make."""

    def __init__(self, graph: OpGraph, count: int) -> None:
        self.count = count
        self.kinds, self.is_of_loss = graph.kinds, read_by_loss(graph)
        self.casts = casts_of_weights(graph)
        self.ops = forward_ops(graph)
        self.readers: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)  # of a result: op and read
        self.unknown: set[int] = set()  # ops that something reads of which no more is known
        self.uses: dict[int, set[int]] = defaultdict(set)  # of each weight
        self.of_casts: dict[int, list[tuple[int, int]]] = defaultdict(list)  # who reads each: op and read
        described = descriptions_of(graph)
        for op, each in self.ops.items():
            own = described[op]
            for place, source in enumerate(() if own is None else own.sources):
                if source is not None and source.op in self.casts:
                    self.of_casts[source.op].append((op, place))
            for place, source in enumerate(each.sources):
                if source is not None and source.op >= 0:
                    self.readers[source.op, source.result].append((op, place))
                elif source is not None:
                    self.uses[source.weight].add(op)
        self.columns_and_rows = {op: columns_and_rows_of(each) for op, each in self.ops.items()}
        self._continuations: dict[tuple[object, ...], str] = {}  # alike ops, as of time steps, share their operator
        for producer, consumer in graph.edges[~graph.control].tolist():
            if graph.phase[consumer] == Phase.FORWARD and consumer not in self.ops:
                self.unknown.add(producer)

    def found(self) -> dict[int, str]:
        """Of each forward op that is divided, the index."""
        chosen: dict[int, str] = {}
        for op, each in self.ops.items():
            for name in self.columns_and_rows[op][0] if op not in chosen else ():
                if may_divide(each.operator, name, self.count) and (more := self._region(op, name, chosen)):
                    chosen |= more
                    break
        return chosen | self._divided_casts(chosen)

    def _divided_casts(self, chosen: dict[int, str]) -> dict[int, str]:
        """Of each cast of a weight all of whose readers need the same part of it, the index of that."""
        found: dict[int, str] = {}
        for cast, each in self.casts.items():
            made = each.operator.writes[0]
            names = {
                _along(made, self.ops[op].operator.reads[place], chosen.get(op, NONE))
                for op, place in self.of_casts[cast]
            }
            if len(names) == 1:
                found[cast] = names.pop()
        return found

    def _region(self, product: int, column: str, chosen: dict[int, str]) -> dict[int, str]:
        """What is divided if a column of a product is, down to the rows of the next ones; empty if that is not all.

        Down to a loss, that is a head: nothing is to be gained by it in a network that has no columns and rows.
        """
        region, waiting, has_rows, is_head = {product: column}, [product], False, False
        while waiting:
            op = waiting.pop()
            if op in self.unknown:
                return {}
            for result in range(len(self.ops[op].operator.writes)):
                for reader, place in self.readers[op, result]:
                    known = region.get(reader, chosen.get(reader))
                    name = self._continued(op, result, region[op], reader, place, known)
                    if not name:
                        return {}
                    is_row, is_end = name in self.columns_and_rows[reader][1], self._is_end(reader)
                    has_rows = has_rows or is_row or reader in chosen  # from there on others have found rows
                    is_head = is_head or is_end
                    if known is None:
                        region[reader] = name
                        waiting += [] if is_row or is_end else [reader]
        if is_head and chosen:
            region |= self._look_ups(self.ops[product].operator.sizes[column])
        elif not has_rows:
            return {}
        weights = {source for op in region for source in self.ops[op].sources if source and source.op < 0}
        together = chosen | region
        if any(
            len({self._part(user, weight, together) for user in self.uses[weight.weight]}) > 1 for weight in weights
        ):
            return {}  # a weight that others divide otherwise would have to be moved
        return region

    def _continued(self, op: int, result: int, by: str, reader: int, place: int, known: str | None) -> str:
        """The index by which a reader needs just the part of a result that its device has; "" if there is none."""
        operator, other = self.ops[op].operator, self.ops[reader].operator
        rows, ends = self.columns_and_rows[reader][1], self._ends(reader)
        asked = (operator, result, by, other, place, known, rows, ends)
        if asked not in self._continuations:
            names = [
                name
                for name in (other.sizes if known is None else (known,))
                if may_divide(other, name, self.count) and (name in rows or ends or not is_reduced(other, name))
            ]
            self._continuations[asked] = self._without_moves(operator, result, by, other, place, names)
        return self._continuations[asked]

    def _without_moves(
        self, operator: Operator, result: int, by: str, other: Operator, place: int, names: Sequence[str]
    ) -> str:
        """The first index by which another operator needs just the part of a result that is there; "" if none does."""
        if not names:
            return NONE
        mesh = (self.count,)
        source = parts(operator, operator.writes[result], [(by,)], mesh, True)
        target = parts(other, other.reads[place], [(name,) for name in names], mesh, False)
        is_there = ((moved(source, target)[0, :, 0] == 0) & ~target.is_whole[:, 0]).tolist()
        return next((name for name, here in zip(names, is_there, strict=True) if here), NONE)

    def _is_end(self, op: int) -> bool:
        """Whether an op makes a single number that a loss alone reads: its parts need not be added up."""
        return self.is_of_loss[op] and self.ops[op].operator.is_number

    def _ends(self, op: int) -> bool:
        """Whether an op is the end, or before it a cast, or a softmax, whose parts exchange what they know of rows."""
        if self._is_end(op):
            return True
        passes = self.kinds[op] == _CAST or self.ops[op].operator.statistics
        readers = self.readers[op, 0] if passes and op not in self.unknown else ()
        return bool(readers) and all(self._ends(reader) for reader, _ in readers)

    def _look_ups(self, rows: int) -> dict[int, str]:
        """Of each op that looks something up in a table of some rows, the index of these."""
        found = {op: _rows_of_table(each) for op, each in self.ops.items()}
        return {op: name for op, name in found.items() if self.ops[op].operator.sizes.get(name) == rows}

    def _part(self, op: int, weight: Source, split: dict[int, str]) -> tuple[int, ...]:
        """The dimensions of a weight that an op reads in parts."""
        pairs = zip(self.ops[op].sources, self.ops[op].operator.reads, strict=True)
        access, by = next(access for source, access in pairs if source == weight), split.get(op, NONE)
        return tuple(i for i, index in enumerate(access.index) if index is not None and by in index.variables)


def _rows_of_table(each: Described) -> str:
    """The index of rows of the weight in a look-up: it is summed over, and in nothing else that the op reads."""
    reads = list(zip(each.sources, each.operator.reads, strict=True))
    for source, access in reads:
        others = frozenset[str]().union(*(other.variables for _, other in reads if other is not access))
        if source is not None and source.op < 0:
            return next(iter((access.variables & each.operator.reduced) - others), NONE)
    return NONE


def columns_and_rows_of(each: Described) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The indices of columns and of rows of the weight in a matrix product; none if an op is no product by a weight."""
    read, weights, operator = set[str](), set[str](), each.operator
    for source, access in zip(each.sources, operator.reads, strict=True):
        if source is not None:
            (weights if source.op < 0 else read).update(access.variables)
        used = [set(index.variables) for index in access.index if index is not None]
        if any(0 < len(variables & operator.reduced) < len(variables) for variables in used):
            return (), ()  # a convolution
    if not operator.reduced <= read & weights:
        return (), ()  # a convolution of single points, which has a kernel, too
    rows = tuple(name for name in operator.sizes if name in operator.reduced)
    columns = tuple(name for name in operator.sizes if name in weights - read)
    return (columns, rows) if rows else ((), ())


def _along(made: Access, read: Access, by: str) -> str:
    """The index of what makes a tensor that runs along the dimensions that an index of its reader runs along."""
    pairs = zip(made.index, read.index, strict=True)
    along = (own.variables for own, index in pairs if own is not None and index is not None and by in index.variables)
    return next((name for names in along for name in names), NONE)


def is_reduced(operator: Operator, name: str) -> bool:
    """Whether parts along an index would have to be added up, or exchange statistics."""
    return operator.exchanged(name) > 0 or any(name not in access.variables for access in operator.writes)


def may_divide(operator: Operator, name: str, count: int) -> bool:
    """Whether each of `count` parts along an index has some of it."""
    return operator.sizes.get(name, 0) >= count and name not in operator.opaque
