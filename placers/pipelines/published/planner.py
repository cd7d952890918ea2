"""DAPPLE's planner (Fan et al. 2021, section 4.2): stages, their devices and replicas with the least estimated step.

A state is a number of layers that stages have so far, and a set of devices that these use; the rest of the layers is
one last stage on all other devices. It keeps the stages with the least estimate, and is extended by splitting the last
stage: the next layers go to some devices, chosen by the policies. Data parallelism is the state without a layer.
What is kept for a state need not be what the best pipeline begins with, so this is a heuristic, as published.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from envs.simulation.compiled import compiled, inlined, subroutine
from graphs.op_graph import Floats, Ints
from placers.pipelines.published.device_policies import DeviceSets
from placers.pipelines.published.latency import latency
from placers.pipelines.published.pipeline import (
    Chain,
    Entries,
    Pipeline,
    Stage,
    estimate,
    fill_sending,
    fill_stage,
    overflow_of,
)
from placers.pipelines.published.servers import ServerLinks


@dataclass(frozen=True)
class Equations:
    """What a planner goes by."""

    micro_batches: int = 1
    """Of every pipeline; or 0, and each takes as many as its replicas leave of `parts`."""
    parts: int = 0
    """Of the batch, one of which a replica computes at a time, in the mean over stages."""
    stages: int = 0
    """The most that a pipeline may have; 0 for as many as there are devices."""
    recompute: bool = False
    corrected: bool = False  # at the pivot
    shared: int = 0
    """Samples of a micro-batch, which the replicas of every stage divide if they can; 0: any number will do."""


class _BestStages(NamedTuple):
    """Of each state, (sets, layers), the best stages so far."""

    overflow: Floats
    seconds: Floats  # infinite if there is none
    before: Ints  # the layers of the state that it extends
    move: Ints  # how
    stages: Ints  # how many there are


class _Moves(NamedTuple):
    """`DeviceSets` for compiled code, and the devices that each leaves."""

    offsets: Ints
    given: Ints
    to: Ints
    rest: Ints  # (moves, servers)
    from_set: Ints  # (moves,)


class _Scratch(NamedTuple):
    """Buffers."""

    entries: Entries
    moves: Ints  # (stages,) by which a state was reached
    bounds: Ints  # (stages + 1,)


def planned(given: Chain, links: ServerLinks, moves: DeviceSets, by: Equations) -> tuple[Pipeline, int]:
    """The best pipeline that was found, and how many were estimated. One that fits the memory is better than others."""
    sets, layers, most = len(moves), len(given.sent), int(moves.devices.sum())
    table = (sets, layers)
    found = _BestStages(
        np.full(table, np.inf), np.full(table, np.inf), np.zeros(table, np.int64), np.full(table, -1),
        np.zeros(table, np.int64),
    )  # fmt: skip
    from_set = np.repeat(np.arange(sets), np.diff(moves.offsets))
    flat = _Moves(moves.offsets, moves.given, moves.to, moves.devices - moves.used[moves.to], from_set)
    stages = min(by.stages or most, most, layers)
    scratch = _Scratch(Entries.empty(stages + 1), np.zeros(stages + 1, np.int64), np.zeros(stages + 2, np.int64))
    estimated = _search(
        given,
        links,
        flat,
        moves.devices,
        by.micro_batches,
        by.parts,
        stages,
        by.recompute,
        by.corrected,
        by.shared,
        found,
        scratch,
    )
    left = most - moves.used.sum(axis=1)  # replicas of the last stage of each state
    seconds = np.where((by.shared % left == 0)[:, None], found.seconds, np.inf)
    if not np.isfinite(seconds).any():
        seconds = found.seconds
    least = np.lexsort((seconds.ravel(), np.where(np.isfinite(seconds), found.overflow, np.inf).ravel()))[0]
    at, first = (int(index) for index in np.unravel_index(least, table))
    chosen = [Stage(first, layers, tuple((moves.devices - moves.used[at]).tolist()))]
    while first:
        move, before = int(found.move[at, first]), int(found.before[at, first])
        chosen.append(Stage(before, first, tuple(moves.given[move].tolist())))
        at, first = int(from_set[move]), before
    micro_batches = _micro_batches(by.micro_batches, by.parts, len(chosen), most)
    best = estimate(given, links, tuple(chosen[::-1]), micro_batches, recompute=by.recompute, corrected=by.corrected)
    return best, estimated


@subroutine
def _micro_batches(given: int, parts: int, stages: int, devices: int) -> int:
    """How many a pipeline of `stages` stages has."""
    return given if given else max(parts * stages // devices, 1)


@inlined
def _count(devices: Ints) -> int:
    total = 0
    for server in range(len(devices)):
        total += devices[server]
    return total


@compiled
def _search(
    given: Chain, links: ServerLinks, moves: _Moves, devices: Ints, fixed: int, parts: int, most: int, recompute: bool,
    corrected: bool, shared: int, found: _BestStages, scratch: _Scratch,
) -> int:  # fmt: skip
    """Fill `found`; how many pipelines were estimated."""
    sets, layers = found.seconds.shape
    entries, estimated = scratch.entries, 1
    total = _count(devices)
    micro_batches = _micro_batches(fixed, parts, 1, total)
    fill_stage(given, links, 0, layers, devices, micro_batches, recompute, entries, 0)
    found.overflow[0, 0] = overflow_of(given, 1, micro_batches, recompute, entries)
    found.seconds[0, 0] = latency(entries.forward, entries.backward, entries.all_reduce, 1, micro_batches, corrected)
    # found[at, first]: the best stages on the devices of set `at`; the layers from `first` on are one more stage on
    # all other devices. That one is split: layers up to `end` go to new devices, the others to what is left.
    for first in range(layers - 1):
        for at in range(sets):
            if found.seconds[at, first] == np.inf or found.stages[at, first] + 2 > most:
                continue
            stages = _read_stages(at, first, moves, found, scratch)
            micro_batches = _micro_batches(fixed, parts, stages + 2, total)
            for move in range(moves.offsets[at], moves.offsets[at + 1]):
                new, rest, to = moves.given[move], moves.rest[move], moves.to[move]
                if shared % _count(new):
                    continue
                for stage in range(stages):  # those before do not change with `end`
                    begin, end, own = (
                        scratch.bounds[stage],
                        scratch.bounds[stage + 1],
                        moves.given[scratch.moves[stage]],
                    )
                    fill_stage(given, links, begin, end, own, micro_batches, recompute, entries, 2 * stage)
                    following = moves.given[scratch.moves[stage + 1]] if stage + 1 < stages else new
                    fill_sending(given, links, end, own, following, micro_batches, entries, 2 * stage + 1)
                last = 2 * stages
                for end in range(first + 1, layers):
                    fill_stage(given, links, first, end, new, micro_batches, recompute, entries, last)
                    fill_sending(given, links, end, new, rest, micro_batches, entries, last + 1)
                    fill_stage(given, links, end, layers, rest, micro_batches, recompute, entries, last + 2)
                    overflow = overflow_of(given, stages + 2, micro_batches, recompute, entries)
                    seconds = latency(
                        entries.forward, entries.backward, entries.all_reduce, last + 3, micro_batches, corrected
                    )
                    estimated += 1
                    if overflow < found.overflow[to, end] or (
                        overflow == found.overflow[to, end] and seconds < found.seconds[to, end]
                    ):
                        found.overflow[to, end], found.seconds[to, end] = overflow, seconds
                        found.before[to, end], found.move[to, end] = first, move
                        found.stages[to, end] = stages + 1
    return int(estimated)


@inlined
def _read_stages(at: int, first: int, moves: _Moves, found: _BestStages, scratch: _Scratch) -> int:
    """Write the stages by which a state was reached; how many there are."""
    stages = found.stages[at, first]
    scratch.bounds[stages] = first
    for stage in range(stages - 1, -1, -1):
        move = found.move[at, first]
        scratch.moves[stage] = move
        first = found.before[at, first]
        scratch.bounds[stage] = first
        at = moves.from_set[move]
    return int(stages)
