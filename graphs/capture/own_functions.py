"""Own functions: calls of `torch.autograd.Function`s, whose backward pass the user has written."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock, patch

import torch
from torch import Tensor
from torch.autograd.function import _SingleLevelFunction
from torch.fx import Node
from torch.utils._python_dispatch import _disable_current_modes

Apply = Callable[..., Any]
Mode = Callable[[], AbstractContextManager[object]]

_OF_OPERATIONS = "GeneratedBackwardFor_"  # what torch.library makes of an operation whose gradient is registered


@dataclass(frozen=True, eq=False)
class OwnCall:
    """A call of a custom function that sends gradients back."""

    function: type
    line: str  # of the user's code that calls it; "" if there is none
    arguments: tuple[Any, ...]  # with a node in place of each tensor
    nodes: tuple[Node, ...]  # what its forward pass runs
    returned: Any  # a node, or a tuple with nodes in place of tensors
    is_pure: bool  # whether it leaves its arguments as they are

    @property
    def called(self) -> str:
        """What it is and where: "Swish at model.py:12"."""
        return f"{self.function.__name__}{f' at {self.line}' if self.line else ''}"


@contextmanager
def functions_seen(called: Callable[[type, Apply, tuple[Any, ...]], Any]) -> Iterator[None]:
    """Inside, a custom function's `apply` is `called` instead: with the function's class, its `apply`, and arguments.

    Also one that was bound to a name before (`relu = MyReLU.apply`): all go through the class that is patched here.
    """

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        own = super(_SingleLevelFunction, cls).apply  # type: ignore[misc]
        if cls.__name__.startswith(_OF_OPERATIONS):
            return own(*args, **kwargs)
        return called(cls, lambda *given: own(*given, **kwargs), args)

    _SingleLevelFunction.apply = classmethod(apply)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del _SingleLevelFunction.apply  # type: ignore[attr-defined]


@contextmanager
def asking(tensors: list[Tensor]) -> Iterator[None]:
    """Inside, these tensors require gradients, so that a custom function of them has a backward pass."""
    with torch._C.DisableTorchFunction():
        asked = [tensor for tensor in tensors if not tensor.requires_grad]
        for tensor in asked:
            tensor.requires_grad_()
    try:
        yield
    finally:
        with torch._C.DisableTorchFunction():
            for tensor in asked:
                tensor.requires_grad_(False)


class ComputesGradientsError(Exception):
    """A custom function's backward pass computes gradients by torch.autograd, whose operations cannot be recorded."""


def own_gradients(returned: object, mode: Mode) -> tuple[list[Tensor], list[bool]]:
    """Of what a custom function has returned the tensors with a gradient, and which of its arguments it gives one.

    Its backward pass is run, on tensors without data in their `mode`. Raises whatever that raises, and
    ComputesGradientsError.
    """
    outputs = returned if isinstance(returned, tuple) else (returned,)
    refused = {name: Mock(side_effect=ComputesGradientsError) for name in ("backward", "grad")}
    with (
        torch._C.DisableTorchFunction(),
        _disable_current_modes(),
        mode(),
        torch.no_grad(),
        patch.multiple(torch.autograd, **refused),
    ):
        made = [each for each in outputs if isinstance(each, Tensor) and each.grad_fn is not None]
        if not made:
            return [], []
        arriving = [
            torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device=each.device)
            if isinstance(each, Tensor)
            else None
            for each in outputs
        ]
        given = made[0].grad_fn.apply(*arriving)  # type: ignore[union-attr]  # of a function in Python
    return made, [each is not None for each in (given if isinstance(given, tuple) else (given,))]
