"""A sequential policy whose every layer matters: a new one's last layers are all but 0."""

import torch

from placers.learned.sequential.policy import SequentialPolicy

NETWORK = "sequential:width=16,heads=2,hidden=16,sage_layers=1"


def bold(seed: int = 0, network: str = NETWORK, *, spread: float = 0.2) -> SequentialPolicy:
    """A new policy with noise in all its weights."""
    policy = SequentialPolicy.new(network, seed)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(spread * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)))
    return policy
