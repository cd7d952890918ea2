"""Ideals: sets of pieces that hold all that their members wait for. What one has beyond a smaller one is contiguous."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphs.op_graph import Ints

Masks = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Ideals:
    """Ideals from the empty one to that of all pieces, smaller ones first, and the steps down from each."""

    masks: Masks  # (ideals, words) which pieces are in
    offsets: Ints  # (ideals + 1,) where each ideal's steps begin
    step_piece: Ints  # (steps,) a piece that nothing else in the ideal waits for
    step_to: Ints  # (steps,) the ideal without it

    def __len__(self) -> int:
        return len(self.masks)

    @classmethod
    def all(cls, pieces: int, edges: Ints, most: int) -> Ideals | None:
        """Every ideal of an acyclic graph, or None if there are more than so many."""
        needed, awaited_by = [0] * pieces, [[] for _ in range(pieces)]  # type: tuple[list[int], list[list[int]]]
        for before, after in edges.tolist():
            needed[after] |= 1 << before
            awaited_by[before].append(after)
        index = {0: 0}
        steps: list[list[tuple[int, int]]] = [[]]
        level = {0: [piece for piece in range(pieces) if not needed[piece]]}  # ideal -> the pieces that may be next
        while level:
            larger: dict[int, list[int]] = {}
            for ideal, ready in level.items():
                for piece in ready:
                    grown = ideal | 1 << piece
                    if grown not in larger:
                        if len(index) >= most:
                            return None
                        index[grown] = len(index)
                        steps.append([])
                        opened = [after for after in awaited_by[piece] if not needed[after] & ~grown]
                        larger[grown] = [*(other for other in ready if other != piece), *opened]
                    steps[index[grown]].append((piece, index[ideal]))
            level = larger
        return cls._of(list(index), steps, pieces)

    @classmethod
    def chain(cls, order: Sequence[int]) -> Ideals:
        """The beginnings of one order of the pieces."""
        ideals, steps = [0], [[]]  # type: tuple[list[int], list[list[tuple[int, int]]]]
        for position, piece in enumerate(order):
            ideals.append(ideals[-1] | 1 << piece)
            steps.append([(piece, position)])
        return cls._of(ideals, steps, len(order))

    @classmethod
    def _of(cls, ideals: list[int], steps: list[list[tuple[int, int]]], pieces: int) -> Ideals:
        offsets = np.zeros(len(ideals) + 1, np.int64)
        np.cumsum([len(down) for down in steps], out=offsets[1:])
        flat = np.array([step for down in steps for step in down], np.int64).reshape(-1, 2)
        return cls(masks_of(ideals, pieces), offsets, flat[:, 0].copy(), flat[:, 1].copy())


def masks_of(sets: Sequence[int], pieces: int) -> Masks:
    """(sets, words) sets of pieces, given as bits of a number, 64 to a word."""
    words = max(-(-pieces // 64), 1)
    raw = b"".join(number.to_bytes(8 * words, "little") for number in sets)
    return np.frombuffer(raw, np.dtype("<u8")).reshape(len(sets), words).astype(np.uint64)
