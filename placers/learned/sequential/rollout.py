"""The roll-out of the sequential decoder: units are placed one by one, and every device is scored again each time.

Compiled, because it takes a step per unit and sample. It keeps a rough schedule of the forward pass on the way (ops in
order of decreasing longest remaining path, channels that serve one transfer after another, no idle gap used later).

Units that are kept stay on their devices of the pass before. They cost no scores, so a few units are placed again in a
fraction of the time, with the rest in its place: what is placed already, and what is ahead.

    layout.order    kept  kept  [ freed ]  kept  [ freed ]  kept  kept
    decides                        x                x
"""

import math

import numpy as np

from envs.simulation.compiled import compiled, inlined, subroutine
from graphs.op_graph import Bools, Floats, Ints
from placers.learned.sequential.ahead import expect_previous, forget_previous
from placers.learned.sequential.describe import describe, describe_ahead
from placers.learned.sequential.layout import RolloutLayout
from placers.learned.sequential.score_choices import score_choices
from placers.learned.sequential.state import (
    GIVEN,
    GREEDY,
    IMPOSSIBLE,
    SAMPLED,
    Rollouts,
    RolloutState,
    Sampling,
    ScoreLayers,
)


@compiled
def roll_out(
    layout: RolloutLayout, layers: ScoreLayers, sampling: Sampling, state: RolloutState, rollouts: Rollouts
) -> None:
    """Place all units in every sample, and write what happened to `rollouts`."""
    for sample in range(len(rollouts.placements)):
        kept = min(sample, len(rollouts.features) - 1)  # all samples overwrite the first if features are not kept
        previous = sampling.previous[sample]
        _begin(layout, state, sampling.share[sample])
        expect_previous(layout, state, previous)
        progress, horizon, latest = 0.0, 0.0, -1
        for unit in layout.order:
            features, allowed = rollouts.features[kept, unit], rollouts.allowed[kept, unit]
            forget_previous(layout, state, previous, unit)
            if len(sampling.kept) > 0 and sampling.kept[sample, unit]:
                latest = previous[unit]
                _try_where_it_was(layout, state, unit, latest, allowed)
                rollouts.placements[sample, unit] = latest
                rollouts.log_probability[sample, unit] = 0.0
                horizon = max(horizon, state.finish[latest] + layout.rank[unit] - layout.unit_seconds[unit, latest])
                progress += layout.share[unit]
                _place(layout, state, unit, latest)
                continue
            # what is known: the unit is neither placed nor ahead, and is tried on every device
            _try(layout, state, previous, unit)
            choices = state.choices[: _allow(layout, state, unit, previous[unit] < 0, allowed)]
            # what is chosen: a softmax over the scores of the allowed devices, if there are several
            chosen, log_probability = rollouts.placements[sample, unit], 0.0
            if sampling.mode[sample] != GIVEN:
                chosen = choices[0]
            if len(choices) > 1:
                describe(layout, state, unit, latest, progress, horizon, choices, features)
                describe_ahead(layout, state, previous[unit], unit, choices, features)
                score_choices(layers, unit, choices, features, state)
                if sampling.mode[sample] == GREEDY:
                    chosen = _best(state.score, allowed)
                elif sampling.mode[sample] == SAMPLED:
                    chosen = _draw(state.score, allowed, sampling.uniform[sample, unit], sampling.temperature[sample])
                log_probability = state.score[chosen] - _log_sum_exp(state.score, allowed)
            rollouts.placements[sample, unit] = chosen
            rollouts.log_probability[sample, unit] = log_probability if allowed[chosen] else IMPOSSIBLE
            # what follows from it: the next unit finds this one placed
            horizon = max(horizon, state.finish[chosen] + layout.rank[unit] - layout.unit_seconds[unit, chosen])
            progress += layout.share[unit]
            _place(layout, state, unit, chosen)
            latest = chosen
        rollouts.filled[sample] = _filled(layout, state, sampling.share[sample])


@inlined
def _begin(layout: RolloutLayout, state: RolloutState, share: float) -> None:
    state.arrival[:] = np.inf
    state.where[:] = -1
    state.clock[:] = 0.0
    state.issued[:] = 0.0
    state.load[:] = 0.0
    state.traffic[:] = 0.0
    state.placed[:] = 0
    state.free[:] = 0.0
    state.carried[:] = 0.0
    state.sent[:] = 0.0
    state.busiest_out[:] = 0.0
    state.busiest_in[:] = 0.0
    state.free_out[:] = 0.0
    state.in_component[:] = 0.0
    state.present[:] = False
    for device in range(len(state.left)):
        state.left[device] = layout.limits[device] * share
    state.live[:] = 0.0
    state.over[:] = 0.0
    for op in range(len(state.waiting)):
        state.waiting[op] = layout.live.readers[op]


@inlined
def _try_where_it_was(layout: RolloutLayout, state: RolloutState, unit: int, device: int, allowed: Bools) -> None:
    """Write to the state what the unit would cost on one device, the only choice."""
    _schedule(layout, state, unit, device, False)
    _count_bytes(layout, state, unit, device)
    allowed[:] = False
    allowed[device] = True


@inlined
def _count_bytes(layout: RolloutLayout, state: RolloutState, unit: int, device: int) -> None:
    """Write what the unit would add to what the device holds, and how full the device would be at its fullest."""
    need, outputs, copies = 0.0, 0.0, 0.0
    for i in range(layout.held_start[unit], layout.held_start[unit + 1]):
        tensor = layout.held[i]
        if not state.present[tensor, device]:
            need += layout.tensor_bytes[tensor]
            if layout.live.is_output[tensor]:
                outputs += layout.tensor_bytes[tensor]
    for i in range(layout.input_start[unit], layout.input_start[unit + 1]):
        op = layout.inputs[i]
        if layout.carries[i] and state.where[layout.unit[op]] >= 0 and np.isinf(state.arrival[op, device]):
            copies += layout.live.bytes[op]
    state.need[device] = need
    now = state.live[device] + copies + layout.live.inside[unit]
    state.fullest[device] = max(state.over[device] - outputs, now)


@inlined
def _try(layout: RolloutLayout, state: RolloutState, previous: Ints, unit: int) -> None:
    """Write to the state what the unit would cost on every device."""
    _find_twins(layout, state)
    for device in range(len(state.clock)):
        twin = state.twin[device]
        if twin == device:
            _schedule(layout, state, unit, device, False)
            _count_bytes(layout, state, unit, device)
        else:
            _take_over(state, device, twin)
        state.made[device] = state.there[device] = state.linked[device] = state.cut[device] = 0.0
        state.linked_ahead[device] = state.cut_ahead[device] = 0.0
    for i in range(layout.input_start[unit], layout.input_start[unit + 1]):
        op = layout.inputs[i]
        source = state.where[layout.unit[op]]
        if source >= 0 and layout.carries[i]:
            state.made[source] += layout.input_bytes[i]
            for device in range(len(state.there)):
                if not np.isinf(state.arrival[op, device]):
                    state.there[device] += layout.input_bytes[i]
    for i in range(layout.link_start[unit], layout.link_start[unit + 1]):
        there = state.where[layout.neighbour[i]]
        if there >= 0:
            state.linked[there] += layout.link_bytes[i]
            for device in range(len(state.cut)):
                state.cut[device] += layout.link_bytes[i] * layout.per_byte[there, device]
        elif previous[layout.neighbour[i]] >= 0:
            there = previous[layout.neighbour[i]]
            state.linked_ahead[there] += layout.link_bytes[i]
            for device in range(len(state.cut)):
                state.cut_ahead[device] += layout.link_bytes[i] * layout.per_byte[there, device]


@inlined
def _find_twins(layout: RolloutLayout, state: RolloutState) -> None:
    """Equal devices that are empty are the same one until something is put on them."""
    state.first_empty[:] = -1
    for device in range(len(state.twin)):
        state.twin[device], same = device, layout.same[device]
        if state.placed[device] == 0:
            if state.first_empty[same] < 0:
                state.first_empty[same] = device
            state.twin[device] = state.first_empty[same]


@inlined
def _take_over(state: RolloutState, device: int, twin: int) -> None:
    """A unit on the device would cost what it would on its twin."""
    state.ready[device], state.start[device], state.finish[device] = (
        state.ready[twin], state.start[twin], state.finish[twin],
    )  # fmt: skip
    state.sending[device], state.calling[device] = state.sending[twin], state.calling[twin]
    state.issue[device] = state.issue[twin]
    state.need[device], state.fullest[device] = state.need[twin], state.fullest[twin]


@subroutine
def _schedule(layout: RolloutLayout, state: RolloutState, unit: int, device: int, commit: bool) -> None:
    """Run the forward ops of the unit on the device, after what is there; with `commit` they stay there.

    source    [ producer ]<- arrival[op, source]
    channel        ... busy until `free` ][ other inputs of the unit ][ this input ]<- known[op]; the latest is `ready`
    device    [ ops of earlier units ]<- clock[device]          idle                [ first op ][ second op ]<- finish

    An input whose unit is not placed yet counts from its earliest finish, without transfers. A thread issues the
    transfers, then the ops (`sequential.host_threads`).
    """
    host, thread = layout.host, layout.host.thread[device]
    ready, sending, calling, issued = 0.0, 0.0, 0.0, state.issued[thread]
    clock, start, first = state.clock[device], -1.0, -1.0
    for i in range(layout.input_start[unit], layout.input_start[unit + 1]):
        op = layout.inputs[i]
        source = state.where[layout.unit[op]]
        at = state.arrival[op, device]
        if source < 0:
            at = layout.early[op]
        elif np.isinf(at):
            at = state.arrival[op, source]
            if layout.carries[i]:
                channel = layout.channels.between[source, device]
                seconds = layout.latency[source, device] + layout.input_bytes[i] * layout.per_byte[source, device]
                calling += host.send + host.receive
                issued += host.receive
                if host.thread[source] == thread:
                    issued += host.send
                elif commit:
                    state.issued[host.thread[source]] += host.send
                if host.streams:
                    at = max(at, issued, state.clock[source])
                if host.barrier:
                    at = max(at, clock)
                at = max(at, state.free[channel] + (0.0 if commit else state.sent[channel])) + seconds
                sending += seconds
                if host.barrier:
                    clock = at
                    if commit:
                        state.clock[source] = at
                if commit:
                    state.free[channel] = at
                    state.carried[channel] += seconds
                    state.arrival[op, device] = at
                    state.traffic[source] += seconds
                    _note_traffic(layout, state, channel)
                else:
                    state.sent[channel] += seconds
        state.known[op] = at
        ready = max(ready, at)
    for i in range(layout.op_start[unit], layout.op_start[unit + 1]):
        op = layout.ops[i]
        for k in range(layout.inside_start[op], layout.inside_start[op + 1]):
            clock = max(clock, state.known[layout.producers[k]])
        issued += host.op[op]
        first = issued if first < 0 else first
        clock = max(clock, issued)
        start = clock if start < 0 else start
        clock += layout.op_seconds[op, device]
        state.known[op] = clock
        if commit:
            state.arrival[op, device] = clock
    state.ready[device], state.start[device], state.finish[device] = ready, max(start, 0.0), clock
    state.sending[device], state.calling[device] = sending, calling
    state.issue[device] = issued if first < 0 else first
    if commit:
        state.clock[device], state.issued[thread] = clock, issued
        return
    for i in range(layout.input_start[unit], layout.input_start[unit + 1]):
        source = state.where[layout.unit[layout.inputs[i]]]
        if source >= 0:
            state.sent[layout.channels.between[source, device]] = 0.0


@inlined
def _note_traffic(layout: RolloutLayout, state: RolloutState, channel: int) -> None:
    """A channel has carried more; what it has carried, and when it is free, only ever grow."""
    channels = layout.channels
    for k in range(channels.leaving_start[channel], channels.leaving_start[channel + 1]):
        device = channels.leaving[k]
        state.busiest_out[device] = max(state.busiest_out[device], state.carried[channel])
        state.free_out[device] = max(state.free_out[device], state.free[channel])
    for k in range(channels.coming_start[channel], channels.coming_start[channel + 1]):
        device = channels.coming[k]
        state.busiest_in[device] = max(state.busiest_in[device], state.carried[channel])


@inlined
def _place(layout: RolloutLayout, state: RolloutState, unit: int, device: int) -> None:
    """The unit is on the device from now on; its tensors are present, so units ahead do not add them."""
    _schedule(layout, state, unit, device, True)
    state.where[unit] = device
    state.load[device] += layout.unit_seconds[unit, device]
    state.in_component[layout.totals.component[unit], device] += layout.share[unit]
    state.placed[device] += 1
    state.left[device] -= state.need[device]
    state.over[device] = state.fullest[device]
    for i in range(layout.op_start[unit], layout.op_start[unit + 1]):
        op = layout.ops[i]
        state.live[device] += layout.live.bytes[op] * _live_tensors(layout, state, op)
    for i in range(layout.input_start[unit], layout.input_start[unit + 1]):
        op = layout.inputs[i]
        before = _live_tensors(layout, state, op)
        state.waiting[op] -= 1
        if state.where[layout.unit[op]] >= 0:
            ended = before - _live_tensors(layout, state, op)
            state.live[state.where[layout.unit[op]]] -= layout.live.bytes[op] * ended
    for i in range(layout.held_start[unit], layout.held_start[unit + 1]):
        tensor = layout.held[i]
        if state.holders[tensor, device] > 0 and not state.present[tensor, device]:
            state.ahead_bytes[device] -= layout.tensor_bytes[tensor]
        state.present[tensor, device] = True


@inlined
def _live_tensors(layout: RolloutLayout, state: RolloutState, op: int) -> int:
    """How many tensors as large as an output wait: of a training step, the gradient of each unit that is to read it."""
    waiting = int(state.waiting[op])
    return waiting if layout.live.trains else min(waiting, 1)


@inlined
def _filled(layout: RolloutLayout, state: RolloutState, share: float) -> float:
    """The share of its memory that the fullest device needs; of memory without limit, none."""
    filled = 0.0
    for device in range(len(state.left)):
        if 0 < layout.limits[device] < np.inf:
            need = layout.limits[device] * share - state.left[device] + state.over[device]
            filled = max(filled, need / layout.limits[device])
    return filled


@inlined
def _allow(layout: RolloutLayout, state: RolloutState, unit: int, first_pass: bool, allowed: Bools) -> int:
    """Choose from devices with room, or the one with most, of those where the unit may run.

    In a first pass only from the first of empty equal devices. Writes them to `choices` and `allowed`, and returns how
    many there are.
    """
    count, roomiest, most = 0, 0, -np.inf
    for device in range(len(allowed)):
        first = layout.allowed[unit, device] and (not first_pass or state.twin[device] == device)
        left = state.left[device] - state.need[device] - state.fullest[device]
        allowed[device] = first and left >= 0
        if allowed[device]:
            state.choices[count] = device
            count += 1
        if first and left > most:
            roomiest, most = device, left
    if count == 0:
        allowed[roomiest] = True
        state.choices[0] = roomiest
        count = 1
    return count


@inlined
def _log_sum_exp(score: Floats, allowed: Bools) -> float:
    """The logarithm of the sum of exponentials of what is allowed."""
    best = float(score[_best(score, allowed)])
    total = 0.0
    for device in range(len(score)):
        if allowed[device]:
            total += math.exp(score[device] - best)
    return best + math.log(total)


@subroutine
def _best(score: Floats, allowed: Bools) -> int:
    best = -1
    for device in range(len(score)):
        if allowed[device] and (best < 0 or score[device] > score[best]):
            best = device
    return best


@inlined
def _draw(score: Floats, allowed: Bools, uniform: float, temperature: float) -> int:
    """The device at which the cumulated probabilities pass the uniform number."""
    best = _best(score, allowed)
    total = 0.0
    for device in range(len(score)):
        if allowed[device]:
            total += math.exp((score[device] - score[best]) / temperature)
    passed, drawn = 0.0, best
    for device in range(len(score)):
        if allowed[device]:
            passed += math.exp((score[device] - score[best]) / temperature) / total
            drawn = device
            if passed > uniform:
                break
    return drawn
