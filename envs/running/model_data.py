"""What a run is made of in every process alike: the model with its first weights, and the batches of its steps.

Batches are the user's, or are made from the example inputs: inputs that are all zero become normal numbers, and of all
others each step has the samples in another order. So tokens stay tokens, and masks stay masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves

from graphs.capture.examples import Example, example_of, given_example, with_data
from graphs.foundation.errors import InputError, located
from graphs.foundation.user_code import user_callable, user_code

Batch = Mapping[int, Tensor]
"""The inputs of a step, by their leaf in the model's arguments."""
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


def check_samples_first(example: Example) -> None:
    """Raise InputError for inputs whose samples are another dimension than the first one, which runs divide."""
    if example.batch_dim:
        raise InputError(
            f"{example.name}: the plan divides the batch, which is dimension {example.batch_dim} of the model's inputs,"
            " and runs divide the first one; let the model take samples first (batch_first=True)"
        )


def divided(batch: Batch, parts: int) -> list[Batch]:
    """A batch in equal parts, by the first dimension of all tensors that have as many samples as the longest.

    Raises InputError if they cannot be equal.
    """
    if parts == 1:
        return [batch]
    samples = max((len(tensor) for tensor in batch.values() if tensor.dim()), default=0)
    if samples % parts or not samples:
        raise InputError(f"a batch of {samples} samples cannot be divided into {parts} equal parts")
    size = samples // parts
    return [
        {
            leaf: tensor[part * size : (part + 1) * size] if tensor.dim() and len(tensor) == samples else tensor
            for leaf, tensor in batch.items()
        }
        for part in range(parts)
    ]


def _shuffled(example: Example, seed: int) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(seed)
    first = {leaf: value for leaf, value in enumerate(_leaves(example)) if isinstance(value, Tensor)}
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
        return torch.randn(tensor.shape, generator=generator, dtype=torch.float32).to(tensor.dtype)
    return tensor[order] if tensor.dim() and len(tensor) == len(order) else tensor


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
    tensors = {leaf: value for leaf, value in enumerate(found) if isinstance(value, Tensor)}
    for leaf, tensor in tensors.items():
        same = next(other for other in tensors if expected[other] is expected[leaf])
        if same != leaf and not torch.equal(tensor, tensors[same]):
            raise InputError(f"inputs {same} and {leaf} differ, and the model was planned with one tensor for both")
    return tensors


def _check(number: int, expected: object, found: object) -> None:
    if not isinstance(expected, Tensor) or not isinstance(found, Tensor):
        if isinstance(expected, Tensor) or isinstance(found, Tensor) or expected != found:
            raise InputError(f"input {number} is {found!r}, and the model was planned with {expected!r}")
        return
    if (expected.shape, expected.dtype) != (found.shape, found.dtype):
        raise InputError(
            f"input {number} is {found.dtype} of shape {tuple(found.shape)}, and the step was planned for "
            f"{expected.dtype} of shape {tuple(expected.shape)}; give batches of that size, or another `batch`"
        )


def _leaves(example: Example) -> list[object]:
    return tree_leaves((example.args, example.kwargs))
