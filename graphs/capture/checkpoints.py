"""Checkpoints: parts of a forward pass that `torch.utils.checkpoint` runs again in the backward pass."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch.utils.checkpoint as of_torch
from torch.fx import Node

Entered = Callable[[bool, str], AbstractContextManager[None]]

_FORWARD_ALONE = "capture the forward pass alone, with --no-training (in Python, training=False)"
_CHOOSES = (
    "its code chooses what a checkpoint{} keeps (`context_fn`), which is not captured; leave `context_fn` out, or "
    f"{_FORWARD_ALONE}"
)
NESTED = (
    "its code checkpoints a part of a checkpoint{}, which is not captured; checkpoint one of them, or "
    f"{_FORWARD_ALONE}"
)


@dataclass(eq=False)
class CheckpointedNodes:
    """The nodes of a part whose results are not kept for the backward pass; what it reads is."""

    whole: bool  # all of it runs again, and not only what is needed, up to the last tensor that autograd has saved
    nodes: set[Node] = field(default_factory=set)


def reentrant(function: type, args: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """The part that a checkpoint of the older kind runs, and its arguments; None for any other custom function."""
    return (args[0], args[2:]) if function is of_torch.CheckpointFunction else None


@contextmanager
def checkpoints_seen(entered: Entered) -> Iterator[None]:
    """Inside, checkpoints of the newer kind run inside of what `entered` returns, and keep nothing themselves.

    It is told whether all of the part runs again, and why it is not known what does, if it is not.
    """
    own = of_torch._checkpoint_without_reentrant_generator

    def generator(*given: Any, **named: Any) -> Iterator[None]:
        context_fn, early_stop = given[2], given[5]
        del named  # arguments of the part
        setting = of_torch._enable_checkpoint_early_stop
        with entered(
            not (early_stop if setting is None else setting), "" if context_fn is of_torch.noop_context_fn else _CHOOSES
        ):
            yield

    of_torch._checkpoint_without_reentrant_generator = generator
    try:
        yield
    finally:
        of_torch._checkpoint_without_reentrant_generator = own
