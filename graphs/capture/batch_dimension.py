"""Batch dimension: which dimension of a model's inputs is the batch, where its modules take sequences first.

PyTorch's recurrent layers and Transformers take (steps, samples, width) unless they are told `batch_first`. What they
do says which dimension is which: with other steps they do other operations, or more in proportion to the square of the
steps; with other samples they do the same operations on tensors that grow as a line does.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from graphs.capture.nested import first_dimension, tensors_in, with_tensors
from graphs.capture.one_device import OneDevice, home_of
from graphs.capture.recording import record

_log = logging.getLogger("placelab")
_ROUNDING = 1e-9


def batch_of(module: nn.Module, inputs: Any, name: str) -> tuple[int, int]:
    """How many samples inputs, positional and by keyword, are, and which dimension they are; 0 samples if not known.

    Only a model that takes sequences first is asked, by recording it with other sizes. Where neither dimension behaves
    as a batch does, a warning says so.
    """
    first = first_dimension(inputs)
    if not _takes_sequences_first(module):
        return first, 0
    tried = [(dimension, size) for dimension, size in ((0, first), (1, _second_dimension(inputs))) if size > 1]
    for dimension, size in tried:
        if _is_batch(module, inputs, dimension, size):
            return size, dimension
    _log.warning(
        "%s: it takes sequences first, and it is not clear which dimension of its inputs is the batch, so that no plan "
        "divides it; let the function that makes the model take `batch`, with a default", name,
    )  # fmt: skip
    return 0, 0


def resized(tensor: Tensor, samples: int, dimension: int, own: int) -> Tensor:
    """The first samples of a tensor, or all of it over again, in memory of its own.

    A tensor without that dimension has its samples in the first one, if it is as long. One that has another size there
    than the `own` number of samples, where that is known, is left as it is.
    """
    if own and tensor.dim() > dimension and tensor.shape[dimension] != own:
        return tensor
    if tensor.dim() <= dimension:
        if tensor.dim() != 1 or len(tensor) != own:
            return tensor
        dimension = 0
    over = -(-samples // tensor.shape[dimension])
    whole = torch.cat([tensor.detach()] * over, dimension)
    return whole.narrow(dimension, 0, samples).clone()


def _takes_sequences_first(module: nn.Module) -> bool:
    return any(getattr(part, "batch_first", None) is False for part in module.modules())


def _second_dimension(inputs: Any) -> int:
    sizes = {tensor.shape[1] for tensor in tensors_in(inputs) if tensor.dim() > 1}
    return sizes.pop() if len(sizes) == 1 else 0


def _is_batch(module: nn.Module, inputs: Any, dimension: int, size: int) -> bool:
    """Whether a model does the same with another size of a dimension, in proportion to it or not at all."""
    other = max(size // 2, 2) if size != 2 else 4
    args, kwargs = with_tensors(inputs, lambda tensor: resized(tensor, other, dimension, size))
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), OneDevice(_home(module, inputs)):
            warnings.simplefilter("ignore")
            here, there = (list(_amounts(*given)) for given in ((module, *inputs), (module, args, kwargs)))
    except Exception:  # whatever the module raises for sizes that it is not made for
        return False
    if [kind for kind, _ in here] != [kind for kind, _ in there]:
        return False
    grows = False
    for (_, amount), (_, less) in zip(here, there, strict=True):
        fixed = amount - (amount - less) / (size - other) * size
        if not -_ROUNDING * amount <= fixed <= amount * (1 + _ROUNDING):
            return False
        grows |= amount != less
    return grows


def _home(module: nn.Module, inputs: Any) -> torch.device:
    return home_of([*module.parameters(), *module.buffers(), *tensors_in(inputs)])


def _amounts(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> Iterator[tuple[str, float]]:
    """What is done, and how much of it: elements that are made, and of attention scores that it does not show."""
    for node in record(module, args, kwargs).nodes:
        if node.op == "call_function":
            for made in tensors_in(node.meta["val"]):
                yield str(node.target), float(made.numel())
            if node.target is torch.ops.aten.scaled_dot_product_attention.default:
                query, key = (each.meta["val"] for each in node.args[:2] if isinstance(each, Node))
                yield "scores", float(query[..., 0].numel() * key.shape[-2])
