"""The tensors among a call's arguments, or of what it returns, and what a decision about the call rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

_NESTED = (tuple, list, dict)
_NUMBERS = frozenset({int, float, str, type(None), slice, torch.dtype, torch.Size})

Given = tuple[tuple[Any, ...], dict[str, Any]]  # to a call: its arguments
Guard = list[object]  # what two calls have in common for which the same is decided


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors of arguments, or of what a function returns."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from tensors_of(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from tensors_of(each)


def mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Arguments with each tensor replaced."""
    if isinstance(value, Tensor):
        return function(value)
    if type(value) in (tuple, list):
        return type(value)([mapped(each, function) for each in value])
    if type(value) is dict:
        return {key: mapped(each, function) for key, each in value.items()}
    return value


def guard_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Guard:
    """What a decision about a call rests on: where its tensors lie, its truth values, and the names of its arguments.

    None for another argument that holds no tensor, which does not matter.
    """
    found: Guard = list(kwargs)
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind is Tensor or kind is Parameter:
            found.append(value.device)
        elif kind in _NUMBERS:
            found.append(None)
        elif kind is bool:
            found.append(value)
        elif isinstance(value, _NESTED):
            found.append([tensor.device for tensor in tensors_of(value)])
        else:
            found.append(value.device if isinstance(value, Tensor) else None)
    return found
