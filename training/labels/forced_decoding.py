"""Forced decoding: how likely a policy finds given placements, decision by decision, and which it can never choose.

A decoder masks what it takes for impossible: devices that are full by its estimate of memory, and, of equal devices
that are still empty, all but the first. What it masks it cannot learn, however often it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphs.op_graph import Bools, Floats, Ints
from placers.learned.policy import A, Batch, Policy, View

IMPOSSIBLE = -1e6  # log-probability below which a decision is masked


@dataclass(frozen=True, eq=False)
class ForcedDecoding:
    """What a policy thinks of placements of one problem, decision by decision."""

    log_probability: Tensor  # (placements, decisions), 0 where masked as padding
    mask: Tensor  # (decisions,) bool, False where padded

    @property
    def expressible(self) -> Bools:
        """(placements,) whether the policy may choose all of it in one pass."""
        found: Bools = (self.log_probability > IMPOSSIBLE).all(dim=1).numpy()
        return found

    @property
    def likelihood(self) -> Floats:
        """(placements,) mean log-probability per decision; about as low as IMPOSSIBLE for what is not expressible."""
        mean: Floats = (self.log_probability.double().sum(dim=1) / self.mask.sum().clamp_min(1)).numpy()
        return mean


@torch.no_grad()
def forced_decoding(policy: Policy[View, Batch, A], view: View, placements: Ints) -> ForcedDecoding:
    """Rate placements, (placements, units), one or more, of the problem of a view.

    Equal devices are renamed as the policy would have named them.
    """
    batch = policy.stack([view] * len(placements))
    scores = policy.score(batch, policy.actions_of(batch, list(placements)))
    return ForcedDecoding(scores.log_probability[:, 0] * scores.of_devices, scores.of_devices[0])
