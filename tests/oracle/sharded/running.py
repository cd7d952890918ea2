"""Running: the parts of a divided op, each on its slices alone, in PyTorch.

    shards = cut_out(signature, operator, spaces, tensors)     one part of the iteration space each
    outputs = run(shards)                                      slices of the result, or partial sums

Autograd goes through all of it, so the gradients of the slices are what the parts of a backward op make.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphs.descriptions.factored import FactoredOp
from graphs.foundation.errors import InputError
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.notation.operator import Operator, Space
from graphs.notation.ranges import Range, shape_of, whole
from graphs.notation.shard import Shard, filled_in
from graphs.notation.signatures import Read, Signature
from graphs.operators import description_of
from tests.oracle.sharded.boxed import slices


def whole_output(signature: Signature, tensors: Sequence[Tensor]) -> Tensor:
    """What the op makes of whole tensors."""
    return Shard(signature, Operator({}, (), ()), {}, tensors, (), {}).call()


def as_read(read: Read, tensor: Tensor) -> Tensor:
    """A whole tensor at a source as an op reads it, through views."""
    looked: Any = tensor
    for view in read.views:
        if view.function == "getitem":
            looked = looked[view.arguments[0]] if isinstance(looked, (tuple, list)) else looked
        elif view.function in ("aten.view", "aten._unsafe_view"):
            looked = looked.reshape(view.shape)  # here the tensor may lie in memory in another order
        else:
            packet = getattr(torch.ops.aten, view.function.split(".")[1])
            looked = packet(looked, *(filled_in(each, ()) for each in view.arguments))
    result: Tensor = looked
    return result


def cut_out(
    signature: Signature, operator: Operator, spaces: Sequence[Space], tensors: Sequence[Sequence[Tensor]]
) -> list[Shard]:
    """The parts of an op that have these parts of the iteration space, and the slices that each of them needs."""
    shards = []
    for space, own in zip(spaces, tensors, strict=True):
        adds = [all(space[name].low == 0 for name in access.apart) for access in operator.reads]
        shards.append(_shard(signature, operator, space, own, adds, {name: (each,) for name, each in space.items()}))
    return shards


def cut_out_factored(op: FactoredOp, spaces: Sequence[Space], tensors: Sequence[Sequence[Tensor]]) -> list[Shard]:
    """The same for an op of a graph; the slices are of tensors whose dimensions are factors."""
    shards = []
    for space, own in zip(spaces, tensors, strict=True):
        ranges = {name: tuple(space[new] for new in parts) for name, parts in op.names.items()}
        # Several factors are counted through by one variable; which indices they are of no longer shows.
        plain = {
            name: parts[0] if len(parts) == 1 else Range(0, math.prod(part.size for part in parts) - 1)
            for name, parts in ranges.items()
        }
        read = [_arranged(op, k, space, part) for k, part in enumerate(own)]
        adds = [all(space[name].low == 0 for name in access.apart) for access in op.as_read]
        shards.append(_shard(op.signature, op.plain, plain, read, adds, ranges))
    return shards


def run_factored(op: FactoredOp, spaces: Sequence[Space], tensors: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """(spaces,) what the parts of an op make of slices of the tensors at its sources, by factors."""
    made = run(cut_out_factored(op, spaces, tensors))
    boxes = [op.operator.writes[0].region(space) for space in spaces]
    return [each.reshape(shape_of(box)) for each, box in zip(made, boxes, strict=True)]


def _shard(
    signature: Signature, operator: Operator, space: Space, tensors: Sequence[Tensor], adds: Sequence[bool],
    ranges: Mapping[str, tuple[Range, ...]],
) -> Shard:  # fmt: skip
    boxes = [access.region(space) for access in operator.reads]
    bare = Shard(signature, operator, space, tensors, boxes, ranges)
    # In place of what another part adds there are zeros; the gradient is what it is for that part.
    filled = [bare.filled(k, each) if adds[k] else each - each.detach() for k, each in enumerate(tensors)]
    return replace(bare, tensors=filled)


def _arranged(op: FactoredOp, read: int, space: Space, part: Tensor) -> Tensor:
    """A slice of the tensor at a source as the op reads it."""
    origins = list(op.origins[read])
    for regroup in op.regroups[read]:
        part, origins = _without_fixed(part, origins)
        others = [i for i, origin in enumerate(origins) if origin not in regroup.before]
        kept = [part.shape[i] for i in others]
        part = part.permute(*others, *(origins.index(origin) for origin in regroup.before))
        part = part.reshape(*kept, *regroup.sizes)
        needed = [
            Range(0, size - 1) if at is None else at.range(space).within(Range(0, size - 1))
            for size, (_, at) in zip(regroup.sizes, regroup.after, strict=True)
        ]
        part = part[slices((*whole(kept), *needed))]
        origins = [origins[i] for i in others] + [origin for origin, _ in regroup.after]
    part, origins = _without_fixed(part, origins)
    shape = shape_of(op.as_read[read].region(space))
    present = [i for i in range(len(shape)) if i in origins]
    part = part.permute([origins.index(i) for i in present])
    for i in range(len(shape)):
        part = part if i in origins else part.unsqueeze(i)
    part, merged, first = part.expand(shape), list[int](), 0
    for count in op.factors[read]:
        merged.append(math.prod(shape[first : first + count]))
        first += count
    return part.reshape(merged)


def _without_fixed(part: Tensor, origins: list[int | None]) -> tuple[Tensor, list[int | None]]:
    """Dimensions of which one index alone is read are left out."""
    fixed = [i for i, origin in enumerate(origins) if origin is None]
    return part.squeeze(fixed) if fixed else part, [origin for origin in origins if origin is not None]


def parts_of(operator: Operator, space: Space, tensors: Sequence[Tensor]) -> list[Tensor]:
    """(reads,) the slices of whole tensors that a part of an op needs."""
    return [tensor[slices(access.region(space))] for access, tensor in zip(operator.reads, tensors, strict=True)]


def run(shards: Sequence[Shard]) -> list[Tensor]:
    """(shards,) what each part makes. Raises InputError for an op of a kind that is not described."""
    limit_torch_threads()
    description = description_of(shards[0].signature.function)
    if description is None:
        raise InputError(f"{shards[0].signature.function!r} is not described in index notation")
    if description.together is not None:
        return description.together(shards)
    return [description.run(shard) if description.run else shard.call() for shard in shards]
