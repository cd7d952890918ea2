"""Calls: every call of a PyTorch function in a module's code has a name that is the same whenever the module runs.

The name is the path of the module whose code runs, the function, and how often that module has called that function
before in the same step. Capture notes the call that each op comes from. A `TorchFunctionMode` over the real module sees
the same calls in the same order, so it can do with each what a plan says.

A `torch.autograd.Function` has a gradient of its own, which knows nothing of the calls in its forward: it is one call,
"Reversal.apply", and those belong to it. No mode sees it; `Function.apply` is replaced as long as one is entered.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType
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

    def __init__(self, path: Callable[[], str]) -> None:
        """`path` tells the path of the module whose code runs, as `ModulePath` does."""
        super().__init__()
        self._path = path
        self.made: Counter[tuple[str, str]] = Counter()  # calls so far, by module and function
        self.within: Call | None = None  # the autograd function whose forward runs

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls the function; what it calls itself is part of it, and has no name of its own."""
        kwargs = kwargs or {}
        call = self.named(func, args, kwargs) if self.within is None else self.within
        return self.run(call, func, args, kwargs)

    def named(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """The next call, which is of this function."""
        del args, kwargs  # which do not matter to its name
        made = self._path(), function_name(function)
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
        self.within = self.named(function, args, kwargs)
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
    """The name of a function that can be overridden, "linear"; of an attribute of a tensor, "T"; "Reversal.apply"."""
    if isinstance(function, type) and issubclass(function, Function):
        return f"{function.__name__}.apply"
    name = getattr(function, "__name__", type(function).__name__)
    if name in ("__get__", "__set__"):
        name = getattr(getattr(function, "__self__", None), "__name__", name)
    return str(name)


class ModulePath:
    """Tells the path of the part of a module whose code runs, "" for the module itself: Python's frames have it.

    A module that is registered under several names has the first. As in the exporter, what belongs to the call of a
    module includes its hooks, and a module that was itself traced is part of the one that calls it.
    """

    def __init__(self, module: nn.Module, begun: str = "") -> None:
        """`begun` is the path where no part of the module was called yet."""
        self._module, self._begun = module, begun
        self._paths: dict[int, str] | None = None

    def __call__(self) -> str:
        """The path, by now."""
        if self._paths is None:
            named = self._module.named_modules()
            self._paths = {id(part): path for path, part in named if not isinstance(part, GraphModule)}
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            path = self._paths.get(id(frame.f_locals["self"])) if frame.f_code is _CALL else None
            if path is not None:
                return path
            frame = frame.f_back
        return self._begun


_CALL = nn.Module.__call__.__code__
