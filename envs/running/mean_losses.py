"""Means of losses of DTensors: PyTorch divides the gradients of some by the elements of a part, not of the whole.

In PyTorch 2.13 so are those of `mse_loss`, `smooth_l1_loss`, `huber_loss`, `binary_cross_entropy`, `soft_margin_loss`:
on two devices they are twice too large. As losses of all elements, and the mean of these, they are right.
"""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_WRONG: tuple[Callable[..., Any], ...] = (
    F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy, F.soft_margin_loss,
)  # fmt: skip


class MeanLosses(TorchFunctionMode):
    """Inside, the means of these losses are taken apart."""

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """What the function returns."""
        if func not in _WRONG:
            return func(*args, **kwargs or {})
        given = _signature(func).bind(*args, **kwargs or {})
        given.apply_defaults()
        named = dict(given.arguments)
        is_mean = named["reduction"] == "mean" and named.get("size_average") is None and named.get("reduce") is None
        if not is_mean or (func is F.mse_loss and named.get("weight") is not None):  # which is a mean of another kind
            return func(*args, **kwargs or {})
        return func(**named | {"reduction": "none"}).mean()


@cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)
