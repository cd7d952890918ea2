"""Families of models by name. An extension folder: one file, one family.

A file has `build(*, knobs) -> (module, example inputs)`, made on the meta device, where nothing is allocated, and
literals: `TRAIN: tuple[str, ...]`, the knobs of graphs to learn from, `TEST: tuple[str, ...]`, those of unseen ones,
and `CONFIGURATIONS: dict[str, str]`, the knobs of configurations that papers name, which a spec may name too
(`resnet:resnet-50,batch=32`), with `PARAMETERS: dict[str, float]` for those whose parameters are published. The
module's output is its loss. Knobs are chosen for devices of 16 GB: some graphs fit on one, others need two or four.
"""

import torch
from torch import Tensor, nn

from graphs.foundation.errors import InputError

Model = tuple[nn.Module, tuple[Tensor, ...]]  # with its example inputs


def images(batch: int, size: int) -> tuple[Tensor, ...]:
    """Example inputs: images, (batch, 3, size, size), and labels, (batch,)."""
    return torch.empty(batch, 3, size, size), torch.empty(batch, dtype=torch.long)


def tokens(batch: int, length: int, *, inputs: int = 2) -> tuple[Tensor, ...]:
    """Example inputs that are token numbers, each (batch, length)."""
    return tuple(torch.empty(batch, length, dtype=torch.long) for _ in range(inputs))


def checked(spec: str, built: object) -> tuple[object, object]:
    """What `build` of another package returned. Raises InputError for what is no module with its example inputs."""
    if not isinstance(built, tuple) or len(built) != 2 or not hasattr(built[0], "named_parameters"):
        raise InputError(f"{spec!r}: expected (module, example inputs), got {type(built).__name__}")
    return built


def check_multiple(family: str, knob: str, value: int, *, of: int, which: str) -> None:
    """Check a family's own condition on a knob. Raises InputError for a value that is not a multiple of `of`."""
    if value % of:
        raise InputError(f"{family}: expected {knob} to be a multiple of {which}, {of}, got {value}")
