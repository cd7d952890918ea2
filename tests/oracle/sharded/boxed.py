"""Boxed: parts of tensors, each with the box that it is, joined and added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from graphs.notation.ranges import Box, elements, intersection, shape_of


class Boxed(NamedTuple):
    """The part of a tensor that a box is."""

    box: Box
    values: Tensor  # as large as the box

    def cut(self, box: Box) -> Boxed:
        """A smaller part, of what is here of a box."""
        own = intersection(self.box, box)
        return Boxed(own, self.values[slices(own, self.box)])

    def replaced(self, part: Boxed) -> Boxed:
        """The same with other values in a part of it."""
        values = self.values.clone()
        values[slices(part.box, self.box)] = part.values
        return Boxed(self.box, values)


def cut_out(tensor: Tensor, box: Box) -> Boxed:
    """A part of a whole tensor."""
    return Boxed(box, tensor[slices(box)])


def joined(parts: Sequence[Boxed], box: Box) -> Boxed | None:
    """A part of a tensor out of smaller ones; where these overlap they are the same. None if some of it is missing."""
    return _together(parts, box, add=False)


def added(parts: Sequence[Boxed], box: Box) -> Boxed | None:
    """The sum of parts within a box, each of which counts where it is; None if nothing is where some of the box is."""
    return _together(parts, box, add=True)


def _together(parts: Sequence[Boxed], box: Box, *, add: bool) -> Boxed | None:
    if not parts:
        return None
    found = torch.zeros(shape_of(box), dtype=parts[0].values.dtype)
    is_there = torch.zeros(found.shape, dtype=torch.bool)
    for part in parts:
        own = part.cut(box)
        if elements(own.box):
            where = slices(own.box, box)
            found[where] = found[where] + own.values if add else own.values
            is_there[where] = True
    return Boxed(box, found) if is_there.all() else None


def slices(box: Box, origin: Box | None = None) -> tuple[slice, ...]:
    """The index that cuts a box out of a whole tensor or, with `origin`, out of the part of it that this box holds."""
    starts = [0] * len(box) if origin is None else [each.low for each in origin]
    return tuple(slice(r.low - start, r.low - start + r.size) for r, start in zip(box, starts, strict=True))
