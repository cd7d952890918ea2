"""Cuts: where a chain of layers is best cut into stages, for a sequence of sets of devices, by formula.

With S stages and M micro-batches a step takes about as long as a micro-batch needs through all stages and back, and
M - 1 times the slowest stage. So the cuts are those of least time for one micro-batch among those whose slowest stage
keeps to a bound, for several bounds, the first of which is the least that any cuts allow; each is a shortest path. The
best of these by an estimate of the step counts, after its cuts were moved where that helps. Stages keep to the memory
of their devices, with as many micro-batches in flight as 1F1B has there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from envs.plans.schedule import BUCKET_BYTES
from envs.simulation.compiled import compiled, inlined, subroutine
from graphs.op_graph import Bools, Floats, Ints
from placers.pipelines.stage_costs import StageCosts

ALL = 1 << 30  # layers that are computed again: those of the whole stage
NEEDED = -1  # as many as make the stage fit, or all if none do
NEARLY_FULL = 0.975  # of the memory, what stages are made to fit in by that: op by op they may take a little more; ours
BOUNDS = np.array([1.0, 1.04, 1.1, 1.2, 1.35, 1.6, 2.2, 1e9])  # on the slowest stage, over the least; ours


class StagePlaces(NamedTuple):
    """The sets of devices of the stages, one after the other, and what joins them; (stages,) each."""

    has_kind: Bools  # (stages, kinds) whether a kind of device is in the set
    share: Floats  # of a micro-batch, the most that a replica computes: all of it if replicas take turns
    of_kind: Floats  # (stages, kinds) of a micro-batch, that a replica of a kind computes
    rate: Floats  # micro-batches that replicas compute at a time: one unless they take turns
    limit: Floats  # bytes of the smallest device, for each stage that it has
    flying: Floats  # micro-batches in flight
    forward_latency: Floats  # seconds, from the stage before
    forward_per_byte: Floats  # seconds of a micro-batch
    forward_busy: Floats  # the same, of the busiest channel
    backward_latency: Floats  # seconds, to the stage before
    backward_per_byte: Floats
    backward_busy: Floats
    sum_latency: Floats  # of the all-reduce
    sum_per_byte: Floats
    again: Ints  # of the layers of the stage, the first ones that are computed again; or ALL, or NEEDED


class Scratch(NamedTuple):
    """Buffers, overwritten by every call."""

    best: Floats  # (stages + 1, layers + 1)
    begin: Ints  # (stages + 1, layers + 1)
    bounds: Ints  # (stages + 1,) the cuts of the moment
    found: Ints  # (stages + 1,) the best cuts
    again: Ints  # (stages,) the first layers of each that are computed again
    forward: Floats  # (stages,) seconds
    backward: Floats
    summing: Floats
    there: Floats  # from the stage before
    back: Floats
    sending: Floats  # one way, of the busiest channel
    filled: Floats  # of the memory that the stage may take

    @classmethod
    def room_for(cls, stages: int, layers: int) -> Scratch:
        """For at most `stages` stages, and `layers` layers."""
        table = stages + 1, layers + 1
        return cls(
            np.zeros(table), np.zeros(table, np.int64), np.zeros(stages + 1, np.int64), np.zeros(stages + 1, np.int64),
            np.zeros(stages, np.int64), *(np.zeros(stages) for _ in range(7)),
        )  # fmt: skip


@inlined
def _memory_with(
    costs: StageCosts, places: StagePlaces, stage: int, layers: tuple[int, int, int], micro_batches: int
) -> float:
    """Bytes on each device of a stage: of layers from one on, those before the second are computed again.

    Block by block, unless the whole stage is: then as one.
    """
    first, cut, end = layers
    share = places.share[stage] / micro_batches
    kept = costs.kept[end] - costs.kept[cut]
    if cut > first:
        kept += costs.entering[first, end]
        if cut < end:
            kept += costs.entering[cut, end]
    inside = costs.kept[cut] - costs.kept[first]  # of one micro-batch at a time
    if places.again[stage] != ALL and cut > first:
        kept += costs.borders[cut] - costs.borders[first + 1]
        inside = costs.inside[first, cut]
    return float(costs.held[end] - costs.held[first] + (kept * places.flying[stage] + inside) * share)


@inlined
def _again(costs: StageCosts, places: StagePlaces, stage: int, first: int, end: int, micro_batches: int) -> int:
    """How many of the first layers of a stage are computed again."""
    wanted = places.again[stage]
    if wanted != NEEDED:
        return int(min(wanted, end - first))
    least, most = 0, end - first
    while least < most:
        count = (least + most) // 2
        held = _memory_with(costs, places, stage, (first, first + count, end), micro_batches)
        if held <= NEARLY_FULL * places.limit[stage]:
            most = count
        else:
            least = count + 1
    return least


@inlined
def _memory(costs: StageCosts, places: StagePlaces, stage: int, first: int, end: int, micro_batches: int) -> float:
    """Bytes on each device of a stage."""
    cut = first + _again(costs, places, stage, first, end, micro_batches)
    return float(_memory_with(costs, places, stage, (first, cut, end), micro_batches))


@inlined
def _stage(
    costs: StageCosts, places: StagePlaces, stage: int, first: int, end: int, micro_batches: int
) -> tuple[float, float, float]:
    """Seconds of a stage forward and backward, the slowest of its replicas, and of its update with all-reduce."""
    forward, backward, update = 0.0, 0.0, 0.0
    kept = first + _again(costs, places, stage, first, end, micro_batches)  # the first layer that keeps what it makes
    for kind in range(places.has_kind.shape[1]):
        if places.has_kind[stage, kind]:
            share = places.of_kind[stage, kind] / micro_batches
            on = (costs.forward[kind, end] - costs.forward[kind, first]) * share
            on += costs.forward_fixed[kind, end] - costs.forward_fixed[kind, first]
            forward = max(forward, on)
            back = (costs.backward[kind, end] - costs.backward[kind, first]) * share
            back += costs.backward_fixed[kind, end] - costs.backward_fixed[kind, first]
            back += (costs.forward[kind, kept] - costs.forward[kind, first]) * share
            back += costs.forward_fixed[kind, kept] - costs.forward_fixed[kind, first]
            backward = max(backward, back)
            update = max(update, costs.update[kind, end] - costs.update[kind, first])
    summed = costs.weights[end] - costs.weights[first]
    if summed > 0:
        summing, buckets = (
            places.sum_latency[stage] + places.sum_per_byte[stage] * summed,
            np.ceil(summed / BUCKET_BYTES),
        )
        update += max(summing / buckets, summing - backward * (1 - 1 / buckets))  # while the others are made
    return forward, backward, update


@inlined
def _sending(
    costs: StageCosts, places: StagePlaces, stage: int, first: int, end: int, micro_batches: int
) -> tuple[float, float, float]:
    """Seconds of sending a micro-batch to a stage, and back; and the busier way's."""
    forward, backward, busy = 0.0, 0.0, 0.0
    sent, returned = costs.entering[first, end] / micro_batches, costs.leaving[first, end] / micro_batches
    if sent > 0:
        forward = places.forward_latency[stage] + places.forward_per_byte[stage] * sent
        busy = places.forward_latency[stage] + places.forward_busy[stage] * sent
    if returned > 0:
        backward = places.backward_latency[stage] + places.backward_per_byte[stage] * returned
        busy = max(busy, places.backward_latency[stage] + places.backward_busy[stage] * returned)
    return forward, backward, busy


@subroutine
def _path(
    costs: StageCosts, places: StagePlaces, micro_batches: int, bound: float, summed: float, scratch: Scratch
) -> float:
    """Write the best cuts; returns their value, infinite if there are none.

    Without a bound, infinite, the slowest stage is made fast, with a share `summed` of its update over the
    micro-batches. With it, the time of one micro-batch is. A bound below zero makes the fullest device least full.
    """
    stages, layers = len(places.share), costs.forward.shape[1] - 1
    best, begin = scratch.best, scratch.begin
    for stage in range(stages + 1):
        for end in range(layers + 1):
            best[stage, end] = np.inf
    best[0, 0] = 0.0
    # best[s, e]: the least value of s stages that hold the layers before e; each stage after has at least one layer.
    for stage in range(stages):
        for end in range(stage + 1, layers - (stages - stage - 1) + 1):
            least, chosen = np.inf, 0
            for first in range(end - 1, stage - 1, -1):  # the stage grows towards the first layer
                if best[stage, first] == np.inf:
                    continue
                filled = _memory(costs, places, stage, first, end, micro_batches) / places.limit[stage]
                if bound < 0:
                    value = max(best[stage, first], filled)
                elif filled > 1:
                    if places.again[stage]:
                        continue
                    break  # and still more so with more layers, as with what follows
                else:
                    forward, backward, update = _stage(costs, places, stage, first, end, micro_batches)
                    computing = (forward + backward) / places.rate[stage]
                    if computing > bound or (bound == np.inf and computing >= least):
                        if places.again[stage] == NEEDED:
                            continue  # with more layers, others may be computed again
                        break
                    there, back, sending = _sending(costs, places, stage, first, end, micro_batches)
                    slowest = max(computing + summed * update / micro_batches, sending)
                    if bound == np.inf:
                        value = max(best[stage, first], slowest)
                    elif slowest > bound:
                        continue
                    else:
                        value = best[stage, first] + forward + backward + there + back
                if value < least:
                    least, chosen = value, first
            best[stage + 1, end], begin[stage + 1, end] = least, chosen
    end = layers  # read back from the last stage to the first
    scratch.bounds[stages] = layers
    for stage in range(stages, 0, -1):
        end = begin[stage, end]
        scratch.bounds[stage - 1] = end
    return float(best[stages, layers])


@subroutine
def _estimate(costs: StageCosts, places: StagePlaces, cuts: Ints, micro_batches: int, scratch: Scratch) -> float:
    """Seconds of a step in the order 1F1B: about the least that any device, link or micro-batch allows.

    Stage q of those with K micro-batches in flight there waits for the first one to be sent through the stages before,
    U in all there and back. Those after it, with D there and back, it waits for twice: the first micro-batch comes back
    after K - 1 more forward passes at the earliest, and the last one at least D after its forward pass:

        U + M (F + B) + max(0, D - (K - 1) F)    and    U + M F + max(M - K, 0) B + D + B

    Replicas that take turns have M / R of the micro-batches each. A link takes what is sent one way M times. Sums of
    gradients follow the last backward pass of their stage.
    """
    stages, total, step = len(places.share), 0.0, 0.0
    for stage in range(stages):
        first, end = cuts[stage], cuts[stage + 1]
        forward, backward, update = _stage(costs, places, stage, first, end, micro_batches)
        there, back, sending = _sending(costs, places, stage, first, end, micro_batches)
        scratch.forward[stage], scratch.backward[stage], scratch.summing[stage] = forward, backward, update
        scratch.there[stage], scratch.back[stage], scratch.sending[stage] = there, back, sending
        total += forward + backward + there + back
    before = 0.0
    for stage in range(stages):
        forward, backward = scratch.forward[stage], scratch.backward[stage]
        step = max(step, total + (micro_batches - 1) * scratch.sending[stage])
        before += scratch.there[stage] + scratch.back[stage]
        count, flying = micro_batches / places.rate[stage], places.flying[stage]
        after = total - before - forward - backward
        busy = count * (forward + backward) + max(0.0, after - (flying - 1) * forward)
        late = count * forward + max(count - flying, 0.0) * backward + after + backward
        step = max(step, before + max(busy, late))
        before += forward + backward
    ended, last = step, 0.0
    for stage in range(stages):
        ended -= scratch.back[stage]
        last = max(last, ended + scratch.summing[stage])
        ended -= scratch.backward[stage]
    return last


@subroutine
def _fullest(costs: StageCosts, places: StagePlaces, cuts: Ints, micro_batches: int, scratch: Scratch) -> float:
    """How full the fullest device is; 1 is all of its memory."""
    full = 0.0
    for stage in range(len(places.share)):
        held = _memory(costs, places, stage, cuts[stage], cuts[stage + 1], micro_batches)
        scratch.filled[stage] = held / places.limit[stage]
        scratch.again[stage] = _again(costs, places, stage, cuts[stage], cuts[stage + 1], micro_batches)
        full = max(full, scratch.filled[stage])
    return full


@inlined
def _keep(scratch: Scratch, stages: int) -> None:
    """Keep the cuts of the moment."""
    for stage in range(stages + 1):
        scratch.found[stage] = scratch.bounds[stage]


@subroutine
def _polished(costs: StageCosts, places: StagePlaces, micro_batches: int, least: float, scratch: Scratch) -> float:
    """Move single cuts of those found as long as the estimate becomes less; returns it."""
    improving, found = True, scratch.found
    while improving:
        improving = False
        for place in range(1, len(places.share)):
            for by in (-3, -2, -1, 1, 2, 3):
                cut_before = found[place]
                if not found[place - 1] < cut_before + by < found[place + 1]:
                    continue
                found[place] = cut_before + by
                seconds = _estimate(costs, places, found, micro_batches, scratch)
                if seconds < least * (1 - 1e-9) and _fullest(costs, places, found, micro_batches, scratch) <= 1:
                    least, improving = seconds, True
                else:
                    found[place] = cut_before
    return least


@compiled
def _cut(
    costs: StageCosts, places: StagePlaces, micro_batches: int, thorough: bool, bounds: Floats, scratch: Scratch
) -> tuple[float, float]:
    """Write the best cuts to `scratch.found`, for `CutFormula.cut`."""
    stages, least = len(places.share), np.inf
    for summed in range(2 if thorough else 1):
        slowest = _path(costs, places, micro_batches, np.inf, 1.0 - summed, scratch)
        if slowest == np.inf:
            break
        for number in range(-1, len(bounds) if thorough and summed == 0 else 0):
            if number >= 0:
                bound = bounds[number] * slowest * (1 + 1e-9)
                if _path(costs, places, micro_batches, bound, 1.0 - summed, scratch) == np.inf:
                    continue
            seconds = _estimate(costs, places, scratch.bounds, micro_batches, scratch)
            if seconds < least:
                least = seconds
                _keep(scratch, stages)
    if least == np.inf:
        _path(costs, places, micro_batches, -1.0, 0.0, scratch)
        _keep(scratch, stages)
    elif thorough:
        least = _polished(costs, places, micro_batches, least, scratch)
    return least, _fullest(costs, places, scratch.found, micro_batches, scratch)


@compiled
def _estimated(
    costs: StageCosts, places: StagePlaces, cuts: Ints, micro_batches: int, scratch: Scratch
) -> tuple[float, float]:
    """The same of given cuts, (stages + 1,)."""
    return _estimate(costs, places, cuts, micro_batches, scratch), _fullest(costs, places, cuts, micro_batches, scratch)


class Cut(NamedTuple):
    """Cuts of a pipeline, and what a formula says of it."""

    ends: list[int]  # (stages + 1,) from 0 on
    again: list[int]  # (stages,) the first layers of each that are computed again
    seconds: float  # of a step
    full: float  # how full the fullest device is


class StageTimes(NamedTuple):
    """What each stage takes of a micro-batch, (stages,) seconds each."""

    forward: Floats
    backward: Floats
    there: Floats  # from the stage before
    back: Floats  # to the stage before
    summing: Floats  # once: of gradients, after the last backward pass, and of the update


class CutFormula:
    """What the formula says of pipelines of some layers. Its buffers grow with the pipelines that it is asked about."""

    def __init__(self, costs: StageCosts) -> None:
        self._costs, self._layers = costs, costs.forward.shape[1] - 1
        self._scratch = Scratch.room_for(0, self._layers)

    def cut(self, places: StagePlaces, micro_batches: int, *, thorough: bool) -> Cut:
        """The best cuts, and what a step takes with them.

        Infinite seconds if no cuts keep to the memory: then the cuts are those that come nearest to it.
        Raises ValueError for more stages than layers.
        """
        stages = len(places.share)
        if not 0 < stages <= self._layers:
            raise ValueError(f"{self._layers} layers cannot be cut into {stages} stages")
        scratch = self._room_for(stages)
        seconds, full = _cut(self._costs, places, micro_batches, thorough, BOUNDS, scratch)
        return Cut(scratch.found[: stages + 1].tolist(), scratch.again[:stages].tolist(), seconds, full)

    def estimated(self, places: StagePlaces, cuts: Ints, micro_batches: int) -> tuple[float, float]:
        """Both numbers of given cuts, (stages + 1,). Raises ValueError if there are more or fewer cuts."""
        stages = len(places.share)
        if len(cuts) != stages + 1:
            raise ValueError(f"expected {stages + 1} cuts of {stages} stages, got {len(cuts)}")
        return _estimated(self._costs, places, cuts, micro_batches, self._room_for(stages))

    def filled(self, places: StagePlaces, cuts: Ints, micro_batches: int) -> Floats:
        """(stages,) how full the smallest device of each stage is; 1 is all of the memory that the stage may take."""
        self.estimated(places, cuts, micro_batches)
        return self._scratch.filled[: len(places.share)].copy()

    def times(self, places: StagePlaces, cuts: Ints, micro_batches: int) -> StageTimes:
        """What passes, transfers and sums of each stage take."""
        self.estimated(places, cuts, micro_batches)
        count, of = len(places.share), self._scratch
        return StageTimes(*(each[:count].copy() for each in (of.forward, of.backward, of.there, of.back, of.summing)))

    def again(self, places: StagePlaces, cuts: Ints, micro_batches: int) -> list[int]:
        """(stages,) how many of the first layers of each are computed again."""
        self.estimated(places, cuts, micro_batches)
        return list(map(int, self._scratch.again[: len(places.share)]))

    def _room_for(self, stages: int) -> Scratch:
        """Buffers for `stages` stages: compiled code writes to all of them, and does not see where they end."""
        if len(self._scratch.forward) < stages:
            self._scratch = Scratch.room_for(stages, self._layers)
        return self._scratch
