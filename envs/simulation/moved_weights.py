"""What a placement moves before its first step: weights and optimizer state that are not where it needs them yet.

A device that reads a weight which it does not hold gets it from the device that sends it fastest among those that hold
it, or from a checkpoint if all of them have left. Channels work side by side, and what goes over one follows one after
another, so the time is that of the busiest channel; each device reads a checkpoint by itself:

    held before    w0: a      w1: b        w2: a device that left
    needed         w0: a, c   w1: a        w2: c
    moved          w0: a -> c, w1: b -> a  w2: checkpoint -> c           seconds: max(a -> c, b -> a, checkpoint -> c)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from envs.simulation.blueprint import Indices
from envs.simulation.compiled import compiled, inlined
from graphs.op_graph import Floats, Ints

HELD = -1  # in place of a channel: nothing is moved


class MovedWeights(NamedTuple):
    """Which units read which weights, and what it takes to bring each weight to each device."""

    weight: Ints  # (uses,) ascending
    unit: Ints  # (uses,) that reads it
    channel: Ints  # (weights, devices) over which the weight comes, or HELD
    seconds: Floats  # (weights, devices) for which the channel is busy with it, over the steps that pay for it
    bytes: Floats  # (weights, devices) that come
    seen: Ints  # (devices,) scratch
    busy: Floats  # (channels,) scratch

    @classmethod
    def nothing(cls, devices: int) -> MovedWeights:
        """That of a model which runs nowhere yet: no placement moves anything."""
        none, table = np.zeros(0, np.int64), np.zeros((0, devices))
        return cls(
            none, none.copy(), np.zeros((0, devices), np.int64), table, table.copy(), np.zeros(devices, np.int64),
            np.zeros(0),
        )  # fmt: skip


@inlined
def moving_seconds(moved: MovedWeights, placement: Indices) -> float:
    """The seconds of moving to a placement, (units,), for each of the steps that pay for it; 0.0 if nothing moves."""
    for channel in range(len(moved.busy)):
        moved.busy[channel] = 0.0
    moved.seen[:] = -1
    most = 0.0
    for use in range(len(moved.weight)):
        weight, device = moved.weight[use], placement[moved.unit[use]]
        channel = moved.channel[weight, device]
        if channel != HELD and moved.seen[device] != weight:
            moved.seen[device] = weight
            moved.busy[channel] += moved.seconds[weight, device]
            most = max(most, moved.busy[channel])
    return most


@compiled
def write_moves(moved: MovedWeights, placements: Indices, seconds: Floats, moved_bytes: Floats) -> None:
    """Write what each of (plans, units) placements moves: (plans,) seconds for each step, and (plans,) bytes."""
    for plan in range(len(placements)):
        seconds[plan] = moving_seconds(moved, placements[plan])
        moved.seen[:] = -1
        moved_bytes[plan] = 0.0
        for use in range(len(moved.weight)):
            weight, device = moved.weight[use], placements[plan, moved.unit[use]]
            if moved.seen[device] != weight:
                moved.seen[device] = weight
                moved_bytes[plan] += moved.bytes[weight, device]
