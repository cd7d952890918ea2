"""Casting: a model and its inputs in another type of numbers, and the settings of PyTorch under which it is traced."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor, nn

from graphs.capture.examples import Example
from graphs.capture.forward import Builder, traced_example
from graphs.capture.nested import with_tensors
from graphs.foundation.errors import InputError
from graphs.transforms.mixed_precision import Precision

DEVICE = "cuda"  # as for which `autocast` casts: its lists are those that training on GPUs goes by


def traced_in(example: Example, asked: Precision) -> Builder:
    """A module and its example inputs, traced with the types of tensors that are asked for.

    Raises InputError as `cast` and `traced_example` do.
    """
    dtype, autocast = (getattr(torch, name) if name else None for name in (asked.tensors, asked.autocast))
    with computing(dtype, autocast):
        return traced_example(example if dtype is None else cast(example, dtype))


def cast(example: Example, dtype: torch.dtype) -> Example:
    """A copy of a module, and of its inputs, with floating-point tensors of a type; the given ones stay as they are.

    Raises InputError for a module that cannot be copied.
    """

    def tensor(given: Tensor) -> Tensor:
        return given.detach().to(dtype) if given.is_floating_point() else given

    module = example.module
    made: dict[int, object] = {}
    for each in (*module.parameters(), *module.buffers()):
        is_weight = isinstance(each, nn.Parameter)
        made[id(each)] = nn.Parameter(tensor(each), each.requires_grad) if is_weight else tensor(each)
    try:
        copied = deepcopy(module, made)
    except Exception as error:  # whatever the module's own code raises
        raise InputError(
            f"{example.name}: its module cannot be copied to be cast ({error}); cast it before it is given, with "
            f"module.to({dtype}), and leave out `precision`"
        ) from error
    args, kwargs = with_tensors((example.args, example.kwargs), tensor)
    return replace(example, module=copied, args=args, kwargs=kwargs)


@contextmanager
def computing(dtype: torch.dtype | None, autocast: torch.dtype | None) -> Iterator[None]:
    """Inside, new tensors are of the first type, and `autocast` for GPUs is entered with the second one."""
    before = torch.get_default_dtype(), torch.is_autocast_enabled(DEVICE), torch.get_autocast_dtype(DEVICE)
    torch.set_default_dtype(dtype or before[0])
    if autocast is not None:
        torch.set_autocast_enabled(DEVICE, True)
        torch.set_autocast_dtype(DEVICE, autocast)
    try:
        yield
    finally:
        torch.set_default_dtype(before[0])
        torch.set_autocast_enabled(DEVICE, before[1])
        torch.set_autocast_dtype(DEVICE, before[2])
