"""Divergence: a training whose loss, gradients, weights or outputs stop being numbers ends at that update.

What it learned until then is in the run's last checkpoint; nothing that is no number is ever saved.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.utils import clip_grad_norm_

from graphs.foundation.errors import InputError
from placers.learned.finite import NotFiniteError, are_finite


def descend(optimizer: torch.optim.Optimizer, largest_norm: float) -> float:
    """Take a step along the gradients, scaled down to `largest_norm` if they are larger; returns their norm before.

    Raises NotFiniteError for gradients, and so for a loss, that are not finite, or if the weights then are not.
    """
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    norm = clip_grad_norm_(weights, largest_norm)
    if not torch.isfinite(norm):
        raise NotFiniteError("the gradients are not finite numbers")
    optimizer.step()
    if not are_finite(weights):
        raise NotFiniteError("the weights are not finite numbers")
    return float(norm)


@contextmanager
def stops_where_it_diverges(update: int, optimizer: torch.optim.Optimizer, *, of: str = "training") -> Iterator[None]:
    """What is no finite number inside ends the run. Raises InputError with the number of the update."""
    try:
        yield
    except NotFiniteError as error:
        rate = optimizer.param_groups[0]["lr"]
        raise InputError(
            f"{of} diverged at update {update}: {error}; take a lower learning rate (here it was {rate:g})"
        ) from error
