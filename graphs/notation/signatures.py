"""Signatures: which ATen operation an op is, on tensors of which shapes, and with which other arguments.

A model repeats its layers, so a graph holds each distinct signature once, and per op a number and what it reads. An op
reads a tensor through views, which are no ops:

    source                         views                                                 as it is read
    op "layers.0/addmm" (2048, 512)  view (8, 256, 8, 64), permute (0, 2, 1, 3), ...   (64, 256, 64)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from graphs.foundation.errors import InputError

Shape = tuple[int, ...]
Numbers = NDArray[np.int64]

READ = "read"  # the key of what stands for a tensor among arguments: {"read": 0} is the first one that is read


class View(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A view of a tensor, or one of several outputs ("getitem")."""

    function: str  # "aten.permute"
    shape: Shape  # of the view
    arguments: tuple[Any, ...] = ()  # those after the tensor: numbers and lists of them


class Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tensor that an op reads."""

    shape: Shape  # as it is read
    dtype: str  # "float32"
    base: Shape  # of the tensor at its source
    views: tuple[View, ...] = ()  # from the source to what is read


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A call of an ATen operation."""

    function: str  # "aten.convolution"
    reads: tuple[Read, ...]
    outputs: tuple[Shape | None, ...]  # shapes; None for an output that is no tensor
    dtype: str  # of the first output
    arguments: tuple[Any, ...] = ()  # by position, with {"read": k} in place of tensors
    named: dict[str, Any] = {}
    output: int = 0  # which of several outputs is the op's, where it is a part of what was split

    @property
    def shape(self) -> Shape:
        """The shape of the op's output."""
        return self.outputs[self.output] or ()


class Origin(NamedTuple):
    """Where a tensor that is read comes from."""

    kind: str  # "op", "weight", or "input": what is no op's and no weight, inputs and constants
    number: int


@dataclass(frozen=True, eq=False)
class Signatures:
    """The signatures of a graph's ops, as far as they are known: not those of backward and update ops.

    An op's sources are those between its offset and the next one.
    """

    distinct: tuple[Signature, ...]
    of: Numbers  # (ops,) the number of each op's signature, or -1
    offsets: Numbers  # (ops + 1,)
    sources: Numbers  # (reads,) an op; -1 - k is weight k, or input k - weights where there are no more weights
    of_other_batch: bool = False  # whether shapes are those of a step with another number of samples than the graph's

    def __post_init__(self) -> None:
        for key in ("of", "offsets", "sources"):
            array = np.array(getattr(self, key), np.int64)
            array.flags.writeable = False
            object.__setattr__(self, key, array)

    def check(self, name: str, ops: int) -> None:
        """Raise InputError unless there is a signature, or none, for each op of a graph, and a source for each read."""
        counts = np.array([len(signature.reads) for signature in self.distinct], np.int64)
        if len(self.of) != ops or len(self.offsets) != ops + 1:
            raise InputError(f"graph {name!r}: signatures have {len(self.of)} entries for {ops} ops")
        if self.of.min(initial=0) < -1 or self.of.max(initial=-1) >= len(counts):
            raise InputError(f"graph {name!r}: an op has a signature that does not exist; there are {len(counts)}")
        reads = np.append(counts, 0)[self.of]
        if not np.array_equal(self.offsets, np.append(0, np.cumsum(reads))) or len(self.sources) != reads.sum():
            raise InputError(f"graph {name!r}: the ops' signatures read {reads.sum()} tensors, of other sources")
        if self.sources.max(initial=-1) >= ops:
            raise InputError(f"graph {name!r}: an op reads from op {self.sources.max()}; there are {ops}")

    def signature(self, op: int) -> Signature | None:
        """The signature of an op, if it is known."""
        return None if self.of[op] < 0 else self.distinct[self.of[op]]

    def numbers(self, op: int) -> list[int]:
        """The sources of what an op reads, one per read of its signature, as `sources` numbers them."""
        found: list[int] = self.sources[self.offsets[op] : self.offsets[op + 1]].tolist()
        return found

    def extended(self, ops: int) -> Signatures:
        """The same with that many further ops, whose signatures are not known."""
        last = np.full(ops, self.offsets[-1])
        return replace(self, of=np.append(self.of, np.full(ops, -1)), offsets=np.append(self.offsets, last))

    def kept(self, ops: Numbers, weights: int) -> Signatures:
        """Those of some ops, in their order; what they read from others becomes an input."""
        position = {int(op): i for i, op in enumerate(ops)}
        inputs = weights + max(-1 - int(self.sources.min(initial=0)) - weights + 1, 0)
        further: dict[int, int] = {}
        sources, lengths = list[int](), list[int]()
        for op in ops.tolist():
            numbers = self.numbers(op)
            lengths.append(len(numbers))
            for source in numbers:
                if source >= 0 and source not in position:
                    further.setdefault(source, -1 - inputs - len(further))
                sources.append(position.get(source, further.get(source, source)))
        offsets = np.append(0, np.cumsum(np.array(lengths, np.int64)))
        return replace(self, of=self.of[ops], offsets=offsets, sources=np.array(sources, np.int64))


def origin(number: int, weights: int) -> Origin:
    """What a number among `Signatures.sources` means in a graph of that many weights."""
    if number >= 0:
        return Origin("op", number)
    return Origin("weight", -1 - number) if -1 - number < weights else Origin("input", -1 - number - weights)


def numbered(origin: Origin, weights: int) -> int:
    """The number that stands for a source."""
    return {"op": origin.number, "weight": -1 - origin.number, "input": -1 - weights - origin.number}[origin.kind]


def read_positions(arguments: Any) -> Iterator[int]:
    """The numbers of the tensors among arguments, in their order."""
    if isinstance(arguments, dict):
        if READ in arguments:
            yield arguments[READ]
        else:
            for each in arguments.values():
                yield from read_positions(each)
    elif isinstance(arguments, (tuple, list)):
        for each in arguments:
            yield from read_positions(each)
