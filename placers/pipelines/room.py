"""Room: memory that plans for requests leave on each device, for what is kept of each while it is served: KV caches.

The more requests a device has room for, the more it computes at a time, and the faster it is; how much faster, no graph
of a forward pass says. Helix's profile of LLaMA-2 70B does, from A100 to T4 (Mei et al., ASPLOS 2025): plans that leave
a third of what it gives to weights pass 31% and 43% more requests than those that fill it, on its 42 and 24 nodes.
"""

from dataclasses import replace

from envs.objectives import has_requests
from envs.simulation.held_memory import HeldMemory
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats
from graphs.problem import Problem

ROOM = 1 / 3
FILLED = 0.95  # of what is left, by weights: the rest is for what passes through; ours


def check_room(share: float) -> None:
    """Raise InputError for what is no share of the memory."""
    if not 0 <= share < 1:
        raise InputError(f"planner: room is {share}; expected a share of each device's memory, from 0 to less than 1")


def with_room(problem: Problem, share: float) -> Problem:
    """The problem with so much less memory on each device, if it is of requests; or itself.

    That it is, too, where each device has room for all weights, and where there would be no room for them all.
    """
    memory, held = problem.cluster.memory_bytes * (1 - share), HeldMemory.of(problem).per_unit
    if not share or not has_requests(problem) or memory.min() >= held.sum():
        return problem
    if not _can_hold(FILLED * memory, held[problem.units.order]):
        return problem
    devices = tuple(
        replace(each, memory_bytes=each.memory_bytes * (1 - share), reserved_bytes=each.reserved_bytes * (1 - share))
        for each in problem.cluster.devices
    )
    return replace(problem, cluster=replace(problem.cluster, devices=devices))


def _can_hold(memory: Floats, held: Floats) -> bool:
    """Whether devices, (devices,) bytes, can hold units that follow one another, (units,): the roomiest the first."""
    devices, left = sorted(memory.tolist()), 0.0
    for size in held.tolist():
        while size > left:
            if not devices:
                return False
            left = devices.pop()
        left -= size
    return True


def said_of_room(share: float) -> str:
    """A sentence on what was left free."""
    return (
        f"planner: {share:.0%} of each device's memory is left free for what is kept of requests while they are "
        "served, such as KV caches; planner:room=0 fills it."
    )
