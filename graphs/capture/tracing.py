"""Tracing: a module becomes ATen operations, recorded or exported; where both fail, one sentence says why."""

from __future__ import annotations

import logging
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from io import StringIO

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.utils._pytree import tree_map_only

from graphs.capture.exporting import export
from graphs.capture.nested import NotCopiedError, tensors_in
from graphs.capture.one_device import OneDevice, home_of
from graphs.capture.program import TracedProgram
from graphs.capture.recording import Unrecorded, record
from graphs.capture.stand_ins import unchanged
from graphs.foundation.errors import InputError, UserCodeError
from graphs.foundation.user_code import frames_of, users_line

_log = logging.getLogger("placelab")

_NEEDS_VALUES = (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException)
_TRACERS_OWN = ("torch._dynamo", "torch._export", "torch._subclasses", "torch.export", "torch.fx")
_RETURNED = re.compile(r"<class '(.+?)'> in output, which is not a known type")
_GIVEN = re.compile(r"Unsupported input type <class '(.+?)'>")
_TENSORS = "tensors, or tuples, lists and dicts of them"


def trace(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], *, name: str) -> TracedProgram:
    """The module's forward pass as ATen operations; nothing is computed, and the module stays as it is.

    What cannot be recorded is exported, which takes ten times as long or more; a warning says so.
    Raises UserCodeError, with the user's line, for a module that fails on these inputs, and InputError, with the
    line and the remedy, for one that PyTorch cannot trace, or that runs by a plan.
    """
    if any(getattr(vars(part).get("forward"), "runs_by_plan", False) for part in module.modules()):
        raise InputError(
            f"{name} runs by a plan, and its copies between devices would count as ops; capture the model as it was "
            "made, before `parallelize`"
        )
    try:
        home = home_of([*module.parameters(), *module.buffers(), *tensors_in((args, kwargs))])
        with quiet(), unchanged(module), OneDevice(home) as placing:
            program, said = _traced(module, args, kwargs, name)
    except NotCopiedError as error:
        raise InputError(f"{name}: {error}") from error
    if said:
        _log.warning("%s: %s", name, said)
    if placing.first:
        _log.warning(
            "%s: its code puts tensors on %s, which is left out: a plan says what runs where", name, placing.first
        )
    return program


def _traced(
    module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], name: str
) -> tuple[TracedProgram, str]:
    """The module's program, and what is to be said of how it was traced."""
    try:
        return record(module, args, kwargs), ""
    except NotCopiedError:
        raise
    except (Exception, SystemExit) as error:  # whatever the module's own code or the recorder raises
        reason = _first_line(error)
        reason = reason if isinstance(error, Unrecorded) else f"{type(error).__name__}: {reason}"
    with suppress(Exception, SystemExit):  # for a compiler, libraries ask less of the values of tensors
        return record(module, args, kwargs, compiling=True), ""
    try:
        program = export(module, args, kwargs)
    except (Exception, SystemExit) as error:
        raise _explained(error, module, args, kwargs, name) from error
    return program, f"traced by torch.export, which is slow, because it cannot be recorded: {reason}"


@contextmanager
def quiet() -> Iterator[None]:
    """The exporter's logs, graphs and warnings are dropped; what the module prints goes to stderr."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(sys.stderr), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _explained(
    error: BaseException, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], name: str
) -> InputError:
    reason = _first_line(error)
    line = users_line(frames_of(error), libraries=True)
    at = f" at {line}" if line else ""
    if returned := _RETURNED.search(reason):
        remedy = f"it must return {_TENSORS}; transformers' models: use_cache=False"
        return InputError(f"{name}: the module returns an object of type {_short(returned[1])}; {remedy}")
    if given := _GIVEN.search(reason):
        return InputError(f"{name}: the example inputs hold an object of type {_short(given[1])}; give {_TENSORS}")
    if isinstance(error, _NEEDS_VALUES):
        return InputError(
            f"{name}: the control flow or a size depends on the value of a tensor{at}, which is not known during "
            "capture; use torch.where instead of `if`, and a fixed number of steps or elements"
        )
    failure = _failure(module, args, kwargs)
    if failure is not None:
        return UserCodeError(f"{name}: the module fails on its example inputs: {_described(failure, module)}")
    return InputError(f"{name}: PyTorch cannot trace this module: {reason.partition('. ')[0]}{at}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).partition("\n")[0].rstrip(".")


def _failure(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> BaseException | None:
    """What the module raises when it is called without a tracer, on tensors that have shapes alone."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    with_shapes = partial(mode.from_tensor, static_shapes=True)
    try:
        fake, args, kwargs = tree_map_only(Tensor, with_shapes, (held, args, kwargs))
        with mode:
            torch.func.functional_call(module, fake, args, kwargs)
    except (Exception, SystemExit) as error:
        is_tracers = type(error).__module__.startswith(_TRACERS_OWN) or "for tensor subclasses" in str(error)
        return None if is_tracers or _innermost_part(error, module) is None else error
    return None


def _described(error: BaseException, module: nn.Module) -> str:
    """The error as "my_model.py:12: RuntimeError: ... (in its submodule 'layers.0', a Linear)"."""
    part = _innermost_part(error, module)
    path = next((path for path, other in module.named_modules() if other is part), "")
    within = f" (in its submodule {path!r}, a {type(part).__name__})" if path else ""
    line = users_line(frames_of(error), libraries=True)
    message = f"{type(error).__name__}: {error}".removesuffix(": ").rstrip(".")
    return f"{line}: {message}{within}" if line else f"{message}{within}"


def _innermost_part(error: BaseException, module: nn.Module) -> nn.Module | None:
    """The module or submodule whose code raised an error; None if the error comes from elsewhere."""
    parts = {id(part): part for part in module.modules()}
    selves = [id(frame.f_locals.get("self")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((parts[which] for which in reversed(selves) if which in parts), None)


def _short(type_name: str) -> str:
    return type_name.rpartition(".")[2]
