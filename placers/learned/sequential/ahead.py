"""What a later pass of the sequential decoder remembers of the pass before: where the units ahead were placed then.

The first pass sees only what is placed already. A later one also sees where consumers are likely to be, and how full
and how busy devices will be in the end, at no simulation. Every unit but the one at hand counts once:

    layout.order   [ placed ..............  ] [ at hand ] [ ahead ........................... ]
    device          where[unit]                            previous[unit]
    seconds         load                                   ahead
    tensors         present                                holders; ahead_bytes if not present
"""

from envs.simulation.compiled import inlined
from graphs.op_graph import Ints
from placers.learned.sequential.layout import RolloutLayout
from placers.learned.sequential.state import RolloutState


@inlined
def expect_previous(layout: RolloutLayout, state: RolloutState, previous: Ints) -> None:
    """Before anything is placed all units are ahead, where they were; none if this is the first pass."""
    state.ahead[:] = 0.0
    state.ahead_bytes[:] = 0.0
    state.holders[:] = 0
    for unit in range(len(previous)):
        device = previous[unit]
        if device >= 0:
            state.ahead[device] += layout.unit_seconds[unit, device]
            for i in range(layout.held_start[unit], layout.held_start[unit + 1]):
                if state.holders[layout.held[i], device] == 0:
                    state.ahead_bytes[device] += layout.tensor_bytes[layout.held[i]]
                state.holders[layout.held[i], device] += 1


@inlined
def forget_previous(layout: RolloutLayout, state: RolloutState, previous: Ints, unit: int) -> None:
    """The unit at hand is no longer ahead; a tensor that only it held there is no longer held."""
    device = previous[unit]
    if device < 0:
        return
    state.ahead[device] -= layout.unit_seconds[unit, device]
    for i in range(layout.held_start[unit], layout.held_start[unit + 1]):
        tensor = layout.held[i]
        state.holders[tensor, device] -= 1
        if state.holders[tensor, device] == 0 and not state.present[tensor, device]:
            state.ahead_bytes[device] -= layout.tensor_bytes[tensor]
