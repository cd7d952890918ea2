"""Calls: every call of a PyTorch function in a module's code has a name that is the same whenever the module runs.

The name is the path of the module whose code runs, the function, and how often that module has called that function
before in the same step. Capture notes the call that each op comes from. A `TorchFunctionMode` over the real module sees
the same calls in the same order, so it can do with each what a plan says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.fx import GraphModule
from torch.overrides import TorchFunctionMode

from graphs.op_graph import Call


class FunctionCalls(TorchFunctionMode):
    """Sees the calls that are made while it is entered, and names them; `run` says what is done with each."""

    def __init__(self, paths: Sequence[str]) -> None:
        """`paths` ends in the path of the module whose code runs at any time; `module_paths` gives it."""
        super().__init__()
        self._paths = paths
        self.made: Counter[tuple[str, str]] = Counter()  # calls so far, by module and function

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls the function; what it calls itself is part of it, and has no name of its own."""
        made = self._paths[-1], function_name(func)
        call = Call(*made, self.made[made])
        self.made[made] += 1
        return self.run(call, func, args, kwargs or {})

    def run(self, call: Call, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the call returns."""
        del call  # all are run alike here
        return function(*args, **kwargs)


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
