"""Repair: a placement that holds too much memory somewhere, changed until it fits, at little more traffic."""

import numpy as np
from scipy.sparse import csr_array

from envs.simulation.held_memory import HeldMemory
from graphs.op_graph import Bools, Ints
from graphs.op_groups.units import Units


def repaired(units: Units, held: HeldMemory, placement: Ints, where: Bools | None = None) -> Ints:
    """(units,) the placement (units,) with units moved off overfull devices; unchanged if it fits.

    One unit at a time is moved from the fullest device to one with room for it: the unit whose move adds the fewest
    bytes of traffic per byte that it frees of those too many; until all fits or no single move helps. Every move lowers
    the overflow. `where`, (units, devices), says where units may run, if not anywhere.
    """
    placement = placement.copy()
    devices = np.arange(len(held.limits))
    offsets, neighbours, links = units.neighbours
    # (units, units) bytes that pass between two units; (units, tensors) 1 where a unit holds a tensor
    traffic: csr_array = csr_array((units.link_bytes[links], neighbours, offsets), shape=(len(units), len(units)))
    shape = (len(units), len(held.tensor_bytes))
    holds: csr_array = csr_array((np.ones(len(held.holders)), tuple(held.holders.T)), shape=shape)
    copies = holds.T @ np.eye(len(devices))[placement]  # (tensors, devices) units of the device that hold the tensor
    while True:
        room = held.limits - held.tensor_bytes @ (copies > 0)
        full = int(room.argmin())
        if room[full] >= 0:
            return placement
        movable = np.flatnonzero(placement == full)
        held_here = holds[movable]
        freed = held_here @ (held.tensor_bytes * (copies[:, full] == 1))
        needed = held_here @ (held.tensor_bytes[:, None] * (copies == 0))
        near = traffic[movable] @ np.eye(len(devices))[placement]  # (movable, devices) bytes to units there
        relief = np.minimum(freed, -room[full])[:, None]
        allowed = (needed <= room) & (relief > 0) & (devices != full)
        if where is not None:
            allowed &= where[movable]
        if not allowed.any():
            return placement
        cost = np.where(allowed, (near[:, [full]] - near) / np.where(relief > 0, relief, 1.0), np.inf)
        row, device = divmod(int(cost.argmin()), len(devices))
        tensors = held.tensors_of(int(movable[row]))
        copies[tensors, full] -= 1
        copies[tensors, device] += 1
        placement[movable[row]] = device
