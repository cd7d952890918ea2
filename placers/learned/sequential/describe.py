"""The features of the unit at hand on every device, written from what a roll-out knows so far."""

import math

import numpy as np

from envs.simulation.compiled import inlined, subroutine
from graphs.op_graph import Ints
from placers.learned.sequential.decoder_features import FIRST_STATIC, Feature
from placers.learned.sequential.describe_totals import (
    describe_balance,
    describe_channels,
    describe_component,
    describe_host,
    describe_problem,
    signed_log,
)
from placers.learned.sequential.layout import RolloutLayout
from placers.learned.sequential.state import RolloutState, Singles


@subroutine
def describe(
    layout: RolloutLayout, state: RolloutState, unit: int, latest: int, progress: float, horizon: float,
    choices: Ints, out: Singles,
) -> None:  # fmt: skip
    """Write all features of the devices that are choices, (devices, features), but those of a later pass.

    `latest` is the device of the unit before this one, `progress` the share of work that is placed, and `horizon` the
    latest time, in seconds, at which the step would end behind any placed unit.
    """
    _describe_load(layout, state, unit, choices, out)
    _describe_times(layout, state, unit, horizon, choices, out)
    _describe_bytes(layout, state, unit, choices, out)
    _describe_memory(layout, state, progress, choices, out)
    describe_component(layout, state, unit, choices, out)
    describe_balance(layout, state, progress, choices, out)
    describe_channels(layout, state, unit, choices, out)
    describe_problem(layout, choices, out)
    describe_host(layout, state, choices, out)
    critical, urgency = _critical(layout, state, unit), signed_log(layout.rank[unit] / layout.scale)
    for device in choices:
        x = out[device]
        x[Feature.CRITICAL] = device == critical
        x[Feature.LATEST] = device == latest
        x[Feature.PROGRESS] = progress
        x[Feature.URGENCY] = urgency
        for i in range(layout.static.shape[2]):
            x[FIRST_STATIC + i] = layout.static[unit, device, i]


@inlined
def _describe_load(layout: RolloutLayout, state: RolloutState, unit: int, choices: Ints, out: Singles) -> None:
    most, least, lightest, used = 0.0, np.inf, np.inf, 0
    for device in range(len(out)):
        most, least = max(most, state.load[device]), min(least, state.load[device])
        lightest = min(lightest, state.load[device] + layout.unit_seconds[unit, device])
        used += state.placed[device] > 0
    for device in choices:
        x, load = out[device], state.load[device] + layout.unit_seconds[unit, device]
        x[Feature.LOAD] = signed_log(load / layout.scale)
        x[Feature.LOAD_ABOVE_MOST] = signed_log((load - most) / layout.scale)
        x[Feature.LOAD_OF_FAIR_SHARE] = signed_log(load / max(layout.fair, 1e-30) - 1.0)
        x[Feature.LOAD_ABOVE_LEAST] = signed_log((state.load[device] - least) / layout.scale)
        x[Feature.LIGHTEST] = load <= lightest
        x[Feature.EMPTY] = state.placed[device] == 0
        x[Feature.USED] = used / len(out)


@inlined
def _describe_times(
    layout: RolloutLayout, state: RolloutState, unit: int, horizon: float, choices: Ints, out: Singles
) -> None:
    ready, start, finish = np.inf, np.inf, np.inf
    for device in range(len(out)):
        ready, start = min(ready, state.ready[device]), min(start, state.start[device])
        finish = min(finish, state.finish[device])
    for device in choices:
        x, end, clock = out[device], state.finish[device], state.clock[device]
        channel = layout.channels.between[device, (device + 1) % len(out)]
        x[Feature.READY] = signed_log((state.ready[device] - ready) / layout.scale)
        x[Feature.START] = signed_log((state.start[device] - start) / layout.scale)
        x[Feature.FINISH] = signed_log((end - finish) / layout.scale)
        x[Feature.EARLIEST_FINISH] = end <= finish
        x[Feature.IDLE] = signed_log(max(state.ready[device] - clock, 0.0) / layout.scale)
        x[Feature.QUEUE] = signed_log(max(clock - state.ready[device], 0.0) / layout.scale)
        x[Feature.DELAY] = signed_log(
            (end + layout.rank[unit] - layout.unit_seconds[unit, device] - horizon) / layout.scale
        )
        x[Feature.SENDING] = signed_log(state.sending[device] / layout.scale)
        x[Feature.CUT] = signed_log(state.cut[device] / layout.scale)
        x[Feature.BACKLOG] = signed_log(max(state.free[channel] - clock, 0.0) / layout.scale)
        x[Feature.TRAFFIC] = signed_log(state.traffic[device] / layout.scale)


@inlined
def _describe_bytes(layout: RolloutLayout, state: RolloutState, unit: int, choices: Ints, out: Singles) -> None:
    linked, made = 0.0, 0.0
    for device in range(len(out)):
        linked += state.linked[device]
        made += state.made[device]
    for device in choices:
        x = out[device]
        x[Feature.INPUTS_MADE] = state.made[device] / max(made, 1e-30)
        x[Feature.INPUTS_THERE] = state.there[device] / max(made, 1e-30)
        x[Feature.LINKS_PLACED] = state.linked[device] / max(linked, 1e-30)
        x[Feature.LINKS_ALL] = state.linked[device] / max(layout.linked_bytes[unit], 1e-30)
        x[Feature.HELD_THERE] = 1.0 - state.need[device] / max(layout.held_bytes[unit], 1e-30)


@inlined
def _describe_memory(layout: RolloutLayout, state: RolloutState, progress: float, choices: Ints, out: Singles) -> None:
    room = 0.0
    for device in range(len(out)):
        room += max(state.left[device], 0.0)
    for device in choices:
        x = out[device]
        x[Feature.ROOM], x[Feature.FILL] = 1.0, 0.0
        if layout.limits[device] < np.inf:
            limit = max(layout.limits[device], 1.0)
            x[Feature.ROOM] = max((state.left[device] - state.need[device] - state.fullest[device]) / limit, -1.0)
            x[Feature.FILL] = 1.0 - max((state.left[device] - state.over[device]) / limit, -1.0)
        x[Feature.TIGHTNESS] = min(layout.need * (1.0 - progress) / max(room, 1.0), 3.0)


@inlined
def _critical(layout: RolloutLayout, state: RolloutState, unit: int) -> int:
    """The device on which the last of the unit's inputs is made, or -1."""
    device, latest = -1, -1.0
    for i in range(layout.input_start[unit], layout.input_start[unit + 1]):
        source = state.where[layout.unit[layout.inputs[i]]]
        if source >= 0 and state.arrival[layout.inputs[i], source] > latest:
            device, latest = source, state.arrival[layout.inputs[i], source]
    return device


@inlined
def describe_ahead(
    layout: RolloutLayout, state: RolloutState, before: int, unit: int, choices: Ints, out: Singles
) -> None:
    """Write the features, (devices, features), of a later pass for a unit that was on `before`, or zeros if -1."""
    for device in choices:
        out[device, Feature.BEFORE : FIRST_STATIC] = 0.0
    if before < 0:
        return
    most, least_cut = 0.0, math.inf
    for device in range(len(out)):
        most = max(most, state.load[device] + state.ahead[device])
        least_cut = min(least_cut, state.cut[device] + state.cut_ahead[device])
    for device in choices:
        x = out[device]
        load = state.load[device] + layout.unit_seconds[unit, device] + state.ahead[device]
        x[Feature.AGAIN] = 1.0
        x[Feature.BEFORE] = device == before
        x[Feature.LINKED_AHEAD] = state.linked_ahead[device] / max(layout.linked_bytes[unit], 1e-30)
        x[Feature.CUT_AHEAD] = signed_log(state.cut_ahead[device] / layout.scale)
        x[Feature.CUT_IN_ALL] = signed_log((state.cut[device] + state.cut_ahead[device] - least_cut) / layout.scale)
        x[Feature.LOAD_AHEAD] = signed_log(load / max(layout.fair, 1e-30) - 1.0)
        x[Feature.LOAD_AHEAD_ABOVE_MOST] = signed_log((load - most) / layout.scale)
        if layout.limits[device] < math.inf:
            left = state.left[device] - state.ahead_bytes[device] - state.fullest[device]
            for i in range(layout.held_start[unit], layout.held_start[unit + 1]):
                tensor = layout.held[i]
                if state.holders[tensor, device] == 0 and not state.present[tensor, device]:
                    left -= layout.tensor_bytes[tensor]
            x[Feature.ROOM_AHEAD] = min(max(left / max(layout.limits[device], 1.0), -1.0), 1.0)
