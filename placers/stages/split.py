"""Split: pieces divided into one contiguous part per device such that the largest load is least.

A dynamic program over ideals (Tarnawski et al., NeurIPS 2020, section 5.1.1): the best load of an ideal with some
devices is the least over smaller ideals of the larger of two numbers, the best of the smaller one without one of the
devices, and the load of what lies between the two on that device. Devices that are alike are one kind, and only
their number counts. Parts whose work alone is more than a known split's load are not looked at: that is our addition,
and what makes tens of thousands of ideals a matter of seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from envs.simulation.compiled import compiled
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats, Ints
from placers.stages.ideals import Ideals, Masks, masks_of
from placers.stages.pieces import Pieces

MOST_STATES = 4096
SLACK = 1e-9  # relative: what the order of additions may change in a load
ROUNDING = 1e-12  # of all transfers together: what may be left of those that were added and taken away again


@dataclass(frozen=True, eq=False)
class Kinds:
    """Devices of which it does not matter which is taken."""

    members: tuple[tuple[int, ...], ...]  # (kinds,) devices
    seconds: Floats  # (pieces, kinds)
    net_seconds: Floats  # (nets, kinds)
    limits: Floats  # (kinds,) bytes

    @classmethod
    def of(cls, pieces: Pieces, limits: Floats) -> Kinds:
        """The kinds of a problem's devices; `limits` is (devices,) bytes."""
        alike: dict[bytes, list[int]] = {}
        for device, limit in enumerate(limits):
            key = pieces.seconds[:, device].tobytes() + pieces.net_seconds[:, device].tobytes() + limit.tobytes()
            alike.setdefault(key, []).append(device)
        members = tuple(tuple(devices) for devices in alike.values())
        first = [devices[0] for devices in members]
        return cls(members, pieces.seconds[:, first], pieces.net_seconds[:, first], limits[first])

    @property
    def strides(self) -> Ints:
        """(kinds,) what one more device of a kind adds to the number of a state: how many of each kind are used."""
        return np.cumprod([1, *(len(devices) + 1 for devices in self.members)])[:-1].astype(np.int64)

    @property
    def counts(self) -> Ints:
        """(kinds,) how many devices there are of each."""
        return np.array([len(devices) for devices in self.members], np.int64)

    @property
    def usable(self) -> Bools:
        """(kinds, states) whether a state uses a device of each kind."""
        used: Bools = np.arange(self.states) // self.strides[:, None] % (self.counts[:, None] + 1) > 0
        return used

    @property
    def states(self) -> int:
        """How many states there are."""
        return math.prod(len(devices) + 1 for devices in self.members)


def best_within_memory(pieces: Pieces, ideals: Ideals | None = None, *, placer: str) -> Ints:
    """(pieces,) the device of each in the best split that fits the memory, or if none does, in the best.

    Without ideals, of the splits along one order of the pieces. Raises InputError, naming the placer, for a cluster of
    too many kinds of devices.
    """
    memory = pieces.problem.cluster.memory_bytes
    kinds = Kinds.of(pieces, memory)
    if kinds.states > MOST_STATES:
        raise InputError(
            f"cluster {pieces.problem.cluster.name!r} has {len(kinds.members)} kinds of devices; {placer} looks at "
            f"every number of each, at most {MOST_STATES:,} combinations, not {kinds.states:,}: take another placer, "
            "such as annealing, or a cluster of fewer kinds"
        )
    for limits in (memory, np.full(len(memory), np.inf)):
        best = best_split(pieces, Ideals.chain(pieces.order), limits)
        if ideals is not None:
            best = best_split(pieces, ideals, limits, np.inf if best is None else best[0]) or best
        if best is not None:
            return best[1]
    raise AssertionError("without limits there is always a split")


def best_split(pieces: Pieces, ideals: Ideals, limits: Floats, at_most: float = np.inf) -> tuple[float, Ints] | None:
    """The least largest load of splits between the given ideals, and (pieces,) the device of each.

    `limits` is (devices,) bytes, `at_most` the load of a split that is known, in seconds. None if no split keeps to
    both.
    """
    kinds = Kinds.of(pieces, limits)
    rounding = ROUNDING * float(kinds.net_seconds.sum(axis=0).max(initial=0.0))
    parts = _Parts(pieces, ideals, kinds, at_most * (1 + SLACK) + rounding)
    best = np.full((len(ideals), kinds.states), np.inf)
    best[0] = 0.0
    usable = kinds.usable
    for ideal in range(1, len(ideals)):
        size = parts.below(ideal)
        _relax(ideal, size, best, kinds.strides, usable, kinds.limits, *parts.loads, parts.bound)
    return (float(best[-1, -1]), parts.backtracked(best)) if np.isfinite(best[-1, -1]) else None


class _Parts:
    """What lies between an ideal and each smaller one, and its load: work, transfers, memory."""

    def __init__(self, pieces: Pieces, ideals: Ideals, kinds: Kinds, bound: float) -> None:
        self.pieces, self.ideals, self.kinds, self.bound = pieces, ideals, kinds, bound
        count = len(ideals)
        work, cut = np.zeros((count, len(kinds.members))), np.zeros((count, len(kinds.members)))
        self._walks = 0
        self.loads = (np.zeros(count, np.int64), work, cut, np.zeros(count))
        self._arrays = (
            ideals.masks, ideals.offsets, ideals.step_piece, ideals.step_to, *_nets_of_pieces(pieces),
            _net_masks(pieces), kinds.seconds, kinds.net_seconds, pieces.held_bytes, kinds.limits, *self.loads,
            np.zeros(count, np.int64), np.zeros(ideals.masks.shape[1], np.uint64), bound,
        )  # fmt: skip

    def below(self, ideal: int) -> int:
        """Write the loads of all parts below an ideal; how many there are, counting the empty one, the first."""
        self._walks += 1
        return int(_grow(ideal, self._walks, *self._arrays))

    def backtracked(self, best: Floats) -> Ints:
        """(pieces,) the device of each, along the choices that gave the last ideal's best load."""
        placement = np.zeros(len(self.pieces), np.int64)
        left = [list(devices)[::-1] for devices in self.kinds.members]
        ideal, state = len(self.ideals) - 1, self.kinds.states - 1
        while ideal:
            smaller, kind = self._choice(ideal, state, best)
            device = left[kind].pop()
            placement[self._between(smaller, ideal)] = device
            ideal, state = smaller, state - int(self.kinds.strides[kind])
        return placement

    def _choice(self, ideal: int, state: int, best: Floats) -> tuple[int, int]:
        """The smaller ideal and the kind of device whose part gives the best load of an ideal with so many devices."""
        found, work, cut, memory = self.loads
        below = found[: self.below(ideal)]
        choices = []
        for kind, stride in enumerate(self.kinds.strides.tolist()):
            if self.kinds.usable[kind, state]:
                load = np.where(below == ideal, 0.0, work[below, kind] + cut[below, kind])
                load[(load > self.bound) | (memory[below] > self.kinds.limits[kind])] = np.inf
                largest = np.maximum(best[below, state - stride], load)
                largest[0] = best[ideal, state - stride]
                choices.append((float(largest.min()), kind, int(below[largest.argmin()])))
        _, kind, smaller = min(choices)
        return smaller, kind

    def _between(self, smaller: int, larger: int) -> list[int]:
        masks = self.ideals.masks[larger] & ~self.ideals.masks[smaller]
        bits = int.from_bytes(masks.astype("<u8").tobytes(), "little")
        return [piece for piece in range(len(self.pieces)) if bits >> piece & 1]


def _nets_of_pieces(pieces: Pieces) -> tuple[Ints, Ints]:
    """Compressed rows (offsets (pieces + 1,), nets): the nets that each piece has a part of."""
    of_piece: list[list[int]] = [[] for _ in range(len(pieces))]
    for net, members in enumerate(pieces.nets):
        for piece in members:
            of_piece[piece].append(net)
    offsets = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(nets) for nets in of_piece], out=offsets[1:])
    return offsets, np.array([net for nets in of_piece for net in nets], np.int64)


def _net_masks(pieces: Pieces) -> Masks:
    return masks_of([sum(1 << piece for piece in net) for net in pieces.nets], len(pieces))


@compiled
def _grow(
    ideal: int, walk: int, masks: Masks, offsets: Ints, step_piece: Ints, step_to: Ints, net_offsets: Ints, nets: Ints,
    net_masks: Masks, seconds: Floats, net_seconds: Floats, held: Floats, limits: Floats, found: Ints, work: Floats,
    cut: Floats, memory: Floats, stamp: Ints, part: Masks, bound: float,
) -> int:  # fmt: skip
    """Walk down from an ideal, a piece at a time, for as long as some kind of device may take what was left behind."""
    words, kinds = masks.shape[1], seconds.shape[1]
    work[ideal], cut[ideal], memory[ideal] = 0.0, 0.0, 0.0
    found[0], stamp[ideal] = ideal, walk
    position, size = 0, 1
    while position < size:
        here = found[position]
        position += 1
        goes_on = False
        for kind in range(kinds):
            goes_on |= work[here, kind] <= bound and memory[here] <= limits[kind]
        if not goes_on:
            continue
        for word in range(words):
            part[word] = masks[ideal, word] & ~masks[here, word]
        for step in range(offsets[here], offsets[here + 1]):
            there, piece = step_to[step], step_piece[step]
            if stamp[there] == walk:
                continue
            stamp[there] = walk
            found[size] = there
            size += 1
            memory[there] = memory[here] + held[piece]
            for kind in range(kinds):
                work[there, kind] = work[here, kind] + seconds[piece, kind]
                cut[there, kind] = cut[here, kind]
            own_word, own_bit = piece // 64, np.uint64(1) << np.uint64(piece % 64)
            for at in range(net_offsets[piece], net_offsets[piece + 1]):
                net = nets[at]
                inside, outside = False, False
                for word in range(words):
                    inside |= (net_masks[net, word] & part[word]) != 0
                    after = part[word] | own_bit if word == own_word else part[word]
                    outside |= (net_masks[net, word] & ~after) != 0
                if inside != outside:  # cut before or after, not both
                    for kind in range(kinds):
                        cut[there, kind] += net_seconds[net, kind] if outside else -net_seconds[net, kind]
    return size


@compiled
def _relax(
    ideal: int, size: int, best: Floats, strides: Ints, usable: Bools, limits: Floats, found: Ints, work: Floats,
    cut: Floats, memory: Floats, bound: float,
) -> None:  # fmt: skip
    """Fill `best[ideal]`, (states,), from the smaller ideals."""
    states = best.shape[1]
    for position in range(1, size):
        smaller = found[position]
        for kind in range(len(strides)):
            load = work[smaller, kind] + cut[smaller, kind]
            if load <= bound and memory[smaller] <= limits[kind]:
                for state in range(states):
                    if usable[kind, state]:
                        largest = max(best[smaller, state - strides[kind]], load)
                        best[ideal, state] = min(best[ideal, state], largest)
    for kind in range(len(strides)):  # a device may stay empty
        for state in range(states):
            if usable[kind, state]:
                best[ideal, state] = min(best[ideal, state], best[ideal, state - strides[kind]])
