"""Nested tensors: those that a model is given or returns in tuples, dicts, dataclasses, caches or other objects."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from graphs.foundation.errors import InputError

_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, nn.Module)


class NotCopiedError(InputError):
    """An object whose tensors cannot be found, as it cannot be copied; the message says which, and the remedy."""


def tensors_in(value: object) -> list[Tensor]:
    """All tensors in a value, in its order, those in objects of any class among them; each as often as it is there.

    Raises NotCopiedError for an object that cannot be copied.
    """
    found: list[Tensor] = []

    def noted(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    with_tensors(value, noted)
    return found


def with_tensors(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """The value with each tensor replaced by what a function makes of it; objects are copied, modules in them are not.

    Raises NotCopiedError for an object that cannot be copied.
    """

    def replaced(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return function(leaf)
        return leaf if isinstance(leaf, _PLAIN) or callable(leaf) else _copied(leaf, function)

    return tree_map(replaced, value)


def results_and_states(returned: object) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors that a module returns: its results, and those in objects that it returns besides, such as caches.

    Results are in tuples, lists, dicts and dataclasses, of which the loss is made. Where there are none, all are.
    """
    results, states = list[Tensor](), list[Tensor]()
    stack: list[object] = [returned]
    while stack:
        for leaf in tree_leaves(stack.pop(0)):
            if isinstance(leaf, Tensor):
                results.append(leaf)
            elif is_dataclass(leaf) and not isinstance(leaf, type):
                stack.append([getattr(leaf, each.name, None) for each in fields(leaf)])
            else:
                states += tensors_in(leaf)
    return (results, states) if results else (states, [])


def first_dimension(inputs: object) -> int:
    """The first dimension of all tensors, if it is the same, or 0; a tensor of a single number has none.

    One of 1 may be repeated for all samples, as that of positions (1, length) next to tokens (samples, length).
    """
    sizes = {len(tensor) for tensor in tensors_in(inputs) if tensor.dim()}
    sizes = sizes - {1} or sizes
    return sizes.pop() if len(sizes) == 1 else 0


class _Replacing(TorchFunctionMode):
    """Deep copies of tensors are what a function makes of them."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is Tensor.__deepcopy__:
            return self.function(args[0])
        return func(*args, **(kwargs or {}))


def _copied(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """An object with other tensors, copied as its class says."""
    try:
        with _Replacing(function):
            return deepcopy(value)
    except (TypeError, AttributeError, NotImplementedError, RuntimeError) as error:
        kind = type(value).__name__
        raise NotCopiedError(
            f"an object of type {kind} cannot be copied, so that its tensors cannot be found ({error}); give tensors "
            "alone, or in tuples, lists, dicts and dataclasses"
        ) from error
