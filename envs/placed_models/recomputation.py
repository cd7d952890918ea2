"""Checkpointing: what torch.utils.checkpoint computes again during the backward pass runs as it ran at first.

By then the forward pass is over. So each region remembers where in the module it began, and which calls had been made,
and enters the mode again from there.

torch.utils.checkpoint has no hook for this. Two of its own names are replaced as long as a forward pass runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch.utils import checkpoint

Resume = Callable[[], AbstractContextManager[object]]


@contextmanager
def remembered_regions(resume: Callable[[], Resume]) -> Iterator[None]:
    """Inside, each region asks `resume` where it is, for what it enters when it is computed again."""
    generator, function = checkpoint._checkpoint_without_reentrant_generator, checkpoint.CheckpointFunction

    def generating(region: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return generator(_again(region, resume()), *args, **kwargs)

    class Reentrant:
        @staticmethod
        def apply(region: Callable[..., Any], *args: Any) -> Any:
            return function.apply(_at_first(region, _again(region, resume())), *args)  # type: ignore[no-untyped-call]

    checkpoint._checkpoint_without_reentrant_generator = generating  # type: ignore[assignment]
    checkpoint.CheckpointFunction = Reentrant  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        checkpoint._checkpoint_without_reentrant_generator = generator
        checkpoint.CheckpointFunction = function  # type: ignore[misc]


def _again(region: Callable[..., Any], resumed: Resume) -> Callable[..., Any]:
    def again(*args: Any, **kwargs: Any) -> Any:
        with resumed():
            return region(*args, **kwargs)

    return again


def _at_first(region: Callable[..., Any], again: Callable[..., Any]) -> Callable[..., Any]:
    """What runs as it is when it is called first, which is within the forward pass."""
    was_called = False

    def run(*args: Any) -> Any:
        nonlocal was_called
        function, was_called = (again if was_called else region), True
        return function(*args)

    return run
