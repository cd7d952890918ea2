"""Examples: a module and the inputs that it is called with, and the same for another number of samples."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from graphs.capture.batch_dimension import batch_of, resized
from graphs.capture.nested import NotCopiedError, first_dimension, tensors_in, with_tensors
from graphs.capture.one_device import OneDevice
from graphs.capture.random_data import drawn, fill
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.knobs import knobs_of
from graphs.foundation.user_code import neighbours, user_callable

BATCH = "batch"  # the knob of a family, or the parameter of a user's function, that says how many samples there are


@dataclass(frozen=True)
class Example:
    """A module with its example inputs."""

    module: nn.Module
    args: tuple[object, ...]
    kwargs: dict[str, object]
    name: str  # of the graph
    samples: int = 0  # how many samples the inputs are; 0 if they do not say so
    batch_dim: int = 0  # the dimension of the inputs that the samples are
    own: Path | None = field(default=None)  # the user's file, whose neighbours the module may import

    def importing(self) -> AbstractContextManager[None]:
        """Inside, the module may import what its file may."""
        return nullcontext() if self.own is None else neighbours(self.own)

    def resized(self, samples: int) -> Example:
        """The same module with the first samples of its inputs, or with all of them over again.

        Raises InputError if the inputs do not say how many samples they are.
        """
        if self.samples < 1:
            raise InputError(
                f"{self.name}: its inputs do not say how many samples they are, and are not cut; let the function that "
                "makes the model take `batch`, with a default"
            )
        sized = partial(resized, samples=samples, dimension=self.batch_dim, own=self.samples)
        args, kwargs = with_tensors((self.args, self.kwargs), sized)
        return replace(self, args=args, kwargs=kwargs, samples=samples)


def example_of(what: str, samples: int = 0) -> Example:
    """The example of a family spec, or of a user's function, "path/to/file.py:callable"; with `samples`, if given.

    Knobs of the function come after a second colon, "file.py:callable:layers=3,width=8".
    The callable returns (module, args), (module, kwargs) or (module, args, kwargs): a tuple of positional inputs, a
    dict of keyword inputs. A single tensor may stand alone. A callable that takes `batch`, with a default, is called
    with another one; otherwise the samples are the first dimension of all inputs that are tensors, or the second one of
    a model that takes sequences first (`graphs.capture.batch_dimension`), and these are cut. A model that is too large
    for memory can be made `with torch.device("meta")` there.
    Raises InputError for a missing file or callable, or another result; UserCodeError for what the user's code raises.
    """
    if not (own := by_name.own(what)):
        return _of_family(what, samples)
    make = user_callable(own.function)
    knobs = {} if own.knobs is None else by_name.builder_and_knobs("graphs.families", what)[1]
    taken = inspect.signature(make).parameters.get(BATCH)
    knows = taken is not None and isinstance(taken.default, int)
    with OneDevice(torch.device("cpu"), missing=True):
        made = make(**knobs | ({BATCH: samples} if knows and samples else {}))
    name = ":".join([own.file.stem, own.function.rpartition(":")[2], *([own.knobs] if own.knobs else [])])
    example = replace(given_example(made, what, name=name), own=own.file)
    if knows and taken is not None:
        given = knobs.get(BATCH, taken.default)
        return replace(example, samples=samples or (given if isinstance(given, int) else 0))
    return example.resized(samples) if samples else example


def given_example(made: object, what: str, *, name: str) -> Example:
    """A module and its example inputs: (module, args), (module, kwargs) or (module, args, kwargs).

    Raises InputError for another object, under the name `what`.
    """
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[0], nn.Module):
        expected = "(module, args), (module, kwargs) or (module, args, kwargs)"
        raise InputError(f"{what}: expected {expected}, got {_described(made)}")
    module, inputs = made[0], made[1]
    kwargs = made[2] if len(made) == 3 else {}
    if len(made) == 2 and isinstance(inputs, Mapping):  # what tokenizers return
        inputs, kwargs = (), inputs
    if not isinstance(kwargs, Mapping) or not all(isinstance(key, str) for key in kwargs):
        raise InputError(f"{what}: expected keyword inputs as a dict by name, got {_described(kwargs)}")
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    try:
        samples, dimension = batch_of(module, (args, dict(kwargs)), name)
    except NotCopiedError as error:
        raise InputError(f"{name}: {error}") from error
    return Example(module, args, dict(kwargs), name, samples, dimension)


def with_data(example: Example, seed: int, device: str = "cpu") -> Example:
    """The example with data on a device in place of tensors on the meta device; all others stay as they are.

    The module itself is changed. Equal seeds draw equal data.
    """
    held = [*example.module.parameters(), *example.module.buffers(), *tensors_in((example.args, example.kwargs))]
    if not any(tensor.is_meta for tensor in held):
        return example
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        fill(example.module, device)
        args, kwargs = with_tensors((example.args, example.kwargs), lambda given: drawn(given, device))
    return replace(example, args=args, kwargs=kwargs)


def _of_family(spec: str, samples: int) -> Example:
    folder = "graphs.families"
    name, knobs = by_name.parse(by_name.expanded(folder, spec))
    taken = knobs_of(by_name.module(folder, name).build).get(BATCH)
    made = by_name.spec_of(name, knobs | {BATCH: samples}) if samples and taken else spec
    module, args = by_name.build(folder, made)
    if taken is not None:
        own = int(knobs[BATCH]) if BATCH in knobs else taken.default
        return Example(module, tuple(args), {}, spec, samples or (own if isinstance(own, int) else 0))
    example = Example(module, tuple(args), {}, spec, first_dimension(args))
    return example.resized(samples) if samples else example


def _described(made: object) -> str:
    if isinstance(made, tuple):
        return f"a tuple of {', '.join(type(part).__name__ for part in made) or 'nothing'}"
    return type(made).__name__
