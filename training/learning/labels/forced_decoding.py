"""Forced decoding: how likely a policy finds given placements, decision by decision, and which it can never choose.

A decoder masks what it takes for impossible: devices that are full by its estimate of memory, and, of equal devices
that are still empty, all but the first. What it masks it cannot learn, however often it is shown.
"""

import torch

from graphs.op_graph import Floats, Ints
from placers.learned.policy import A, Batch, Policy, View

IMPOSSIBLE = -1e6  # log-probability below which a decision is masked


@torch.no_grad()
def likelihoods(policy: Policy[View, Batch, A], view: View, placements: Ints) -> Floats:
    """(placements,) mean log-probability per decision, of (placements, units), one or more, of the problem of a view.

    About as low as IMPOSSIBLE for what the policy cannot choose in one pass. Equal devices are renamed as the policy
    would have named them.
    """
    batch = policy.stack([view] * len(placements))
    scores = policy.score(batch, policy.actions_of(batch, list(placements)))
    of_decisions = scores.log_probability[:, 0] * scores.of_devices  # 0 where masked as padding
    mean: Floats = (of_decisions.double().sum(dim=1) / scores.of_devices[0].sum().clamp_min(1)).numpy()
    return mean
