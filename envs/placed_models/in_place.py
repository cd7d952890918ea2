"""Which of its arguments a call changes: it runs where that one lies, since elsewhere it would change a copy."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor

from envs.placed_models.arguments import tensors_of

_NAMED_OTHERWISE = {"__setitem__", "__set__"}  # by index, or an attribute such as `data`
_NO_CHANGE = {"__invert__", "__index__", "__int__"}  # which begin as __iadd__ does


def changed_argument(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The tensor that a call changes, or the first of several, as far as its name and its arguments say it."""
    out = kwargs.get("out")
    if out is not None:
        return next(tensors_of(out), None)
    name = str(getattr(function, "__name__", ""))
    return next(tensors_of(args), None) if changes_by_name(name) or _asks_for(function, args, kwargs) else None


def changes_by_name(name: str) -> bool:
    """Whether a function of this name changes its first argument: `add_`, `__iadd__`."""
    if name.startswith("__") and name.endswith("__"):
        return name in _NAMED_OTHERWISE or (name.startswith("__i") and name not in _NO_CHANGE)
    return name.endswith("_")


def _asks_for(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an argument `inplace` is true."""
    if kwargs.get("inplace"):
        return True
    position = _position_of_inplace(function)
    return position is not None and len(args) > position and bool(args[position])


@cache
def _position_of_inplace(function: Callable[..., Any]) -> int | None:
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # of a function in C, which has no such argument
        return None
    return names.index("inplace") if "inplace" in names else None
