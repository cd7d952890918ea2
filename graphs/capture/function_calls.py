"""Calls: every call of a PyTorch function in a module's code has a name that is the same whenever the module runs.

The name is the path of the module whose code runs, the function, and how often that module has called that function
before in the same step. Capture notes the call that each op comes from. A `TorchFunctionMode` over the real module sees
the same calls in the same order, so it can do with each what a plan says.

A `torch.autograd.Function` has a gradient of its own, which knows nothing of the calls in its forward: it is one call,
"Reversal.apply", and those belong to it. No mode sees it; `Function.apply` is replaced as long as one is entered.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.autograd import Function
from torch.fx import GraphModule
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils.checkpoint import CheckpointFunction

from graphs.op_graph import Call


class FunctionCalls(TorchFunctionMode):
    """Sees the calls that are made while it is entered, and names them; `run` says what is done with each."""

    def __init__(self, paths: Sequence[str]) -> None:
        """`paths` ends in the path of the module whose code runs at any time; `module_paths` gives it."""
        super().__init__()
        self._paths = paths
        self.made: Counter[tuple[str, str]] = Counter()  # calls so far, by module and function
        self.within: Call | None = None  # the autograd function whose forward runs

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls the function; what it calls itself is part of it, and has no name of its own."""
        call = self._named(function_name(func)) if self.within is None else self.within
        return self.run(call, func, args, kwargs or {})

    def _named(self, function: str) -> Call:
        made = self._paths[-1], function
        call = Call(*made, self.made[made])
        self.made[made] += 1
        return call

    def run(self, call: Call, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the call returns."""
        del call  # all are run alike here
        return function(*args, **kwargs)

    # ---- autograd functions ------------------------------------------------------------------------------

    def __enter__(self) -> FunctionCalls:
        _seen_functions(1)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        _seen_functions(-1)

    def named_apply(self, function: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Applies an autograd function that the module's code applies; one that another applies is part of that."""
        if self.within is not None or issubclass(function, CheckpointFunction):  # whose code is the module's own
            return _apply(function, args, kwargs)
        self.within = self._named(f"{function.__name__}.apply")
        try:
            return self.apply(self.within, function, args, kwargs)
        finally:
            self.within = None

    def apply(self, call: Call, function: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the autograd function returns; the calls in its forward are given to `run` as this call."""
        del call
        return _apply(function, args, kwargs)


_own_apply = vars(Function)["apply"]
_lock = threading.Lock()
_modes = 0  # how many are entered, in all threads


def _apply(function: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _own_apply.__get__(None, function)(*args, **kwargs)


def _seen_functions(more: int) -> None:
    """Count the modes that are entered, as long as which `Function.apply` tells the mode of its thread."""
    global _modes
    with _lock:
        _modes += more
        Function.apply = classmethod(_applied) if _modes else _own_apply  # type: ignore[assignment,method-assign]


def _applied(function: type[Function], *args: Any, **kwargs: Any) -> Any:
    """In place of `Function.apply`."""
    # without the mode that runs another call, of which this is part
    modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    mode = next((each for each in reversed(modes) if isinstance(each, FunctionCalls)), None)
    is_hidden = torch._C._is_torch_function_all_disabled() or torch._C._are_functorch_transforms_active()
    if mode is None or is_hidden:
        return _apply(function, args, kwargs)
    return mode.named_apply(function, args, kwargs)


def function_name(function: Callable[..., Any]) -> str:
    """The name of a function that can be overridden, "linear"; of an attribute of a tensor, "T"."""
    name = getattr(function, "__name__", type(function).__name__)
    if name in ("__get__", "__set__"):
        name = getattr(getattr(function, "__self__", None), "__name__", name)
    return str(name)


@contextmanager
def module_paths(module: nn.Module) -> Iterator[list[str]]:
    """The paths of the modules whose code runs, the innermost last; "" for the module itself.

    A module that is registered under several names has the first. As in the exporter, what belongs to the call of a
    module includes its hooks, and a module that was itself traced is part of the one that calls it.
    """
    path_of = {id(part): path for path, part in module.named_modules() if not isinstance(part, GraphModule)}
    paths = [""]
    call = nn.Module.__call__

    def called(part: nn.Module, *args: Any, **kwargs: Any) -> Any:
        path = path_of.get(id(part))
        if path is None:
            return call(part, *args, **kwargs)
        paths.append(path)
        try:
            return call(part, *args, **kwargs)
        finally:
            paths.pop()

    nn.Module.__call__ = called  # type: ignore[method-assign]
    try:
        yield paths
    finally:
        nn.Module.__call__ = call  # type: ignore[method-assign]
