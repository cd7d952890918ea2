"""Ideals: sets of nodes that hold all that their members wait for. What one has beyond a smaller one is contiguous."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphs.op_graph import Ints

Masks = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Ideals:
    """Ideals from the empty one to that of all nodes, smaller ones first, and the steps down from each."""

    masks: Masks  # (ideals, words) which nodes are in
    offsets: Ints  # (ideals + 1,) where each ideal's steps begin
    step_node: Ints  # (steps,) a node that nothing else in the ideal waits for
    step_to: Ints  # (steps,) the ideal without it

    def __len__(self) -> int:
        return len(self.masks)

    @classmethod
    def all(cls, nodes: int, edges: Ints, most: int) -> Ideals | None:
        """Every ideal of an acyclic graph, or None if there are more than `most`."""
        needed, awaited_by = [0] * nodes, [[] for _ in range(nodes)]  # type: tuple[list[int], list[list[int]]]
        for before, after in edges.tolist():
            needed[after] |= 1 << before
            awaited_by[before].append(after)
        index = {0: 0}
        steps: list[list[tuple[int, int]]] = [[]]
        level = {0: [node for node in range(nodes) if not needed[node]]}  # ideal -> the nodes that may be next
        while level:
            larger: dict[int, list[int]] = {}
            for ideal, ready in level.items():
                for node in ready:
                    grown = ideal | 1 << node
                    if grown not in larger:
                        if len(index) >= most:
                            return None
                        index[grown] = len(index)
                        steps.append([])
                        opened = [after for after in awaited_by[node] if not needed[after] & ~grown]
                        larger[grown] = [*(other for other in ready if other != node), *opened]
                    steps[index[grown]].append((node, index[ideal]))
            level = larger
        return cls._of(list(index), steps, nodes)

    @classmethod
    def chain(cls, order: Sequence[int]) -> Ideals:
        """The beginnings of one order of the nodes."""
        ideals, steps = [0], [[]]  # type: tuple[list[int], list[list[tuple[int, int]]]]
        for position, node in enumerate(order):
            ideals.append(ideals[-1] | 1 << node)
            steps.append([(node, position)])
        return cls._of(ideals, steps, len(order))

    @classmethod
    def _of(cls, ideals: list[int], steps: list[list[tuple[int, int]]], nodes: int) -> Ideals:
        offsets = np.zeros(len(ideals) + 1, np.int64)
        np.cumsum([len(down) for down in steps], out=offsets[1:])
        flat = np.array([step for down in steps for step in down], np.int64).reshape(-1, 2)
        return cls(masks_of(ideals, nodes), offsets, flat[:, 0].copy(), flat[:, 1].copy())


def masks_of(sets: Sequence[int], nodes: int) -> Masks:
    """(sets, words) sets of nodes, given as bits of a number, 64 to a word."""
    words = max(-(-nodes // 64), 1)
    raw = b"".join(number.to_bytes(8 * words, "little") for number in sets)
    return np.frombuffer(raw, np.dtype("<u8")).reshape(len(sets), words).astype(np.uint64)
