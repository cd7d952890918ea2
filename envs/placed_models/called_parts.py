"""Hooks on the parts of a model that is run by a plan: a thread's pass is told of them, if there is one."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from envs.placed_models.arguments import Given
from envs.placed_models.placed_calls import PlacedCalls
from graphs.op_graph import Ints, OpGraph
from graphs.transforms.module_calls import ModuleCalls


class UnknownCallWarning(UserWarning):
    """A call of a model that its plan does not know."""


class _Passes(threading.local):
    """The passes of a thread, the innermost last."""

    def __init__(self) -> None:
        self.models: list[object] = []
        self.calls: list[PlacedCalls | None] = []  # None of a pass whose calls are not seen


passes = _Passes()


def add_hooks(model: nn.Module, graph: OpGraph, placement: Ints, seen_ops: Ints) -> None:
    """Let the parts of a model tell when they are called.

    Those are told of that may run whole, ops being on devices, (ops,), some of which are seen, in parts that cannot;
    and the outermost that are called, be it without the model.
    """
    calls = ModuleCalls.of(graph)
    own = {call.module for call in graph.calls if call is not None and call.module}
    mixed = calls.mixed(placement, seen_ops)
    whole = {path for path, is_mixed in zip(calls.paths, mixed, strict=True) if not is_mixed}
    always = own & (whole - {path for path, is_mixed in zip(calls.paths, mixed, strict=True) if is_mixed})
    known, said = _paths(own), set[str]()
    for path, part in model.named_modules():
        outer = {path[:at] for at, letter in enumerate(path) if letter == "."}
        if path in whole and not outer & always:
            part.register_forward_pre_hook(Entered(path, said), with_kwargs=True)
            part.register_forward_hook(Left(), always_call=True)
        elif path in known and not outer & own:
            part.register_forward_pre_hook(CalledAlone(path, said))


def _paths(modules: Iterable[str]) -> set[str]:
    """Of modules, and of those that they are in, but for the model."""
    names = (path.split(".") for path in modules)
    return {".".join(each[: depth + 1]) for each in names for depth in range(len(each))}


class CalledAlone:
    """It warns, once, if a part is called without the model."""

    runs_by_plan = True  # by which a replayed step, which calls no hooks, knows it

    def __init__(self, path: str, said: set[str]) -> None:
        """`said` is that of all parts: the paths of those that a warning has named."""
        self._path, self._said = path, said

    def __call__(self, part: nn.Module, *_: object) -> Any:
        """What PyTorch calls before it runs the part."""
        if self._said or passes.models:
            return
        self._said.add(self._path)
        warnings.warn(
            f"{self._path!r}, a {type(part).__name__}, is called without the model that was given to parallelize, so "
            "that the plan does not run it: it runs where its inputs and weights are; call the model, or plan this "
            "part and give that to parallelize",
            UnknownCallWarning,
            stacklevel=5,
        )


class Entered(CalledAlone):
    """The same, of a part that may run whole."""

    def __call__(self, part: nn.Module, *given: Any) -> Given | None:
        """What PyTorch calls before it runs the part; returns what that is given in place of its arguments."""
        if torch.compiler.is_compiling():
            return None
        if not (running := passes.calls):
            super().__call__(part)
            return None
        calls = running[-1]
        return None if calls is None else calls.modules.enter(calls, part, *given)


class Left:
    """A hook on a part that may run whole."""

    runs_by_plan = True

    def __call__(self, part: nn.Module, _: object, out: Any) -> Any:
        """What PyTorch calls when the part has run, or failed; returns what it returns in place of its output."""
        if torch.compiler.is_compiling() or not (running := passes.calls):
            return None
        calls = running[-1]
        return None if calls is None else calls.modules.leave(calls, part, out)
