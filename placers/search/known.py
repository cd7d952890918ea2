"""Placements that a search has timed: it often proposes one again, above all where devices and units are few.

A table has one slot for all placements whose keys end alike, in which the latest of them is. A key is made of 64 random
bits for each unit and device (Zobrist 1970), so a move changes it by the units that it moved. That two placements of a
search have the same one is next to impossible. Each order that a search keeps has bits of its own: it comes to no order
twice, so they need not follow from its priorities.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.simulation.blueprint import Indices
from envs.simulation.compiled import inlined
from envs.simulation.simulator import Simulator
from graphs.op_graph import Bools, Floats
from graphs.problem import Problem
from placers.search.all_on_one import AllOnOne
from placers.search.moves import MoveTables

LAST_BITS = np.uint64(2**15 - 1)  # of a key, that say in which slot a placement is


class Known(NamedTuple):
    """What is known of placements. A search finds the same without it, but takes longer."""

    bits: NDArray[np.uint64]  # (units, devices)
    keys: NDArray[np.uint64]  # (slots,)
    seconds: Floats  # (slots,) of the placement, or what it takes more than
    exact: Bools  # (slots,) which of the two
    alone: AllOnOne

    @classmethod
    def of(cls, problem: Problem, simulator: Simulator | None = None) -> Known:
        """Nothing is known, but what a simulator says of placements on one device."""
        size = (len(problem.units), len(problem.cluster))
        bits = np.random.default_rng(0).integers(2**64, size=size, dtype=np.uint64)
        slots, alone = int(LAST_BITS) + 1, AllOnOne.of(problem, simulator)
        return cls(bits, np.zeros(slots, np.uint64), np.zeros(slots), np.zeros(slots, np.bool_), alone)


@inlined
def key_of(known: Known, placement: Indices) -> np.uint64:
    """The key of a placement, (units,)."""
    key = LAST_BITS
    for unit in range(len(placement)):
        key ^= known.bits[unit, placement[unit]]
    return key


@inlined
def key_after(known: Known, key: np.uint64, tables: MoveTables, placement: Indices, changed: int) -> np.uint64:
    """The key of a placement after a move of `changed` units, from the key before."""
    for i in range(changed):
        unit = tables.changed[i]
        key ^= known.bits[unit, tables.before[i]] ^ known.bits[unit, placement[unit]]
    return key


@inlined
def key_of_order(simulations: int) -> np.uint64:
    """The bits that an order adds to keys, kept after some simulations (splitmix64, Steele et al. 2014)."""
    key = np.uint64(simulations) * np.uint64(0x9E3779B97F4A7C15)
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))


@inlined
def decides(known: Known, key: np.uint64, limit: float) -> bool:
    """Whether it is known if a placement takes longer than a limit of seconds."""
    slot = key & LAST_BITS
    return bool(known.keys[slot] == key and (known.exact[slot] or known.seconds[slot] >= limit))


@inlined
def recalled(known: Known, key: np.uint64) -> float:
    """The seconds of a known placement; infinite if all that is known is that they are above a limit."""
    slot = key & LAST_BITS
    return float(known.seconds[slot]) if known.exact[slot] else np.inf


@inlined
def remember(known: Known, key: np.uint64, seconds: float, limit: float) -> None:
    """Note what a simulation has found: infinite seconds if it was given up at a limit."""
    slot = key & LAST_BITS
    known.keys[slot] = key
    known.exact[slot] = seconds < np.inf
    known.seconds[slot] = seconds if seconds < np.inf else limit
