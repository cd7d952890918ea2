"""Trace: what the sequential decoder saw on the way to placements, from which a network rates them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from envs.simulation.compiled import compiled
from graphs.op_graph import Bools, Ints
from placers.learned.batch import Batch
from placers.learned.sequential.state import Rollouts, Singles

OPEN = -1  # instead of the only device, where there is a choice


@dataclass(frozen=True, eq=False)
class Trace:
    """What the decoder saw while it placed, for every (problem, sample, unit) with more than one device to choose.

    That follows from the placements and not from the policy, so one trace serves all epochs of an update.
    """

    decisions: Tensor  # (decisions,) index into the flattened (problems, samples, units)
    starts: Tensor  # (decisions + 1,) where the rows of each decision begin, one for each device that is allowed
    devices: Tensor  # (rows,) the device of each
    states: Tensor  # (rows,) index into the flattened (problems, units)
    features: Tensor  # (rows, features)
    only: Tensor  # (problems, samples, units) the device that alone is allowed; OPEN where several are, or padded
    log_probability: Tensor  # (problems, samples, units) as the roll-out computed it, under the policy of its time

    def cat(self, other: Trace) -> Trace:
        """Of the samples of both."""
        only = torch.cat([self.only, other.only], 1)
        first, second = self._decisions_in(only.shape, 0), other._decisions_in(only.shape, self.only.shape[1])
        return Trace(
            torch.cat([first, second]),
            torch.cat([self.starts, other.starts[1:] + self.starts[-1]]),
            torch.cat([self.devices, other.devices]),
            torch.cat([self.states, other.states]),
            torch.cat([self.features, other.features]),
            only,
            torch.cat([self.log_probability, other.log_probability], 1),
        )

    def _decisions_in(self, shape: torch.Size, sample: int) -> Tensor:
        """(decisions,) where these samples, from the given one on, are some of those of a larger shape."""
        problems, samples, units = torch.unravel_index(self.decisions, self.only.shape)
        return (problems * shape[1] + samples + sample) * shape[2] + units


def trace_of(done: Sequence[Rollouts], encoded: Batch) -> Trace:
    """Records of problems of different sizes in one, without those that leave no choice."""
    problems, units = encoded.unit_mask.shape
    samples = len(done[0].placements)
    only, log_probability = np.full((problems, samples, units), OPEN), np.zeros((problems, samples, units))
    choices = [rollouts.allowed.sum(axis=2) for rollouts in done]  # (samples, own units) each
    open_ = [each > 1 for each in choices]
    counts = np.concatenate([each[is_open] for each, is_open in zip(choices, open_, strict=True)])
    starts = np.concatenate([[0], np.cumsum(counts)])
    rows = int(starts[-1])
    devices, states = np.empty(rows, np.int64), np.empty(rows, np.int64)
    features = np.empty((rows, done[0].features.shape[3]), np.float32)
    decisions, first = [], 0
    for i, (rollouts, is_open) in enumerate(zip(done, open_, strict=True)):
        own = is_open.shape[1]
        only[i, :, :own] = np.where(is_open, OPEN, rollouts.allowed.argmax(axis=2))
        log_probability[i, :, :own] = rollouts.log_probability
        sample, unit = np.nonzero(is_open)
        decisions.append((i * samples + sample) * units + unit)
        first = _copy_open(rollouts.features, rollouts.allowed, is_open, i * units, first, devices, states, features)
    tensors = np.concatenate(decisions), starts, devices, states, features, only, log_probability
    return Trace(*(torch.from_numpy(each) for each in tensors))


@compiled
def _copy_open(
    seen: Singles, allowed: Bools, is_open: Bools, first_unit: int, first_row: int, devices: Ints, states: Ints,
    features: Singles,
) -> int:  # fmt: skip
    """Write the rows of one problem from the first one on, and return the next."""
    row = first_row
    for sample in range(is_open.shape[0]):
        for unit in range(is_open.shape[1]):
            if is_open[sample, unit]:
                for device in range(allowed.shape[2]):
                    if allowed[sample, unit, device]:
                        devices[row], states[row] = device, first_unit + unit
                        for i in range(features.shape[1]):
                            features[row, i] = seen[sample, unit, device, i]
                        row += 1
    return row
