"""What a roll-out of the sequential decoder reads and writes: the last layers of the network, samples, and buffers."""

from __future__ import annotations

from typing import Annotated, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from graphs.op_graph import Bools, Floats, Ints
from placers.learned.sequential.decoder_features import Feature
from placers.learned.sequential.layout import RolloutLayout

Singles = NDArray[np.float32]
GREEDY, SAMPLED, GIVEN = 0, 1, 2
IMPOSSIBLE = -1e9  # log-probability of what may not be chosen
FILLED = 0.9  # share of each device's memory that may be filled by estimate, which is a little low


class ScoreLayers(NamedTuple):
    """The last layers of the network: score = skip @ x + out @ relu(second @ relu(state + first @ x) + bias)."""

    state: Singles  # (units, width) of each unit
    first: Singles  # (features, width)
    second: Singles  # (width, half width)
    bias: Singles  # (half width,)
    out: Singles  # (half width,)
    skip: Singles  # (features,)


ALL_DECIDED = np.zeros((0, 0), np.bool_)


class Sampling(NamedTuple):
    """How each of several samples chooses."""

    mode: Ints  # (samples,) GREEDY, SAMPLED by the uniform numbers, or GIVEN: the placements are followed
    uniform: Floats  # (samples, units) in [0, 1)
    temperature: Floats  # (samples,)
    share: Floats  # (samples,) of each device's memory that may be filled
    previous: Ints  # (samples, units) devices in an earlier pass, or -1 if this is the first
    kept: Bools = ALL_DECIDED  # (samples, units) which units stay where they were then; empty: none does

    @classmethod
    def of(cls, mode: int, uniform: Floats, previous: Ints, kept: Bools = ALL_DECIDED) -> Sampling:
        """All samples alike, as in training; `previous` is (samples, units), `uniform` has as many units or more."""
        count = len(previous)
        return cls(np.full(count, mode), uniform, np.ones(count), np.full(count, FILLED), previous, kept)


class Rollouts(NamedTuple):
    """What happened in each of several samples."""

    placements: Ints  # (samples, units)
    features: Singles  # (samples, units, devices, features); of one sample for all, if they are not to be kept
    allowed: Bools  # (samples, units, devices)
    log_probability: Floats  # (samples, units), at a temperature of 1
    filled: Floats  # (samples,) share of its memory that the fullest device needs, by estimate

    @classmethod
    def room_for(cls, layout: RolloutLayout, samples: int, *, keep: bool) -> Rollouts:
        """Buffers for this number of samples."""
        units, devices = layout.unit_seconds.shape
        kept = samples if keep else 1
        return cls(
            placements=np.zeros((samples, units), np.int64),
            features=np.zeros((kept, units, devices, len(Feature)), np.float32),
            allowed=np.zeros((kept, units, devices), np.bool_),
            log_probability=np.zeros((samples, units)),
            filled=np.zeros(samples),
        )

    def put(self, samples: Bools, device: int) -> None:
        """Some of the samples, (samples,) bool, have all their units on a device, without a choice."""
        self.placements[samples] = device
        self.allowed[samples] = np.arange(self.allowed.shape[2]) == device
        self.log_probability[samples] = 0.0


PerDevice = Annotated[Floats, np.float64, "devices"]
PerChannel = Annotated[Floats, np.float64, "channels"]
Devices = Annotated[Ints, np.int64, "devices"]


class RolloutState(NamedTuple):
    """What is placed so far, the unit at hand on every device, and scratch. A field's type names its axes."""

    # what is placed so far
    arrival: Annotated[Floats, np.float64, "ops", "devices"]  # seconds when an output is there; infinite if never
    where: Annotated[Ints, np.int64, "units"]  # device, or -1
    clock: PerDevice  # seconds when the forward ops there have run
    issued: PerDevice  # seconds when each thread has issued all that it has to
    load: PerDevice  # seconds
    traffic: PerDevice  # seconds of transfers out of each device
    placed: Devices  # units
    free: PerChannel  # seconds when it has carried everything
    carried: PerChannel  # seconds of all transfers
    busiest_out: PerDevice  # seconds of the transfers over the busiest channel out of each device
    busiest_in: PerDevice  # and into it
    free_out: PerDevice  # seconds when all channels out of it have carried everything
    in_component: Annotated[Floats, np.float64, "components", "devices"]  # share of all work
    left: PerDevice  # bytes beyond what is held
    live: PerDevice  # bytes of outputs that wait for units to read them
    over: PerDevice  # bytes by which the fullest moment until now exceeds what is held of outputs
    waiting: Annotated[Ints, np.int64, "ops"]  # units that are still to read the output
    present: Annotated[Bools, np.bool_, "tensors", "devices"]
    # units ahead: not placed yet, and on this device in the pass before
    ahead: PerDevice  # seconds of all of them
    ahead_bytes: PerDevice  # of tensors that they hold, and nothing that is there already
    holders: Annotated[Ints, np.int64, "tensors", "devices"]  # how many of them hold the tensor
    # the unit at hand, if it went to this device
    ready: PerDevice  # seconds when its inputs are there
    start: PerDevice  # seconds
    finish: PerDevice  # seconds
    sending: PerDevice  # seconds of transfers of its inputs
    issue: PerDevice  # seconds when its first op has been issued
    calling: PerDevice  # seconds of threads for transfers of its inputs
    cut: PerDevice  # seconds of transfers over its links to placed units
    cut_ahead: PerDevice  # seconds of transfers over its links to units ahead
    need: PerDevice  # bytes that it would add to what is held
    fullest: PerDevice  # bytes that `over` would be
    made: PerDevice  # bytes of its inputs that were made there
    there: PerDevice  # bytes of its inputs that are there
    linked: PerDevice  # bytes of its links to placed units there
    linked_ahead: PerDevice  # bytes of its links to units ahead there
    twin: Devices  # the first of the empty devices that are equal to this one, itself included; of others itself
    choices: Devices  # those that are allowed, and after them anything
    score: PerDevice  # of those
    # scratch
    first_empty: Devices  # of those that are equal to this one, or -1
    known: Annotated[Floats, np.float64, "ops"]  # when an output is on the device that is being looked at
    sent: PerChannel  # seconds that the inputs of the unit at hand would add
    hidden: Annotated[Singles, np.float32, "width"]
    narrow: Annotated[Singles, np.float32, "half width"]

    @classmethod
    def room_for(cls, layout: RolloutLayout, layers: ScoreLayers) -> RolloutState:
        """Buffers for roll-outs of a problem."""
        ops, devices = layout.op_seconds.shape
        sizes = {
            "ops": ops,
            "units": len(layout.order),
            "devices": devices,
            "channels": layout.channels.number,
            "components": len(layout.totals.component_share),
            "tensors": len(layout.tensor_bytes),
            "width": layers.first.shape[1],
            "half width": len(layers.out),
        }
        return cls(
            **{name: np.zeros([sizes[axis] for axis in axes], dtype) for name, (dtype, *axes) in _BUFFERS.items()}
        )


_BUFFERS = {name: hint.__metadata__ for name, hint in get_type_hints(RolloutState, include_extras=True).items()}
