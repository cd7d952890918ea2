"""Pairs of numbers, such as edges, in arrays (pairs, 2), and where numbers are in ascending arrays."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def distinct_pairs(pairs: Ints) -> tuple[Ints, Ints]:
    """(distinct, 2) each pair once, in ascending order, and (pairs,) which of these each pair is; numbers are >= 0.

    As `np.unique` of the rows, which takes ten times as long.
    """
    width = int(pairs[:, 1].max(initial=0)) + 1
    keys, which = np.unique(pairs[:, 0] * width + pairs[:, 1], return_inverse=True)
    return np.stack(np.divmod(keys, width), axis=1), which


def equal_pairs(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """(pairs,) and (pairs,) positions in two arrays where their numbers are equal: each one with each such other."""
    order = np.argsort(right, kind="stable")
    first, after = (np.searchsorted(right[order], left, side) for side in ("left", "right"))
    return np.repeat(np.arange(len(left)), after - first), order[ranges(first, after - first)]


def row_offsets(keys: Ints, rows: int) -> Ints:
    """(rows + 1,) where each row begins in an array sorted by its rows, (keys,); row k ends where k + 1 begins."""
    return np.searchsorted(keys, np.arange(rows + 1)).astype(np.int64)


def ranges(first: Ints, count: Ints) -> Ints:
    """The whole numbers from each first one on, (ranges,), as many as the count, (ranges,), says; one after another."""
    return np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - first, count)
