"""GraphDraft: an op graph while a model is read, op after op."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np

from graphs.op_graph import Call, OpGraph
from graphs.op_graph.precision import SINGLE

Value = TypeVar("Value", bound=Hashable)  # a value of the model: a node, or a name


class GraphDraft(Generic[Value]):
    """The ops and weights found so far, and which of them the values of the model stand for."""

    def __init__(self, weight_of: Callable[[Value], int | None]) -> None:
        """`weight_of` says which weight a value is, or looks at, if it is one."""
        self.op: dict[Value, int] = {}  # the op whose output a value is, or looks at
        self.names: dict[str, int] = {}
        self.weights: list[float] = []  # bytes
        self._precisions: list[str] = []  # of ops
        self._weight_precisions: list[str] = []
        self._weight_of = weight_of
        self._kinds: list[str] = []
        self._costs: list[tuple[float, float, float]] = []  # FLOP, bytes accessed, output bytes
        self._group: list[int] = []
        self._calls: list[Call | None] = []
        self._edges: set[tuple[int, int]] = set()
        self._weight_uses: set[tuple[int, int]] = set()

    def add_op(
        self,
        name: str,
        kind: str,
        costs: tuple[float, float, float],
        read: Iterable[Value],
        written: Iterable[Value],
        call: Call | None = None,
        precision: str = SINGLE,
    ) -> None:
        """An op with its FLOP, bytes accessed and output bytes, the values that it reads and writes, and its call.

        `precision` is that in which it multiplies, if it does (`graphs.op_graph.precision`).
        """
        op = len(self.names)
        self.names[name] = op
        self._kinds.append(kind)
        self._costs.append(costs)
        self._group.append(-1)
        self._calls.append(call)
        self._precisions.append(precision if costs[0] > 0 else SINGLE)
        self.op.update(dict.fromkeys(written, op))
        for value in read:
            if value in self.op:
                self._edges.add((self.op[value], op))
            elif (weight := self._weight_of(value)) is not None:
                self._weight_uses.add((op, weight))

    def add_part(
        self,
        name: str,
        kind: str,
        output_bytes: float,
        read: Sequence[Value],
        written: Value,
        call: Call | None = None,
    ) -> None:
        """A part of the first value that it reads: an op that costs nothing, tied to that value's op.

        So only the part is sent to ops that read it elsewhere.
        """
        base = self.op[read[0]]
        self._group[base] = base if self._group[base] < 0 else self._group[base]
        self.add_op(name, kind, (0.0, 0.0, output_bytes), read, [written], call)
        self._group[-1] = self._group[base]

    def add_weight(self, size: float, precision: str = SINGLE) -> int:
        """The number of a further weight of that many bytes, in that precision."""
        self.weights.append(size)
        self._weight_precisions.append(precision)
        return len(self.weights) - 1

    def built(self, name: str) -> OpGraph:
        """The op graph."""
        flops, bytes_accessed, output_bytes = np.array(self._costs).reshape(-1, 3).T
        edges, uses = (np.array(sorted(pairs), np.int64) for pairs in (self._edges, self._weight_uses))
        return OpGraph(
            name, tuple(self.names), tuple(self._kinds), flops, bytes_accessed, output_bytes, edges,
            weights=np.array(self.weights), weight_uses=uses, group=np.array(self._group, np.int64),
            calls=tuple(self._calls), precisions=tuple(self._precisions),
            weight_precisions=tuple(self._weight_precisions),
        )  # fmt: skip
