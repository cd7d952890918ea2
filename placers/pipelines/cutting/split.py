"""Split: a contracted graph divided into one contiguous part per device, with the least largest load.

A dynamic program over ideals (Tarnawski et al., NeurIPS 2020, section 5.1.1): the best load of an ideal with some
devices is the least over smaller ideals of the larger of two numbers, the best of the smaller one without one of the
devices, and the load of what lies between the two on that device. Devices that are alike are one kind, and only
their number counts. Parts whose work alone is more than a known split's load are skipped: that is our addition, and
makes tens of thousands of ideals a matter of seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from envs.simulation.compiled import compiled
from graphs.algorithms.pairs import row_offsets
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats, Ints
from placers.pipelines.cutting.contracted_graph import ContractedGraph
from placers.pipelines.cutting.ideals import Ideals, Masks, masks_of

MOST_STATES = 4096
SLACK = 1e-9  # relative: what the order of additions may change in a load
ROUNDING = 1e-12  # of all transfers together: what may be left of those that were added and subtracted again


@dataclass(frozen=True, eq=False)
class DeviceKinds:
    """Interchangeable devices are one kind. A state is how many devices of each kind are used, as one number.

    With two GPUs and one CPU, `strides` is (1, 3):

        state  0 1 2 3 4 5
        GPUs   0 1 2 0 1 2
        CPUs   0 0 0 1 1 1
    """

    members: tuple[tuple[int, ...], ...]  # (kinds,) devices
    seconds: Floats  # (nodes, kinds)
    net_seconds: Floats  # (nets, kinds)
    limits: Floats  # (kinds,) bytes

    @classmethod
    def of(cls, contracted: ContractedGraph, limits: Floats) -> DeviceKinds:
        """The kinds of a problem's devices; `limits` is (devices,) bytes."""
        seconds, net_seconds = contracted.seconds, contracted.net_seconds
        alike: dict[bytes, list[int]] = {}
        for device, limit in enumerate(limits):
            key = seconds[:, device].tobytes() + net_seconds[:, device].tobytes() + limit.tobytes()
            alike.setdefault(key, []).append(device)
        members = tuple(tuple(devices) for devices in alike.values())
        first = [devices[0] for devices in members]
        return cls(members, seconds[:, first], net_seconds[:, first], limits[first])

    @property
    def states(self) -> int:
        """How many states there are."""
        return math.prod(len(devices) + 1 for devices in self.members)

    @property
    def strides(self) -> Ints:
        """(kinds,) what one more device of a kind adds to a state."""
        return np.cumprod([1, *(len(devices) + 1 for devices in self.members)])[:-1].astype(np.int64)

    @property
    def usable(self) -> Bools:
        """(kinds, states) whether a state uses a device of each kind."""
        counts = np.array([[len(devices)] for devices in self.members], np.int64)
        used: Bools = np.arange(self.states) // self.strides[:, None] % (counts + 1) > 0
        return used


def best_within_memory(contracted: ContractedGraph, ideals: Ideals | None = None, *, placer: str) -> Ints:
    """(nodes,) the device of each in the best split that fits the memory, or if none does, in the best.

    Without ideals, of the splits along one order of the nodes. Raises InputError, naming the placer, for a cluster of
    too many kinds of devices.
    """
    cluster = contracted.problem.cluster
    kinds = DeviceKinds.of(contracted, cluster.memory_bytes)
    if kinds.states > MOST_STATES:
        raise InputError(
            f"cluster {cluster.name!r} has {len(kinds.members)} kinds of devices; {placer} looks at "
            f"every number of each, at most {MOST_STATES:,} combinations, not {kinds.states:,}: take another placer, "
            "such as annealing, or a cluster of fewer kinds"
        )
    for limits in (cluster.memory_bytes, np.full(len(cluster), np.inf)):
        best = best_split(contracted, Ideals.chain(contracted.order), limits)
        if ideals is not None:
            best = best_split(contracted, ideals, limits, np.inf if best is None else best[0]) or best
        if best is not None:
            return best[1]
    raise AssertionError("without limits there is always a split")


def best_split(
    contracted: ContractedGraph, ideals: Ideals, limits: Floats, at_most: float = np.inf
) -> tuple[float, Ints] | None:
    """The least largest load of splits between the given ideals, and (nodes,) the device of each.

    `limits` is (devices,) bytes, `at_most` the load of a split that is known, in seconds. None if no split keeps to
    both.
    """
    kinds = DeviceKinds.of(contracted, limits)
    rounding = ROUNDING * float(kinds.net_seconds.sum(axis=0).max(initial=0.0))
    program = _Program(contracted, ideals, kinds, at_most * (1 + SLACK) + rounding)
    least = float(program.best[-1, -1])
    return (least, program.backtracked()) if np.isfinite(least) else None


class _Given(NamedTuple):
    """What the kernels read; ideals, nodes, nets and kinds are counted from 0."""

    masks: Masks  # (ideals, words) the nodes of each ideal, 64 to a word
    offsets: Ints  # (ideals + 1,) where each ideal's steps down begin
    step_node: Ints  # (steps,) the node that a step takes out
    step_to: Ints  # (steps,) the ideal that is left
    seconds: Floats  # (nodes, kinds)
    held_bytes: Floats  # (nodes,)
    net_offsets: Ints  # (nodes + 1,) where each node's nets begin
    nets: Ints  # (entries,) the nets that a node is in
    net_masks: Masks  # (nets, words) the nodes of each net
    net_seconds: Floats  # (nets, kinds)
    limits: Floats  # (kinds,) bytes
    strides: Ints  # (kinds,) what one more device adds to a state
    usable: Bools  # (kinds, states)
    bound: float  # seconds; parts of more work are left out


class _Parts(NamedTuple):
    """What lies between one ideal and each smaller one. Rows of smaller ideals that are not in `found` are stale."""

    found: Ints  # (ideals,) the smaller ideals in the order in which they were found; the first is the ideal itself
    work: Floats  # (ideals, kinds) seconds of the part's nodes
    cut: Floats  # (ideals, kinds) seconds of the nets with nodes both in the part and outside
    memory: Floats  # (ideals,) bytes of the part's nodes
    visit: Ints  # (ideals,) the number of the latest search that found it
    nodes: Masks  # (words,) scratch: the nodes of one part


class _Program:
    """The dynamic program: `best` (ideals, states) is the least largest load, infinite where there is no split."""

    def __init__(self, contracted: ContractedGraph, ideals: Ideals, kinds: DeviceKinds, bound: float) -> None:
        nodes, count, self.kinds = len(contracted), len(ideals), kinds
        self.given = _Given(
            ideals.masks, ideals.offsets, ideals.step_node, ideals.step_to, np.array(kinds.seconds, order="C"),
            contracted.held_bytes,
            *_nets_of_nodes(contracted), masks_of([sum(1 << node for node in net) for net in contracted.nets], nodes),
            np.array(kinds.net_seconds, order="C"), kinds.limits, kinds.strides, kinds.usable, bound,
        )  # fmt: skip
        self.parts = _Parts(
            np.zeros(count, np.int64), np.zeros((count, len(kinds.members))), np.zeros((count, len(kinds.members))),
            np.zeros(count), np.zeros(count, np.int64), np.zeros(ideals.masks.shape[1], np.uint64),
        )  # fmt: skip
        self.best = np.full((count, kinds.states), np.inf)
        self.best[0] = 0.0
        self._searches = 0
        for ideal in range(1, count):  # smaller ones first
            _relax(ideal, self._measure(ideal), self.given, self.parts, self.best)

    def backtracked(self) -> Ints:
        """(nodes,) the device of each, along the choices that gave the last ideal's best load."""
        placement = np.zeros(len(self.given.held_bytes), np.int64)
        left = [list(devices)[::-1] for devices in self.kinds.members]
        ideal, state = len(self.best) - 1, self.kinds.states - 1
        while ideal:
            smaller, kind = self._choice(ideal, state)
            between = self.given.masks[ideal] & ~self.given.masks[smaller]
            bits = int.from_bytes(between.astype("<u8").tobytes(), "little")
            placement[[node for node in range(len(placement)) if bits >> node & 1]] = left[kind].pop()
            ideal, state = smaller, state - int(self.given.strides[kind])
        return placement

    def _measure(self, ideal: int) -> int:
        """Write the loads of all parts below an ideal; how many there are, counting the empty one, the first."""
        self._searches += 1
        return int(_search_down(ideal, self._searches, self.given, self.parts))

    def _choice(self, ideal: int, state: int) -> tuple[int, int]:
        """The smaller ideal and the kind of device whose part gives the best load of an ideal in a state."""
        given, parts = self.given, self.parts
        below = parts.found[: self._measure(ideal)]
        choices = []
        for kind, stride in enumerate(given.strides.tolist()):
            if given.usable[kind, state]:
                load = np.where(below == ideal, 0.0, parts.work[below, kind] + parts.cut[below, kind])
                load[(load > given.bound) | (parts.memory[below] > given.limits[kind])] = np.inf
                largest = np.maximum(self.best[below, state - stride], load)
                largest[0] = self.best[ideal, state - stride]
                choices.append((float(largest.min()), kind, int(below[largest.argmin()])))
        _, kind, smaller = min(choices)
        return smaller, kind


def _nets_of_nodes(contracted: ContractedGraph) -> tuple[Ints, Ints]:
    """Compressed rows (offsets (nodes + 1,), nets): the nets that each node has a part of."""
    pairs = sorted((node, net) for net, members in enumerate(contracted.nets) for node in members)
    of_node, nets = np.array(pairs, np.int64).reshape(-1, 2).T.copy()
    return row_offsets(of_node, len(contracted)), nets


@compiled
def _search_down(ideal: int, visit: int, given: _Given, parts: _Parts) -> int:
    """Write `parts` for an ideal, breadth first, as far down as some kind of device may take the part; how many.

        {} <- {a} <- {a, b} <- {a, b, c} <- {a, b, c, d}
              there    here                     ideal
                         |----- part of here ------|
                |---------- part of there ---------|

    A step down moves one node, b, from the smaller ideal into the part: the loads of `there` are those of `here` and
    what b adds. A net is cut from now on if b is its first node in the part, and no longer if b was its last outside.
    """
    words, kinds = given.masks.shape[1], given.seconds.shape[1]
    parts.work[ideal], parts.cut[ideal], parts.memory[ideal] = 0.0, 0.0, 0.0
    parts.found[0], parts.visit[ideal] = ideal, visit
    position, size = 0, 1
    while position < size:
        here = parts.found[position]
        position += 1
        may_grow = False
        for kind in range(kinds):
            may_grow |= parts.work[here, kind] <= given.bound and parts.memory[here] <= given.limits[kind]
        if not may_grow:
            continue
        for word in range(words):
            parts.nodes[word] = given.masks[ideal, word] & ~given.masks[here, word]
        for step in range(given.offsets[here], given.offsets[here + 1]):
            there, node = given.step_to[step], given.step_node[step]
            if parts.visit[there] == visit:
                continue  # another order of the same nodes led here
            parts.visit[there] = visit
            parts.found[size] = there
            size += 1
            parts.memory[there] = parts.memory[here] + given.held_bytes[node]
            for kind in range(kinds):
                parts.work[there, kind] = parts.work[here, kind] + given.seconds[node, kind]
                parts.cut[there, kind] = parts.cut[here, kind]
            own_word, own_bit = node // 64, np.uint64(1) << np.uint64(node % 64)
            for at in range(given.net_offsets[node], given.net_offsets[node + 1]):
                net = given.nets[at]
                inside, outside = False, False  # whether nodes of it are in the part before, and not in that after
                for word in range(words):
                    before = parts.nodes[word]
                    inside |= (given.net_masks[net, word] & before) != 0
                    after = before | own_bit if word == own_word else before
                    outside |= (given.net_masks[net, word] & ~after) != 0
                if inside != outside:  # cut before or after, not both
                    for kind in range(kinds):
                        parts.cut[there, kind] += (
                            given.net_seconds[net, kind] if outside else -given.net_seconds[net, kind]
                        )
    return size


@compiled
def _relax(ideal: int, size: int, given: _Given, parts: _Parts, best: Floats) -> None:
    """Fill `best[ideal]`, (states,): the last part is one of the `size` parts below, or a device stays empty."""
    states, kinds = best.shape[1], len(given.strides)
    for position in range(1, size):
        smaller = parts.found[position]
        for kind in range(kinds):
            load = parts.work[smaller, kind] + parts.cut[smaller, kind]
            if load <= given.bound and parts.memory[smaller] <= given.limits[kind]:
                for state in range(states):
                    if given.usable[kind, state]:
                        largest = max(best[smaller, state - given.strides[kind]], load)
                        best[ideal, state] = min(best[ideal, state], largest)
    for kind in range(kinds):
        for state in range(states):
            if given.usable[kind, state]:
                best[ideal, state] = min(best[ideal, state], best[ideal, state - given.strides[kind]])
