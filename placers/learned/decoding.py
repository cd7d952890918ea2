"""Decoding: from a policy's logits to placements worth simulating. GDP's paper samples plainly; all of this is ours."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from envs.held_memory import HeldMemory, Room
from graphs.op_graph import Floats, Ints

HIGHEST_TEMPERATURE = 8.0  # of the last sample; the first has 1
HIGHEST_FILL, LOWEST_FILL = 0.9, 0.7  # shares of the memory to fill by estimate, from the first sample to the last


def candidates(logits: Tensor, held: HeldMemory, count: int, generator: torch.Generator) -> Ints:
    """(count, units) placements from logits (units, devices): the most likely one, then samples of rising temperature.

    Plain samples of a trained policy hardly differ, since its probabilities are close to 0 or 1. A higher temperature
    lets the undecided units vary first. Each placement is made to fit, by an estimate of the memory held.
    """
    temperatures = torch.logspace(0, float(np.log10(HIGHEST_TEMPERATURE)), max(count - 1, 1))[: count - 1]
    drawn = [torch.multinomial((logits / t).softmax(-1), 1, generator=generator).squeeze(-1) for t in temperatures]
    placements = torch.stack([logits.argmax(-1), *drawn]).numpy()
    shares = np.linspace(HIGHEST_FILL, LOWEST_FILL, count)
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
