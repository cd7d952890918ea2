"""Trace: what the sequential decoder saw on the way to placements, from which a network rates them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from placers.learned.batch import Batch
from placers.learned.sequential.state import Rollouts


@dataclass(frozen=True, eq=False)
class Trace:
    """What the decoder saw while it placed, for every (problem, sample, unit) with more than one device to choose.

    That follows from the placements and not from the policy, so one trace serves all epochs of an update.
    """

    rows: Tensor  # (rows,) allowed devices: index into the flattened (problems, samples, units, devices), ascending
    states: Tensor  # (rows,) index into the flattened (problems, units)
    features: Tensor  # (rows, features)
    allowed: Tensor  # (problems, samples, units, devices) bool
    log_probability: Tensor  # (problems, samples, units) as the roll-out computed it, under the policy of its time

    def cat(self, other: Trace) -> Trace:
        """Of the samples of both."""
        allowed = torch.cat([self.allowed, other.allowed], 1)
        first, second = self._rows_in(allowed.shape, 0), other._rows_in(allowed.shape, self.allowed.shape[1])
        rows, order = torch.cat([first, second]).sort()
        return Trace(
            rows,
            torch.cat([self.states, other.states])[order],
            torch.cat([self.features, other.features])[order],
            allowed,
            torch.cat([self.log_probability, other.log_probability], 1),
        )

    def _rows_in(self, shape: torch.Size, sample: int) -> Tensor:
        """(rows,) the rows where these samples, from the given one on, are some of those of a larger shape."""
        problems, samples, units, devices = torch.unravel_index(self.rows, self.allowed.shape)
        return ((problems * shape[1] + samples + sample) * shape[2] + units) * shape[3] + devices


def trace_of(done: Sequence[Rollouts], encoded: Batch) -> Trace:
    """Records of problems of different sizes in one, without the rows that leave no choice."""
    problems, units = encoded.unit_mask.shape
    samples = len(done[0].placements)
    devices = encoded.device_mask.shape[1]
    allowed = np.zeros((problems, samples, units, devices), np.bool_)
    log_probability = np.zeros((problems, samples, units))
    rows, states, features = [], [], []
    for i, rollouts in enumerate(done):
        _, own_units, own_devices = rollouts.allowed.shape
        allowed[i, :, :own_units, :own_devices] = rollouts.allowed
        log_probability[i, :, :own_units] = rollouts.log_probability
        open_ = rollouts.allowed & (rollouts.allowed.sum(axis=2, keepdims=True) > 1)
        sample, unit, device = np.nonzero(open_)
        rows.append(np.ravel_multi_index((np.full(len(unit), i), sample, unit, device), allowed.shape))
        states.append(i * units + unit)
        features.append(rollouts.features[open_])
    return Trace(
        torch.from_numpy(np.concatenate(rows)),
        torch.from_numpy(np.concatenate(states)),
        torch.from_numpy(np.concatenate(features)),
        torch.from_numpy(allowed),
        torch.from_numpy(log_probability),
    )
