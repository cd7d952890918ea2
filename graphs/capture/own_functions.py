"""Own functions: calls of `torch.autograd.Function`s, whose backward pass the user has written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.autograd.function import _SingleLevelFunction

Apply = Callable[..., Any]

_OF_OPERATIONS = "GeneratedBackwardFor_"  # what torch.library makes of an operation whose gradient is registered


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
