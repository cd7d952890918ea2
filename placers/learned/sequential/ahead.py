"""What the sequential decoder knows of an earlier pass: where the units that are not placed yet were then.

The first pass sees only what is placed already. A later one also sees where consumers are likely to be, and how full
and how busy devices will be in the end, at no simulation.
"""

from __future__ import annotations

import math

from envs.simulation.compiled import inlined
from graphs.op_graph import Ints
from placers.learned.sequential.layout import Board
from placers.learned.sequential.state import LIVE_FEATURES, Singles, State

_FIRST = LIVE_FEATURES.index("before")


@inlined
def expect(board: Board, state: State, previous: Ints) -> None:
    """Before anything is placed: all units are where they were, if they were anywhere."""
    state.ahead[:] = 0.0
    state.ahead_bytes[:] = 0.0
    state.holders[:] = 0
    for unit in range(len(previous)):
        device = previous[unit]
        if device >= 0:
            state.ahead[device] += board.unit_seconds[unit, device]
            for i in range(board.held_start[unit], board.held_start[unit + 1]):
                if state.holders[board.held[i], device] == 0:
                    state.ahead_bytes[device] += board.tensor_bytes[board.held[i]]
                state.holders[board.held[i], device] += 1


@inlined
def forget(board: Board, state: State, previous: Ints, unit: int) -> None:
    """The unit's turn has come: it no longer is where it was."""
    device = previous[unit]
    if device < 0:
        return
    state.ahead[device] -= board.unit_seconds[unit, device]
    for i in range(board.held_start[unit], board.held_start[unit + 1]):
        tensor = board.held[i]
        state.holders[tensor, device] -= 1
        if state.holders[tensor, device] == 0 and not state.present[tensor, device]:
            state.ahead_bytes[device] -= board.tensor_bytes[tensor]


@inlined
def look_ahead(board: Board, state: State, before: int, unit: int, out: Singles) -> None:
    """Write the features, (devices, features), of a later pass for a unit that was on `before`, or zeros if -1."""
    for device in range(len(out)):
        out[device, _FIRST : _FIRST + 8] = 0.0
    if before < 0:
        return
    most, least_cut = 0.0, math.inf
    for device in range(len(out)):
        most = max(most, state.load[device] + state.ahead[device])
        least_cut = min(least_cut, state.cut[device] + state.cut_ahead[device])
    for device in range(len(out)):
        x = out[device]
        load = state.load[device] + board.unit_seconds[unit, device] + state.ahead[device]
        x[_FIRST] = device == before
        x[_FIRST + 1] = state.linked_ahead[device] / max(board.linked_bytes[unit], 1e-30)
        x[_FIRST + 2] = signed_log(state.cut_ahead[device] / board.scale)
        x[_FIRST + 3] = signed_log((state.cut[device] + state.cut_ahead[device] - least_cut) / board.scale)
        x[_FIRST + 4] = signed_log(load / max(board.fair, 1e-30) - 1.0)
        x[_FIRST + 5] = signed_log((load - most) / board.scale)
        if board.limits[device] < math.inf:
            left = state.left[device] - state.ahead_bytes[device]
            for i in range(board.held_start[unit], board.held_start[unit + 1]):
                tensor = board.held[i]
                if state.holders[tensor, device] == 0 and not state.present[tensor, device]:
                    left -= board.tensor_bytes[tensor]
            x[_FIRST + 6] = min(max(left / max(board.limits[device], 1.0), -1.0), 1.0)
        x[_FIRST + 7] = 1.0


@inlined
def signed_log(value: float) -> float:
    """Fine where times differ by an op, coarse where they differ by a step."""
    return math.log1p(10.0 * value) if value >= 0 else -math.log1p(-10.0 * value)
