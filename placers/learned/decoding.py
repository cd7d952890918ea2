"""Decoding: from a policy's logits to placements worth simulating. GDP's paper samples plainly; all of this is ours."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from envs.held_memory import HeldMemory, Room
from graphs.op_graph import Floats, Ints

HOTTEST = 8.0  # temperature of the last sample
FULLEST, EMPTIEST = 0.9, 0.7  # shares of the memory that the estimate may fill, from the first sample to the last


def candidates(logits: Tensor, held: HeldMemory, count: int, generator: torch.Generator) -> Ints:
    """(count, units) placements from logits (units, devices): the most likely one, then ever bolder samples.

    A trained policy is so sure of itself that plain samples hardly differ. So the temperature rises from 1 to HOTTEST,
    which lets the undecided units vary first. Each placement is made to fit, by an estimate of the memory held.
    """
    temperatures = torch.logspace(0, float(np.log10(HOTTEST)), max(count - 1, 1))[: count - 1]
    drawn = [torch.multinomial((logits / t).softmax(-1), 1, generator=generator).squeeze(-1) for t in temperatures]
    placements = torch.stack([logits.argmax(-1), *drawn]).numpy()
    shares = np.linspace(FULLEST, EMPTIEST, count)
    preferred = logits.numpy().astype(np.float64)
    return np.stack([made_to_fit(p, preferred, held, share) for p, share in zip(placements, shares, strict=True)])


def made_to_fit(placement: Ints, preferred: Floats, held: HeldMemory, share: float) -> Ints:
    """(units,) the placement, if its held memory fits in a share of each device's; else repaired unit by unit.

    A unit whose device is full goes to the device with room that is preferred most, `preferred` being (units,
    devices); if none has room, to the one with most memory left.
    """
    if (held.on_devices(placement) <= held.limits * share).all():
        return placement
    room = Room(held, share)
    repaired = placement.copy()
    for unit, device in enumerate(placement):
        left = room.after(unit)
        if left[device] < 0:
            fitting = np.flatnonzero(left >= 0)
            repaired[unit] = fitting[preferred[unit, fitting].argmax()] if len(fitting) else left.argmax()
        room.take(unit, int(repaired[unit]))
    return repaired
