"""Batch: several observations as tensors, units and devices padded to the largest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from placers.learned.features import Observation


@dataclass(frozen=True, eq=False)
class Batch:
    """Several problems; padded entries are False in the masks."""

    units: Tensor  # (problems, units, unit features)
    unit_mask: Tensor  # (problems, units) bool
    devices: Tensor  # (problems, devices, device features)
    device_mask: Tensor  # (problems, devices) bool
    pairs: Tensor  # (problems, units, devices, pair features)
    edges: Tensor  # (2, edges) producer, consumer: indices into the flattened (problems * units)

    @classmethod
    def of(cls, observations: Sequence[Observation]) -> Batch:
        """Stack observations of any sizes."""
        units, unit_mask = padded([torch.from_numpy(o.units) for o in observations])
        devices, device_mask = padded([torch.from_numpy(o.devices) for o in observations])
        pairs = units.new_zeros(*units.shape[:2], devices.shape[1], observations[0].pairs.shape[2])
        for i, o in enumerate(observations):
            pairs[i, : o.pairs.shape[0], : o.pairs.shape[1]] = torch.from_numpy(o.pairs)
        edges = [torch.from_numpy(o.edges.T) + i * units.shape[1] for i, o in enumerate(observations)]
        return cls(units, unit_mask, devices, device_mask, pairs, torch.cat(edges, dim=1))


def padded(tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """(rows, longest, ...) tensors, padded with zeros to the longest; (rows, longest) bool, False where padded."""
    lengths = torch.tensor([len(tensor) for tensor in tensors])
    return pad_sequence(list(tensors), batch_first=True), torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
