"""The features that tell what a choice means for the whole: components, balance, channels, and the problem at large."""

import math

from envs.simulation.compiled import inlined
from placers.learned.sequential.decoder_features import Feature
from placers.learned.sequential.layout import RolloutLayout
from placers.learned.sequential.state import RolloutState, Singles


@inlined
def describe_component(layout: RolloutLayout, state: RolloutState, unit: int, out: Singles) -> None:
    """Write what is known of the unit's component."""
    component = layout.totals.component[unit]
    share, placed = layout.totals.component_share[component], 0.0
    for device in range(len(out)):
        placed += state.in_component[component, device]
    left, of_fair_share = max(1.0 - placed / max(share, 1e-30), 0.0), signed_log(share * len(out) - 1.0)
    for device in range(len(out)):
        x, here = out[device], state.in_component[component, device]
        x[Feature.COMPONENT_HERE] = here / max(placed, 1e-30)
        x[Feature.COMPONENT_PRESENT] = here > 0
        x[Feature.COMPONENT_LEFT] = left
        x[Feature.COMPONENT_SHARE] = share
        x[Feature.COMPONENT_OF_FAIR_SHARE] = of_fair_share


@inlined
def describe_balance(layout: RolloutLayout, state: RolloutState, progress: float, out: Singles) -> None:
    """Write how far devices are from an even share; `progress` is the share of work that is placed."""
    even, lacked, left = layout.totals.even, 0.0, max(1.0 - progress, 0.0)
    for device in range(len(out)):
        lacked += max(even - state.load[device], 0.0) / max(layout.totals.alone[device], 1e-30)
    for device in range(len(out)):
        x, lack = out[device], even - state.load[device]
        x[Feature.LACK] = signed_log(lack / layout.scale)
        x[Feature.LACK_OF_ALL] = max(lack, 0.0) / max(layout.totals.alone[device], 1e-30) / max(lacked, 1e-9)
        x[Feature.BALANCE] = left / max(lacked, left, 1e-9)


@inlined
def describe_channels(layout: RolloutLayout, state: RolloutState, unit: int, out: Singles) -> None:
    """Write what all channels out of and into each device carry, and what the unit's open links would add."""
    open_bytes = layout.linked_bytes[unit]
    for device in range(len(out)):
        open_bytes -= state.linked[device]
    for device in range(len(out)):
        x, busiest_out, busiest_in, free = out[device], 0.0, 0.0, 0.0
        for other in range(len(out)):
            if other != device:
                leaving, coming = layout.channel[device, other], layout.channel[other, device]
                busiest_out = max(busiest_out, state.carried[leaving])
                busiest_in = max(busiest_in, state.carried[coming])
                free = max(free, state.free[leaving])
        x[Feature.OUT_BUSIEST] = signed_log(busiest_out / layout.scale)
        x[Feature.OUT_BACKLOG] = signed_log(max(free - state.clock[device], 0.0) / layout.scale)
        x[Feature.IN_BUSIEST] = signed_log(busiest_in / layout.scale)
        seconds = max(open_bytes, 0.0) * layout.totals.least_per_byte[device]
        x[Feature.REMAINING] = signed_log(seconds / layout.scale)


@inlined
def describe_problem(layout: RolloutLayout, out: Singles) -> None:
    """Write what is the same for all units."""
    known = layout.totals.known
    for device in range(len(out)):
        for i in range(known.shape[1]):
            out[device, Feature.ALONE + i] = known[device, i]


@inlined
def describe_host(layout: RolloutLayout, state: RolloutState, out: Singles) -> None:
    """Write what is known of the threads that issue ops."""
    for device in range(len(out)):
        x = out[device]
        x[Feature.HOST_AHEAD], x[Feature.HOST_COPIES] = 0.0, 0.0
        if layout.host.clocked:
            ahead = max(state.clock[device], state.ready[device]) - state.issue[device]
            x[Feature.HOST_AHEAD] = signed_log(ahead / layout.scale)
            x[Feature.HOST_COPIES] = signed_log(state.calling[device] / layout.scale)


@inlined
def signed_log(value: float) -> float:
    """Fine where times differ by an op, coarse where they differ by a step."""
    if value == 0:  # as many are; a logarithm takes longer than all else that is done for a feature
        return 0.0
    return math.log1p(10.0 * value) if value >= 0 else -math.log1p(-10.0 * value)
