"""What a roll-out of the sequential decoder reads and writes: features, the last layers of the network, and buffers."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.op_graph import Bools, Floats, Ints
from placers.learned.sequential.layout import STATIC_FEATURES, Board

Singles = NDArray[np.float32]

LIVE_FEATURES = (
    "load", "load_above_most", "load_of_fair_share", "load_above_least",  # all work given to the device, with the unit
    "ready", "start", "finish",  # of the unit there, after those of the device where it is earliest
    "idle", "queue",  # the device waits for the inputs, or they for the device
    "delay",  # by how much the finish and the path behind it would be later than the latest so far
    "sending", "cut",  # seconds of transfers: of inputs, and of everything between the unit and the units elsewhere
    "inputs_made", "inputs_there", "links_placed", "links_all", "held_there",  # shares of the unit's bytes
    "room", "fill",  # of its memory: left with the unit, and held without
    "backlog", "traffic",  # of the channel out of the device: how far behind it is, and all it has carried
    "empty", "critical", "latest", "earliest_finish", "lightest",  # 0 or 1
    "used", "progress", "tightness", "urgency",  # the same for all devices
    # after an earlier pass, else 0: the unit was there, shares and seconds of its links to units that are not placed
    # yet but were there, all work that is or was there, the memory left by all that; and 1 for such a pass
    "before", "linked_ahead", "cut_ahead", "cut_in_all", "load_ahead", "load_ahead_above_most", "room_ahead", "again",
)  # fmt: skip
"""What is known of a unit on a device while it is to be placed."""
FEATURES = (*LIVE_FEATURES, *STATIC_FEATURES)
GREEDY, SAMPLED, GIVEN = 0, 1, 2
FILLED = 0.9  # share of each device's memory that may be filled by estimate, which is a little low


class Head(NamedTuple):
    """The last layers of the network: score = skip @ x + out @ relu(second @ relu(state + first @ x) + bias)."""

    state: Singles  # (units, width) of each unit
    first: Singles  # (features, width)
    second: Singles  # (width, half width)
    bias: Singles  # (half width,)
    out: Singles  # (half width,)
    skip: Singles  # (features,)


class Choices(NamedTuple):
    """How each of several samples chooses."""

    mode: Ints  # (samples,) GREEDY, SAMPLED by the uniform numbers, or GIVEN: the placements are followed
    uniform: Floats  # (samples, units) in [0, 1)
    temperature: Floats  # (samples,)
    share: Floats  # (samples,) of each device's memory that may be filled
    previous: Ints  # (samples, units) devices in an earlier pass, or -1 if this is the first

    @classmethod
    def of(cls, mode: int, uniform: Floats, previous: Ints) -> Choices:
        """All samples alike, as in training; `previous` is (samples, units), `uniform` of as many units or more."""
        count = len(previous)
        return cls(np.full(count, mode), uniform, np.ones(count), np.full(count, FILLED), previous)


class Record(NamedTuple):
    """What happened in each of several samples."""

    placements: Ints  # (samples, units)
    features: Singles  # (samples, units, devices, features); of one sample for all, if they are not to be kept
    allowed: Bools  # (samples, units, devices)
    log_probability: Floats  # (samples, units), at a temperature of 1

    @classmethod
    def room_for(cls, board: Board, samples: int, *, keep: bool) -> Record:
        """Buffers for so many samples."""
        units, devices = board.unit_seconds.shape
        return cls(
            np.zeros((samples, units), np.int64),
            np.zeros((samples if keep else 1, units, devices, len(FEATURES)), np.float32),
            np.zeros((samples if keep else 1, units, devices), np.bool_),
            np.zeros((samples, units)),
        )


class State(NamedTuple):
    """What is placed so far, and scratch."""

    arrival: Floats  # (ops, devices) seconds when an output is there; infinite if it is not to be
    known: Floats  # (ops,) scratch: when an output is on the device that is being looked at
    where: Ints  # (units,) device, or -1
    clock: Floats  # (devices,) seconds when the forward ops there have run
    load: Floats  # (devices,) seconds
    traffic: Floats  # (devices,) seconds of transfers out of each device
    placed: Ints  # (devices,) units
    free: Floats  # (channels,) seconds
    sent: Floats  # (channels,) scratch
    left: Floats  # (devices,) bytes
    present: Bools  # (tensors, devices)
    ready: Floats  # (devices,) of the unit at hand; so are the following
    start: Floats
    finish: Floats
    sending: Floats
    cut: Floats
    need: Floats  # (devices,) bytes
    made: Floats  # (devices,) bytes of the unit's inputs that were made there
    there: Floats  # (devices,) bytes of its inputs that are there
    linked: Floats  # (devices,) bytes of its links to what is there
    linked_ahead: Floats  # (devices,) bytes of its links to what is not placed yet, and was there in the earlier pass
    cut_ahead: Floats  # (devices,) seconds of transfers over those links
    ahead: Floats  # (devices,) seconds of all that is not placed yet, and was there
    ahead_bytes: Floats  # (devices,) held by that, and by nothing that is there already
    holders: Ints  # (tensors, devices) units that are not placed yet, were there, and hold the tensor
    score: Floats  # (devices,)
    hidden: Singles  # (width,)
    narrow: Singles  # (half width,)

    @classmethod
    def room_for(cls, board: Board, head: Head) -> State:
        """Buffers for roll-outs of a problem."""
        ops, devices = board.op_seconds.shape
        zeros = partial(np.zeros, devices)
        return cls(
            np.zeros((ops, devices)), np.zeros(ops), np.zeros(len(board.order), np.int64), zeros(), zeros(), zeros(),
            np.zeros(devices, np.int64), np.zeros(board.channels), np.zeros(board.channels), zeros(),
            np.zeros((len(board.tensor_bytes), devices), np.bool_), zeros(), zeros(), zeros(), zeros(), zeros(),
            zeros(), zeros(), zeros(), zeros(), zeros(), zeros(), zeros(), zeros(),
            np.zeros((len(board.tensor_bytes), devices), np.int64), zeros(), np.zeros(len(head.first[0]), np.float32),
            np.zeros(len(head.out), np.float32),
        )  # fmt: skip
