"""What changes in the course of a run, from its first update to its last: rates, bonuses and weights, all linearly."""

from __future__ import annotations


def share_done(updates: int, all_updates: int) -> float:
    """How much of a run is over after a number of updates: 0 at the first, 1 at the last and beyond."""
    return min(updates / max(all_updates - 1, 1), 1.0)


def between(first: float, last: float, share: float) -> float:
    """The value of what goes from first to last when a share of the run is over."""
    return first + (last - first) * share
