"""What a run is made of in every process alike: the model with its first weights, and the batches of its steps.

Batches are the user's, or are made from the example inputs: inputs that are all zero become normal numbers, and of all
others each step has the samples in another order. So tokens stay tokens, and masks stay masks.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from graphs.capture.examples import Example, example_of, given_example, with_data
from graphs.capture.nested import tensors_in
from graphs.foundation.errors import InputError, located
from graphs.foundation.user_code import user_callable, user_code

Batch = Mapping[int, Tensor]
"""The inputs of a step, by their number among the tensors of the model's arguments (`nested.tensors_in`)."""
END = object()  # of the user's batches


def seeded_example(model: str, seed: int, samples: int = 0) -> Example:
    """The model of a family spec or of a user's function, with data; equal seeds give equal weights.

    Raises as `example_of`.
    """
    torch.manual_seed(seed)
    return with_data(example_of(model, samples), seed)


def batches(example: Example, data: str = "", *, seed: int = 0) -> Iterator[Batch]:
    """A batch for each step, without end.

    `data` is empty, or "path/to/file.py:callable": what it returns is gone through again and again, and has in each
    batch what the model is called with, as its example inputs are given. Raises InputError for batches of other shapes
    than the example inputs, and if there are none; UserCodeError for what the user's code raises.
    """
    return _given(example, data, seed) if data else _shuffled(example, seed)


def _shuffled(example: Example, seed: int) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(seed)
    first = dict(enumerate(tensors_in((example.args, example.kwargs))))
    samples = max((len(tensor) for tensor in first.values() if tensor.dim()), default=0)
    while True:
        order = torch.randperm(samples, generator=generator)
        drawn: dict[int, Tensor] = {}
        for leaf, tensor in first.items():
            is_given = next((other for other in drawn if first[other] is tensor), None)
            drawn[leaf] = _another(tensor, order, generator) if is_given is None else drawn[is_given]
        yield drawn


def _another(tensor: Tensor, order: Tensor, generator: torch.Generator) -> Tensor:
    if tensor.is_floating_point() and not tensor.any():
        made = torch.randn(tensor.shape, generator=generator, dtype=torch.float32).to(tensor.dtype)
    else:
        made = tensor.detach()[order] if tensor.dim() and len(tensor) == len(order) else tensor.detach()
    return made.requires_grad_(tensor.requires_grad)


def _given(example: Example, data: str, seed: int) -> Iterator[Batch]:
    torch.manual_seed(seed)
    make = user_callable(data)
    number = 0
    while True:
        made = make()
        if not isinstance(made, Iterable) or isinstance(made, Tensor):
            raise InputError(f"{data}: expected a sequence of batches, or what yields them; got {type(made).__name__}")
        before, given = number, iter(made)
        while (batch := _next(given, data)) is not END:
            number += 1
            with located(f"{data}: batch {number}"):
                yield _taken(example, batch)
        if number == before:
            raise InputError(f"{data}: there are no batches; return some")


def _next(given: Iterator[Any], data: str) -> Any:
    with user_code(Path(data.rpartition(":")[0])):
        return next(given, END)


def _taken(example: Example, batch: Any) -> Batch:
    """A batch of the user's. Raises InputError if the model, as it was planned, does not take it."""
    pair = isinstance(batch, tuple) and len(batch) == 2 and isinstance(batch[0], tuple) and isinstance(batch[1], dict)
    made = (example.module, *batch) if pair else (example.module, batch)
    given = given_example(made, "inputs", name=example.name)
    expected, tree = tree_flatten((example.args, example.kwargs))
    found, own = tree_flatten((given.args, given.kwargs))
    if own != tree:
        raise InputError(f"it is made up otherwise than the model's inputs: {own}; expected {tree}")
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        _check(number, one, other)
    planned, tensors = (tensors_in((each.args, each.kwargs)) for each in (example, given))
    first: dict[int, int] = {}
    for number, tensor in enumerate(planned):
        same = first.setdefault(id(tensor), number)
        if same != number and not torch.equal(tensors[same], tensors[number]):
            raise InputError(
                f"inputs {same} and {number} differ, and the model was planned with one tensor for both; let the "
                "function that makes the model give two"
            )
    return dict(enumerate(tensors))


def _check(number: int, expected: object, found: object) -> None:
    if not isinstance(expected, Tensor) or not isinstance(found, Tensor):
        inside, own = tensors_in(expected), tensors_in(found)
        kinds = {(type(each).__module__, type(each).__qualname__) for each in (expected, found)}  # a file is run again
        is_same = len(kinds) == 1 and len(inside) == len(own) > 0
        if not is_same and expected != found:
            raise InputError(f"input {number} is {found!r}, and the model was planned with {expected!r}; give that")
        for one, other in zip(inside, own, strict=True) if is_same else ():
            _check(number, one, other)
        return
    if (expected.shape, expected.dtype) != (found.shape, found.dtype):
        raise InputError(
            f"input {number} is {found.dtype} of shape {tuple(found.shape)}, and the step was planned for "
            f"{expected.dtype} of shape {tuple(expected.shape)}; give batches of that size, or another `batch`"
        )
