"""Layout: how a tensor lies in the buffer that carries it from one process to another.

A received tensor has the strides that the captured graph says: views of it must be possible where they are in the
model. So the dimensions lie in the order of their strides, without gaps, and an expanded one is sent once.

    captured      shape (4, 2, 8), strides (16, 8, 1) of a part of (4, 6, 8)    -> strides (16, 8, 1) without the gaps
                  shape (4, 2, 8), strides (8, 32, 1), transposed               -> the same strides
                  shape (4, 2, 8), strides (0, 8, 1), expanded                  -> (1, 2, 8) is sent
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

ALIGNMENT = 16  # bytes; of each tensor in a buffer of several


@dataclass(frozen=True)
class TensorLayout:
    """A tensor as it is sent."""

    shape: tuple[int, ...]  # of the tensor
    sent: tuple[int, ...]  # of what is sent of it: 1 where it is expanded
    strides: tuple[int, ...]  # of what is sent
    dtype: torch.dtype

    @classmethod
    def of_value(cls, like: Tensor) -> TensorLayout:
        """Of a tensor like the given one, which may have no data."""
        shape = tuple(like.shape)
        sent = tuple(size if stride else min(size, 1) for size, stride in zip(shape, like.stride(), strict=True))
        return cls(shape, sent, _dense(sent, like.stride()), like.dtype)

    @classmethod
    def of_gradient(cls, like: Tensor) -> TensorLayout:
        """Of the gradient of such a tensor, which is never expanded."""
        return cls(tuple(like.shape), tuple(like.shape), _dense(tuple(like.shape), like.stride()), like.dtype)

    @cached_property
    def elements(self) -> int:
        """How many numbers are sent."""
        return math.prod(self.sent)

    @property
    def size(self) -> int:
        """Bytes that are sent."""
        return self.elements * self.dtype.itemsize

    def flat(self, tensor: Tensor) -> Tensor:
        """What is sent of a tensor, (elements,): in its own memory, if it lies there so, or else a copy."""
        tensor = tensor.detach()
        if self.sent != self.shape:
            for dimension, (size, whole) in enumerate(zip(self.sent, self.shape, strict=True)):
                tensor = tensor if size == whole else tensor.narrow(dimension, 0, size)
        if tensor.stride() != self.strides:
            tensor = torch.empty_strided(self.sent, self.strides, dtype=self.dtype, device=tensor.device).copy_(tensor)
        return tensor.as_strided((self.elements,), (1,))

    def tensor(self, flat: Tensor) -> Tensor:
        """The tensor that has been sent, (elements,), in the same memory."""
        made = flat.as_strided(self.sent, self.strides)
        return made if self.sent == self.shape else made.expand(self.shape)


def _dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in the same order, without gaps."""
    inward = sorted(range(len(shape)), key=lambda dimension: (strides[dimension], -dimension))
    found, step = [0] * len(shape), 1
    for dimension in inward:
        found[dimension] = step
        step *= max(shape[dimension], 1)
    return tuple(found)


@dataclass(frozen=True)
class Packed:
    """Several tensors in one buffer; one alone is sent as it lies in memory."""

    layouts: tuple[TensorLayout, ...]

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where each begins, in bytes, and the end of all."""
        offsets = [0]
        for layout in self.layouts:
            offsets.append(offsets[-1] + -(-layout.size // ALIGNMENT) * ALIGNMENT)
        return tuple(offsets)

    @property
    def size(self) -> int:
        """Bytes that are sent."""
        return self.layouts[0].size if len(self.layouts) == 1 else self.offsets[-1]

    def buffer(self, device: torch.device) -> Tensor:
        """Room for them."""
        if len(self.layouts) == 1:
            return torch.empty(self.layouts[0].elements, dtype=self.layouts[0].dtype, device=device)
        return torch.empty(self.offsets[-1], dtype=torch.uint8, device=device)

    def packed(self, tensors: list[Tensor]) -> Tensor:
        """The tensors in one buffer."""
        if len(tensors) == 1:
            return self.layouts[0].flat(tensors[0])
        buffer = self.buffer(tensors[0].device)
        for layout, tensor, part in zip(self.layouts, tensors, self._parts(buffer), strict=True):
            part.copy_(layout.flat(tensor))
        return buffer

    def unpacked(self, buffer: Tensor) -> list[Tensor]:
        """The tensors that lie in a buffer."""
        if len(self.layouts) == 1:
            return [self.layouts[0].tensor(buffer)]
        return [layout.tensor(part) for layout, part in zip(self.layouts, self._parts(buffer), strict=True)]

    def _parts(self, buffer: Tensor) -> list[Tensor]:
        return [
            buffer[start : start + layout.size].view(layout.dtype)
            for layout, start in zip(self.layouts, self.offsets, strict=False)
        ]
