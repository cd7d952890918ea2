"""Tracing: a module becomes ATen operations, recorded or exported; where both fail, one sentence says why."""

import logging
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
from torch.utils._pytree import tree_leaves

from graphs.capture.by_values import TooLargeError
from graphs.capture.examples import Example
from graphs.capture.exporting import export
from graphs.capture.nested import NotCopiedError, tensors_in, with_tensors
from graphs.capture.one_device import OneDevice, home_of
from graphs.capture.program import TracedProgram
from graphs.capture.recorded_calls import Unrecorded, Untraceable
from graphs.capture.recording import record
from graphs.capture.stand_ins import unchanged
from graphs.foundation.errors import InputError, UserCodeError
from graphs.foundation.user_code import frames_of, users_line

_log = logging.getLogger("placelab")

_NEEDS_VALUES = (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException)
_TRACERS_OWN = ("torch._dynamo", "torch._export", "torch._subclasses", "torch.export", "torch.fx")
_SIZES = (DynamicOutputShapeException,)


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
    given = Example(module, args, kwargs, name)
    try:
        with quiet(), unchanged(module):
            program, said = _traced(given)
    except NotCopiedError as error:
        raise InputError(f"{name}: {error}") from error
    hooked = [f" of {each!r}" for each in hooked_weights(module)] or [at and f" at {at}" for at in program.hooks]
    if hooked:
        said = [
            *said,
            f"a hook on gradients{hooked[0]} is not captured: what it computes and changes is no part of the step",
        ]
    for data, at in {answer.data: answer.at for answer in reversed(program.answers)}.items():  # the first of each
        said = [*said, f"sizes or control flow depend on data{at}: those of {data} are taken"]
    for each in said:
        _log.warning("%s: %s", name, each)
    return program


def _traced(given: Example) -> tuple[TracedProgram, list[str]]:
    """The module's program, and what is to be said of how it was traced."""
    module, args, kwargs = given.module, given.args, given.kwargs
    home = home_of([*module.parameters(), *module.buffers(), *tensors_in((args, kwargs))])
    try:
        with OneDevice(home) as placing:
            return record(module, args, kwargs), placing.said
    except NotCopiedError:
        raise
    except Untraceable as error:
        raise _explained(error, error, error, given) from error
    except (Exception, SystemExit) as error:  # whatever the module's own code or the recorder raises
        first = second = error
    with suppress(Exception, SystemExit), OneDevice(home) as placing:
        return _recorded_for_a_compiler(first, given), placing.said
    if not isinstance(first, _SIZES):
        try:
            with OneDevice(home) as placing, unchanged(module):
                program = export(module, args, kwargs)
            if _sizes_are_known(program):
                why = f"it cannot be recorded: {_reason(first)}{_at(first)}"
                return program, [f"traced by torch.export, which is slow, because {why}", *placing.said]
        except (Exception, SystemExit) as error:
            second = error
    try:
        with torch.random.fork_rng(), OneDevice(torch.device("cpu") if home.type == "meta" else home) as placing:
            torch.manual_seed(0)
            program = record(module, args, kwargs, by_values=True)
    except (Exception, SystemExit) as error:
        raise _explained(first, second, error, given) from error
    if isinstance(first, Unrecorded):
        reason = f"{_first_line(first)}{_at(first)}"
        why = f"run on {program.by_values}, because it can neither be recorded nor exported: {reason}"
    else:
        why = f"sizes or control flow depend on data{_at(first)}: those of {program.by_values} are taken"
    return program, [why, *placing.said]


def _recorded_for_a_compiler(error: BaseException, given: Example) -> TracedProgram:
    """The program of a module whose parts that fail are told that a compiler runs them; in the end, all of it.

    Libraries ask a compiler for fewer values; in any other part they may take branches that no eager step does.
    """
    compiling, whole = set[type[nn.Module]](), type(given.module)
    while (part := _innermost_part(error, given.module)) is not None and type(part) not in {*compiling, whole}:
        compiling.add(type(part))
        try:
            return record(given.module, given.args, given.kwargs, compiling=compiling)
        except (Exception, SystemExit) as other:
            error = other
    return record(given.module, given.args, given.kwargs, compiling=[whole])


def hooked_weights(module: nn.Module) -> list[str]:
    """The names of the parameters with hooks on their gradients."""
    return [
        name
        for name, weight in module.named_parameters()
        if weight._backward_hooks or weight._post_accumulate_grad_hooks
    ]


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


def _explained(recorded: BaseException, exported: BaseException, ran: BaseException, given: Example) -> InputError:
    """What recording, exporting and running by values have raised, in one sentence."""
    if isinstance(ran, Unrecorded):
        return InputError(f"{given.name}: PyTorch cannot trace this module: {_first_line(ran)}{_at(ran)}")
    failure = None if isinstance(exported, _NEEDS_VALUES) else _failure(given)
    if failure is None and isinstance(ran, TooLargeError):
        return InputError(
            f"{given.name}: sizes or control flow depend on data{_at(recorded)}, so that the module must be run to be "
            f"captured, but {ran}; give fewer samples or a smaller model of its kind, or keep sizes fixed (torch.where)"
        )
    described = _described(failure or ran, given.module)
    keywords = given.kwargs and "unexpected keyword argument" in described and "submodule" not in described
    remedy = (
        "; return (model, (inputs,)) if it takes one dict, since a dict alone is keyword inputs" if keywords else ""
    )
    return UserCodeError(f"{given.name}: the module fails on its example inputs: {described}{remedy}")


def _sizes_are_known(program: TracedProgram) -> bool:
    """Whether no size of an operation's output depends on data."""
    made = [node.meta.get("val") for node in program.nodes if node.op == "call_function"]
    tensors = [each for each in tree_leaves(made) if isinstance(each, Tensor)]
    return all(isinstance(size, int) for tensor in tensors for size in tensor.shape)


def _reason(error: BaseException) -> str:
    return _first_line(error) if isinstance(error, Unrecorded) else f"{type(error).__name__}: {_first_line(error)}"


def _at(error: BaseException) -> str:
    line = users_line(frames_of(error), libraries=True)
    return f" at {line}" if line else ""


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).partition("\n")[0].rstrip(".")


def _failure(given: Example) -> BaseException | None:
    """What the module raises when it is called without a tracer, on tensors that have shapes alone."""
    module = given.module
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    with_shapes = partial(mode.from_tensor, static_shapes=True)
    try:
        fake, args, kwargs = with_tensors((held, given.args, given.kwargs), with_shapes)
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
    message = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}".removesuffix(": ").rstrip(".")
    return f"{line}: {message}{within}" if line else f"{message}{within}"


def _innermost_part(error: BaseException, module: nn.Module) -> nn.Module | None:
    """The module or submodule whose code raised an error; None if the error comes from elsewhere."""
    parts = {id(part): part for part in module.modules()}
    selves = [id(frame.f_locals.get("self")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((parts[which] for which in reversed(selves) if which in parts), None)
