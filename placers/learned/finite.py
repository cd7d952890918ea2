"""What a policy computes must be finite numbers: with NaN or infinity its placements would mean nothing."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from graphs.foundation.errors import InputError


class NotFiniteError(InputError):
    """A policy's weights, outputs or gradients are not finite numbers."""


def check_outputs(scores: Tensor) -> None:
    """Raise NotFiniteError for scores or log-probabilities with NaN or infinity; minus infinity forbids a device."""
    if not float(scores.detach().sum()) < math.inf:
        raise NotFiniteError("the policy's outputs are not finite numbers")


def are_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether all numbers in all tensors are finite."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)
