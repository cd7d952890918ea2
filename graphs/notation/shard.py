"""Shard: a part of an op, with the slices of tensors that it needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from graphs.notation.operator import Operator, Space
from graphs.notation.ranges import Box, Range
from graphs.notation.signatures import READ, Signature

_AS_GIVEN: Mapping[int, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Shard:
    """A part of an op, with what it needs."""

    signature: Signature
    operator: Operator
    space: Space  # the ranges of its variables
    tensors: Sequence[Tensor]  # (reads,) its slices, with what fills them outside of the tensor
    boxes: Sequence[Box]  # (reads,) what they are of, without what fills them
    ranges: Mapping[str, tuple[Range, ...]]  # of each variable those of its factors, which tell parts from each other

    def call(self, replaced: Mapping[int, Any] = _AS_GIVEN, tensors: Sequence[Tensor] | None = None) -> Tensor:
        """The op's operation on the slices, or on other tensors, with some arguments replaced, by position."""
        own = self.signature
        given = self.tensors if tensors is None else tensors
        arguments = list(own.arguments)
        arguments += [None] * (max(replaced, default=-1) + 1 - len(arguments))
        arguments = [replaced.get(i, filled_in(each, given)) for i, each in enumerate(arguments)]
        named = {key: filled_in(each, given) for key, each in own.named.items()}
        out = getattr(torch.ops.aten, own.function.split(".")[1])(*arguments, **named)
        chosen: Tensor = out if isinstance(out, Tensor) else out[own.output]
        return chosen

    def filled(self, read: int, part: Tensor) -> Tensor:
        """A slice of what is read, with what is read outside of the tensor around it."""
        access = self.operator.reads[read]
        if access.fill is None:
            return part
        around = list[int]()
        for reach, box in zip(access.reach(self.space)[::-1], self.boxes[read][::-1], strict=True):
            around += [max(box.low - reach.low, 0), max(reach.high - box.high, 0)]
        return F.pad(part, around, value=access.fill)


def filled_in(argument: Any, tensors: Sequence[Tensor]) -> Any:
    """An argument of a signature as PyTorch takes it."""
    if isinstance(argument, dict):
        return tensors[argument[READ]] if READ in argument else float(argument["float"])
    if isinstance(argument, (tuple, list)):
        return [filled_in(each, tensors) for each in argument]
    if isinstance(argument, str) and isinstance(getattr(torch, argument, None), torch.dtype):
        return getattr(torch, argument)
    return argument
