"""Described: what an op of a graph computes, in index notation, and where it reads from.

    op "layers.1/mm"      y[n, o] = sum over i of x[n, i] w[o, i]        batch n
    sources               x: the result of op "layers.0/relu";  w: weight 3

So it is known which part of which tensor each part of an op needs (`graphs.notation`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from graphs.foundation.errors import InputError
from graphs.notation.operator import Access, Operator


class Source(NamedTuple):
    """Where a read of an op comes from."""

    op: int  # the op whose result it is; -1 - w for weight w of the graph
    result: int = 0  # which of that op's results, by position in its `Operator.writes`

    @property
    def weight(self) -> int:
        """The weight that is read, or -1."""
        return -1 - self.op if self.op < 0 else -1


@dataclass(frozen=True, eq=False)
class Described:
    """An op in index notation.

    Raises InputError if there is not one source for each read, or no such variable as the batch.
    """

    operator: Operator
    sources: tuple[Source | None, ...]  # (reads,) None where nothing of the graph is read, or it is not made use of
    batch: str = ""  # the index variable that runs over the samples; "" if none does

    def __post_init__(self) -> None:
        if len(self.sources) != len(self.operator.reads):
            raise InputError(
                f"an op reads {len(self.operator.reads)} tensors, and {len(self.sources)} sources are given"
            )
        if self.batch and self.batch not in self.operator.sizes:
            raise InputError(
                f"the batch is index {self.batch!r}, and the op has {', '.join(self.operator.sizes) or 'none'}"
            )

    def moved(self, position: dict[int, int]) -> Described:
        """The same, in a graph where ops have other positions; what is left out there is read from nowhere."""
        sources = tuple(
            source
            if source is None or source.op < 0
            else Source(position[source.op], source.result)
            if source.op in position
            else None
            for source in self.sources
        )
        return replace(self, sources=sources)

    def of_part(self, part: int, of: int) -> Described | None:
        """What is computed for `part` samples in place of `of`; None if that is no whole number of indices."""
        operator = of_part(self.operator, self.batch, part, of)
        return None if operator is None else replace(self, operator=operator)


def of_part(operator: Operator, batch: str, part: int, of: int) -> Operator | None:
    """An operator for `part` samples in place of `of`, as `Described.of_part`; `batch` may be "" for none.

    Dimensions grow with the batch if their index depends on it.
    """
    if not batch or part == of:
        return operator
    if operator.sizes[batch] * part % of:
        return None
    sizes = {**operator.sizes, batch: operator.sizes[batch] * part // of}

    def scaled(access: Access) -> Access:
        grows = [each is not None and batch in each.variables for each in access.index]
        shape = tuple(-(-size * part // of) if more else size for size, more in zip(access.shape, grows, strict=True))
        return replace(access, shape=shape)

    reads, writes = (tuple(map(scaled, each)) for each in (operator.reads, operator.writes))
    return replace(operator, sizes=sizes, reads=reads, writes=writes)
