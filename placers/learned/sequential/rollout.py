"""The roll-out of the sequential decoder: units are placed one by one, and every device is scored anew each time.

Compiled, because it takes a step per unit and sample. It keeps a rough schedule of the forward pass on the way (ops in
order of decreasing longest remaining path, channels that serve one transfer after another, no idle gap used later).
"""

from __future__ import annotations

import math

import numpy as np

from envs.simulation.compiled import compiled, inlined
from graphs.op_graph import Bools, Floats, Ints
from placers.learned.sequential.ahead import expect, forget, look_ahead, signed_log
from placers.learned.sequential.layout import Board
from placers.learned.sequential.state import GREEDY, LIVE_FEATURES, SAMPLED, Choices, Head, Record, Singles, State

_STATIC = len(LIVE_FEATURES)  # where the static features begin


@compiled
def roll_out(board: Board, head: Head, choices: Choices, state: State, record: Record) -> None:
    """Place all units in every sample, and record it."""
    for sample in range(len(record.placements)):
        kept = min(sample, len(record.features) - 1)
        previous = choices.previous[sample]
        _begin(board, state, choices.share[sample])
        expect(board, state, previous)
        progress, horizon, latest = 0.0, 0.0, -1
        for unit in board.order:
            features, allowed = record.features[kept, unit], record.allowed[kept, unit]
            forget(board, state, previous, unit)
            _look(board, state, previous, unit)
            _describe(board, state, unit, latest, progress, horizon, features)
            look_ahead(board, state, previous[unit], unit, features)
            _allow(board, state, previous[unit] < 0, allowed)
            _rate(head, unit, features, state)
            total = _normalise(state.score, allowed)
            chosen = record.placements[sample, unit]
            if choices.mode[sample] == GREEDY:
                chosen = _best(state.score, allowed)
            elif choices.mode[sample] == SAMPLED:
                chosen = _draw(state.score, allowed, choices.uniform[sample, unit], choices.temperature[sample])
            record.placements[sample, unit] = chosen
            record.log_probability[sample, unit] = state.score[chosen] - total
            horizon = max(horizon, state.finish[chosen] + board.rank[unit] - board.unit_seconds[unit, chosen])
            progress += board.share[unit]
            _place(board, state, unit, chosen)
            latest = chosen


@inlined
def _begin(board: Board, state: State, share: float) -> None:
    state.arrival[:] = np.inf
    state.where[:] = -1
    state.clock[:] = 0.0
    state.load[:] = 0.0
    state.traffic[:] = 0.0
    state.placed[:] = 0
    state.free[:] = 0.0
    state.present[:] = False
    for device in range(len(state.left)):
        state.left[device] = board.limits[device] * share


@inlined
def _look(board: Board, state: State, previous: Ints, unit: int) -> None:
    """What the unit would cost on every device."""
    for device in range(len(state.clock)):
        _schedule(board, state, unit, device, False)
        need = 0.0
        for i in range(board.held_start[unit], board.held_start[unit + 1]):
            if not state.present[board.held[i], device]:
                need += board.tensor_bytes[board.held[i]]
        state.need[device] = need
        state.made[device] = state.there[device] = state.linked[device] = state.cut[device] = 0.0
        state.linked_ahead[device] = state.cut_ahead[device] = 0.0
    for i in range(board.input_start[unit], board.input_start[unit + 1]):
        op = board.inputs[i]
        source = state.where[board.unit[op]]
        if source >= 0 and board.carries[i]:
            state.made[source] += board.input_bytes[i]
            for device in range(len(state.there)):
                if not np.isinf(state.arrival[op, device]):
                    state.there[device] += board.input_bytes[i]
    for i in range(board.link_start[unit], board.link_start[unit + 1]):
        there = state.where[board.neighbour[i]]
        if there >= 0:
            state.linked[there] += board.link_bytes[i]
            for device in range(len(state.cut)):
                state.cut[device] += board.link_bytes[i] * board.per_byte[there, device]
        elif previous[board.neighbour[i]] >= 0:
            there = previous[board.neighbour[i]]
            state.linked_ahead[there] += board.link_bytes[i]
            for device in range(len(state.cut)):
                state.cut_ahead[device] += board.link_bytes[i] * board.per_byte[there, device]


@compiled
def _schedule(board: Board, state: State, unit: int, device: int, commit: bool) -> None:
    """Run the forward ops of the unit on the device, after what is there; with `commit` they stay there."""
    ready, sending = 0.0, 0.0
    if not commit:
        state.sent[:] = 0.0
    for i in range(board.input_start[unit], board.input_start[unit + 1]):
        op = board.inputs[i]
        source = state.where[board.unit[op]]
        at = state.arrival[op, device]
        if source < 0:
            at = board.early[op]
        elif np.isinf(at):
            at = state.arrival[op, source]
            if board.carries[i]:
                channel = board.channel[source, device]
                seconds = board.latency[source, device] + board.input_bytes[i] * board.per_byte[source, device]
                at = max(at, state.free[channel] + (0.0 if commit else state.sent[channel])) + seconds
                sending += seconds
                if commit:
                    state.free[channel] = at
                    state.arrival[op, device] = at
                    state.traffic[source] += seconds
                else:
                    state.sent[channel] += seconds
        state.known[op] = at
        ready = max(ready, at)
    clock, start = state.clock[device], -1.0
    for i in range(board.op_start[unit], board.op_start[unit + 1]):
        op = board.ops[i]
        for k in range(board.inside_start[op], board.inside_start[op + 1]):
            clock = max(clock, state.known[board.producers[k]])
        start = clock if start < 0 else start
        clock += board.op_seconds[op, device]
        state.known[op] = clock
        if commit:
            state.arrival[op, device] = clock
    state.ready[device], state.start[device], state.finish[device] = ready, max(start, 0.0), clock
    state.sending[device] = sending
    if commit:
        state.clock[device] = clock


@inlined
def _place(board: Board, state: State, unit: int, device: int) -> None:
    _schedule(board, state, unit, device, True)
    state.where[unit] = device
    state.load[device] += board.unit_seconds[unit, device]
    state.placed[device] += 1
    state.left[device] -= state.need[device]
    for i in range(board.held_start[unit], board.held_start[unit + 1]):
        tensor = board.held[i]
        if state.holders[tensor, device] > 0 and not state.present[tensor, device]:
            state.ahead_bytes[device] -= board.tensor_bytes[tensor]
        state.present[tensor, device] = True


@compiled
def _describe(
    board: Board, state: State, unit: int, latest: int, progress: float, horizon: float, out: Singles
) -> None:
    """Write the features, (devices, features), of the unit on every device."""
    devices = len(state.clock)
    most, least, used, room, linked, made = 0.0, np.inf, 0, 0.0, 0.0, 0.0
    ready, start, finish, lightest = np.inf, np.inf, np.inf, np.inf
    for device in range(devices):
        most, least = max(most, state.load[device]), min(least, state.load[device])
        lightest = min(lightest, state.load[device] + board.unit_seconds[unit, device])
        used += state.placed[device] > 0
        room += max(state.left[device], 0.0)
        linked += state.linked[device]
        made += state.made[device]
        ready, start = min(ready, state.ready[device]), min(start, state.start[device])
        finish = min(finish, state.finish[device])
    critical = _critical(board, state, unit)
    for device in range(devices):
        x, seconds = out[device], board.unit_seconds[unit, device]
        load, end = state.load[device] + seconds, state.finish[device]
        channel = board.channel[device, (device + 1) % devices]
        x[0] = signed_log(load / board.scale)
        x[1] = signed_log((load - most) / board.scale)
        x[2] = signed_log(load / max(board.fair, 1e-30) - 1.0)
        x[3] = signed_log((state.load[device] - least) / board.scale)
        x[4] = signed_log((state.ready[device] - ready) / board.scale)
        x[5] = signed_log((state.start[device] - start) / board.scale)
        x[6] = signed_log((end - finish) / board.scale)
        x[7] = signed_log(max(state.ready[device] - state.clock[device], 0.0) / board.scale)
        x[8] = signed_log(max(state.clock[device] - state.ready[device], 0.0) / board.scale)
        x[9] = signed_log((end + board.rank[unit] - seconds - horizon) / board.scale)
        x[10] = signed_log(state.sending[device] / board.scale)
        x[11] = signed_log(state.cut[device] / board.scale)
        x[12] = state.made[device] / max(made, 1e-30)
        x[13] = state.there[device] / max(made, 1e-30)
        x[14] = state.linked[device] / max(linked, 1e-30)
        x[15] = state.linked[device] / max(board.linked_bytes[unit], 1e-30)
        x[16] = 1.0 - state.need[device] / max(board.held_bytes[unit], 1e-30)
        x[17], x[18] = 1.0, 0.0
        if board.limits[device] < np.inf:
            limit = max(board.limits[device], 1.0)
            x[17] = max((state.left[device] - state.need[device]) / limit, -1.0)
            x[18] = 1.0 - max(state.left[device] / limit, -1.0)
        x[19] = signed_log(max(state.free[channel] - state.clock[device], 0.0) / board.scale)
        x[20] = signed_log(state.traffic[device] / board.scale)
        x[21] = state.placed[device] == 0
        x[22] = device == critical
        x[23] = device == latest
        x[24] = end <= finish
        x[25] = load <= lightest
        x[26] = used / devices
        x[27] = progress
        x[28] = min(board.need * (1.0 - progress) / max(room, 1.0), 3.0)
        x[29] = signed_log(board.rank[unit] / board.scale)
        for i in range(len(board.static[unit, device])):
            x[_STATIC + i] = board.static[unit, device, i]


@inlined
def _critical(board: Board, state: State, unit: int) -> int:
    """The device on which the last of the unit's inputs is made, or -1."""
    device, latest = -1, -1.0
    for i in range(board.input_start[unit], board.input_start[unit + 1]):
        source = state.where[board.unit[board.inputs[i]]]
        if source >= 0 and state.arrival[board.inputs[i], source] > latest:
            device, latest = source, state.arrival[board.inputs[i], source]
    return device


@inlined
def _allow(board: Board, state: State, first_pass: bool, allowed: Bools) -> None:
    """Devices with room, or the one with most; in a first pass only the first of empty equal devices."""
    any_room, roomiest, most = False, 0, -np.inf
    for device in range(len(allowed)):
        first = True
        for other in range(device):
            twin = first_pass and state.placed[other] == 0 and board.same[other] == board.same[device]
            first = first and not (twin and state.placed[device] == 0)
        left = state.left[device] - state.need[device]
        allowed[device] = first and left >= 0
        any_room = any_room or allowed[device]
        if first and left > most:
            roomiest, most = device, left
    if not any_room:
        allowed[roomiest] = True


@inlined
def _rate(head: Head, unit: int, features: Singles, state: State) -> None:
    """Write the score of every device: the network's last layers, in single precision as in training."""
    hidden, narrow = state.hidden, state.narrow
    for device in range(len(features)):
        x = features[device]
        score = np.float32(0.0)
        for k in range(len(hidden)):
            hidden[k] = head.state[unit, k]
        for i in range(len(x)):
            score += head.skip[i] * x[i]
            for k in range(len(hidden)):
                hidden[k] += head.first[i, k] * x[i]
        for k in range(len(narrow)):
            narrow[k] = head.bias[k]
        for i in range(len(hidden)):
            if hidden[i] > 0:
                for k in range(len(narrow)):
                    narrow[k] += head.second[i, k] * hidden[i]
        for k in range(len(narrow)):
            score += head.out[k] * max(narrow[k], np.float32(0.0))
        state.score[device] = score


@inlined
def _normalise(score: Floats, allowed: Bools) -> float:
    """The logarithm of the sum of exponentials of what is allowed."""
    best = float(score[_best(score, allowed)])
    total = 0.0
    for device in range(len(score)):
        if allowed[device]:
            total += math.exp(score[device] - best)
    return best + math.log(total)


@compiled
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
