"""The features that tell what a choice means for the whole: components, balance, channels, and the problem at large."""

import numpy as np

from envs.simulation.compiled import inlined
from graphs.op_graph import Ints
from placers.learned.sequential.decoder_features import Feature
from placers.learned.sequential.layout import RolloutLayout
from placers.learned.sequential.state import RolloutState, Singles

ROOT_OF_HALF = 0x3FE6A09E667F3BCD  # as the bits of a float64
MANTISSA_BITS = 52
LOG_2 = 0.6931471805599453


@inlined
def describe_component(layout: RolloutLayout, state: RolloutState, unit: int, choices: Ints, out: Singles) -> None:
    """Write what is known of the unit's component."""
    component = layout.totals.component[unit]
    share, placed = layout.totals.component_share[component], 0.0
    for device in range(len(out)):
        placed += state.in_component[component, device]
    left, of_fair_share = max(1.0 - placed / max(share, 1e-30), 0.0), signed_log(share * len(out) - 1.0)
    for device in choices:
        x, here = out[device], state.in_component[component, device]
        x[Feature.COMPONENT_HERE] = here / max(placed, 1e-30)
        x[Feature.COMPONENT_PRESENT] = here > 0
        x[Feature.COMPONENT_LEFT] = left
        x[Feature.COMPONENT_SHARE] = share
        x[Feature.COMPONENT_OF_FAIR_SHARE] = of_fair_share


@inlined
def describe_balance(layout: RolloutLayout, state: RolloutState, progress: float, choices: Ints, out: Singles) -> None:
    """Write how far devices are from an even share; `progress` is the share of work that is placed."""
    even, lacked, left = layout.totals.even, 0.0, max(1.0 - progress, 0.0)
    for device in range(len(out)):
        lacked += max(even - state.load[device], 0.0) / max(layout.totals.alone[device], 1e-30)
    for device in choices:
        x, lack = out[device], even - state.load[device]
        x[Feature.LACK] = signed_log(lack / layout.scale)
        x[Feature.LACK_OF_ALL] = max(lack, 0.0) / max(layout.totals.alone[device], 1e-30) / max(lacked, 1e-9)
        x[Feature.BALANCE] = left / max(lacked, left, 1e-9)


@inlined
def describe_channels(layout: RolloutLayout, state: RolloutState, unit: int, choices: Ints, out: Singles) -> None:
    """Write what all channels out of and into each device carry, and what the unit's open links would add."""
    open_bytes = layout.linked_bytes[unit]
    for device in range(len(out)):
        open_bytes -= state.linked[device]
    for device in choices:
        x = out[device]
        x[Feature.OUT_BUSIEST] = signed_log(state.busiest_out[device] / layout.scale)
        x[Feature.OUT_BACKLOG] = signed_log(max(state.free_out[device] - state.clock[device], 0.0) / layout.scale)
        x[Feature.IN_BUSIEST] = signed_log(state.busiest_in[device] / layout.scale)
        seconds = max(open_bytes, 0.0) * layout.totals.least_per_byte[device]
        x[Feature.REMAINING] = signed_log(seconds / layout.scale)


@inlined
def describe_problem(layout: RolloutLayout, choices: Ints, out: Singles) -> None:
    """Write what is the same for all units."""
    known = layout.totals.known
    for device in choices:
        for i in range(known.shape[1]):
            out[device, Feature.ALONE + i] = known[device, i]


@inlined
def describe_host(layout: RolloutLayout, state: RolloutState, choices: Ints, out: Singles) -> None:
    """Write what is known of the threads that issue ops."""
    for device in choices:
        x = out[device]
        x[Feature.HOST_AHEAD], x[Feature.HOST_COPIES] = 0.0, 0.0
        if layout.host.clocked:
            ahead = max(state.clock[device], state.ready[device]) - state.issue[device]
            x[Feature.HOST_AHEAD] = signed_log(ahead / layout.scale)
            x[Feature.HOST_COPIES] = signed_log(state.calling[device] / layout.scale)


@inlined
def signed_log(value: float) -> float:
    """Fine where times differ by an op, coarse where they differ by a step."""
    if value == 0:  # as many are
        return 0.0
    return _log(1.0 + 10.0 * value) if value >= 0 else -_log(1.0 - 10.0 * value)


@inlined
def _log(value: float) -> float:
    """The natural logarithm of a number of at least 1, to 2e-11: a third of the time of the C library's.

    That of the power of two, and of what remains, m between the square roots of 1/2 and 2, by the series of
    log m = 2 artanh((m - 1) / (m + 1)).
    """
    bits = np.float64(value).view(np.int64)
    exponent = (bits - ROOT_OF_HALF) >> MANTISSA_BITS
    remains = np.int64(bits - (exponent << MANTISSA_BITS)).view(np.float64)
    s = (remains - 1.0) / (remains + 1.0)
    z = s * s
    series = 1.0 + z * (1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z / 11))))
    return exponent * LOG_2 + 2.0 * s * series
