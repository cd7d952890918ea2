"""Recorded calls: those of a module's code while it is recorded, and what of them no dispatch mode sees."""

import traceback
from collections import OrderedDict
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from types import CodeType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.modules._functions import BackwardHookFunction
from torch.utils.hooks import RemovableHandle

from graphs.capture.function_calls import FunctionCalls
from graphs.foundation.user_code import users_line
from graphs.op_graph import Call

_OWN_GRADIENTS = (torch.autograd.grad, torch.autograd.backward, Tensor.backward)
_RECORDING = str(Path(__file__).with_name("recording.py"))
_READ_WHOLE = (Tensor.tolist, Tensor.numpy, Tensor.__array__)


PLAIN_TENSORS = (Tensor, nn.Parameter)  # those of other classes have operations of their own


class Unrecorded(Exception):  # noqa: N818 - no error of the user's
    """Something that cannot be recorded; the message says what."""


class Untraceable(Unrecorded):
    """Something that no other tracer can follow, either."""


class Recording(Protocol):
    """What is asked of the recorder of the same module."""

    def requires(self, tensor: object) -> bool:
        """Whether autograd would send a gradient back through a tensor."""

    def require(self, tensor: Tensor, *, required: bool) -> None:
        """Note that the module's code asks for the gradient of a tensor, or for none."""

    def ask(self, tensor: Tensor) -> Tensor:
        """Note that the module's code reads the value of a tensor; returns what has that value, if it is known."""


class RecordedCalls(FunctionCalls):
    """The calls of a module whose tensors are stand-ins."""

    current: Call | None = None  # the one that runs
    recorder: Recording

    def __init__(self, path: Callable[[], str]) -> None:
        super().__init__(path)
        self.hooks: list[str] = []  # the lines that put hooks on gradients, "" of a module's backward hook

    def run(self, call: Call, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the call returns. Raises Unrecorded, or Untraceable, for one that cannot be followed."""
        if function == Tensor.data.__set__:  # type: ignore[attr-defined]  # no dispatch mode sees it
            raise Unrecorded("it assigns to the data of a tensor")
        if function == Tensor.requires_grad.__get__:  # type: ignore[attr-defined]
            return self.recorder.requires(args[0])
        if function in (Tensor.requires_grad_, Tensor.requires_grad.__set__):  # type: ignore[attr-defined]
            self.recorder.require(args[0], required=(*args[1:], *kwargs.values(), True)[0])
        if function in _OWN_GRADIENTS and torch._C._functorch.peek_interpreter_stack() is None:
            raise Untraceable(
                f"it computes gradients in its forward pass, by torch.autograd's {function.__name__}, "
                "whose operations cannot be recorded; use torch.func.grad, which is captured, or capture the module "
                "without them"
            )
        if function is Tensor.register_hook:
            self.hooks.append(current_line())
            return RemovableHandle(OrderedDict())
        if function is Tensor.retain_grad:
            return None
        if function in _READ_WHOLE:  # no dispatch mode sees these, either
            args = (self.recorder.ask(args[0]), *args[1:])
        self.current = call
        try:
            return function(*args, **kwargs)
        finally:
            self.current = None

    def apply(self, call: Call, function: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a function with its own backward pass returns."""
        if function is BackwardHookFunction:
            self.hooks.append("")
        return super().apply(call, function, args, kwargs)


def at_line() -> str:
    """Where the user's code runs: " at model.py:12", or "" if none does."""
    line = current_line()
    return f" at {line}" if line else ""


def current_line() -> str:
    """The line of the module's code that runs: the user's own, or else a library's."""
    inside = takewhile(lambda each: not _records(each[0].f_code), traceback.walk_stack(None))
    return users_line([(frame.f_code.co_filename, line) for frame, line in inside][::-1], libraries=True)


def _records(code: CodeType) -> bool:
    """Whether code is that which calls a module to record it."""
    return code.co_name == "record" and code.co_filename == _RECORDING
