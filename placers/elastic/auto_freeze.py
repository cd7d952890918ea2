"""AutoFreeze: how many layers are frozen in each epoch (He et al. 2021, section 3.1).

A share alpha of the layers that are still trained may freeze after each epoch. With 12 layers and alpha = 1/3:

    epoch    0   1   2     3     4     ...
    L        0   4   6.67  8.44  9.63
    frozen   0   4   7     9     10
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphs.foundation.errors import InputError
from graphs.op_graph import Floats

DIGITS = 9  # an L is rounded to, before it is rounded up: a sum of floats may be a little above a whole number


def recurrence(layers: int, alpha: float, epoch: int) -> float:
    """L of an epoch, from 0: L_T = L_(T-1) + alpha (layers - L_(T-1)). Raises InputError if alpha is no share."""
    _check(alpha)
    frozen = 0.0
    for _ in range(epoch):
        frozen += alpha * (layers - frozen)
    return frozen


def closed_form(layers: int, alpha: float, epoch: int) -> float:
    """The same L: layers (1 - (1 - alpha)^T), in the released program as a sum. Raises InputError likewise."""
    _check(alpha)
    return layers * (1 - (1 - alpha) ** epoch)


def frozen_layers(layers: int, alpha: float, epochs: int) -> tuple[int, ...]:
    """(epochs,) layers that are frozen in each epoch: L, rounded up. Raises InputError likewise."""
    return tuple(_rounded_up(closed_form(layers, alpha, epoch)) for epoch in range(epochs))


def frozen_by_gradients(norms: Sequence[Sequence[float]] | Floats, alpha: float) -> tuple[int, ...]:
    """(epochs + 1,) layers that are frozen in each epoch, given what the gradients of layers were, (epochs, layers).

    L_T is at most the number of the layer with the least norm among those that are still trained, numbered from 1: the
    first layers freeze up to that one. (The paper counts the last frozen layer among them, which has no gradient; this
    is our reading.) Raises InputError likewise.
    """
    _check(alpha)
    given = np.asarray(norms, np.float64)
    layers, reached, found = given.shape[1], 0.0, [0]
    for of_layers in given:
        frozen = found[-1]
        if frozen < layers:
            least = frozen + int(of_layers[frozen:].argmin()) + 1
            reached = min(reached + alpha * (layers - reached), float(least))
        found.append(max(frozen, _rounded_up(reached)))
    return tuple(found)


def _rounded_up(value: float) -> int:
    return math.ceil(round(value, DIGITS))


def _check(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise InputError(f"alpha is {alpha}: the share of the trained layers that freeze is more than 0, less than 1")
