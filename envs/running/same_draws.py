"""SameDraws: random numbers that come out alike wherever, and in whichever order, operations draw them.

A plan draws in other processes and another order than the model does without it, so their numbers differ, and nothing
could be compared. Here every operation that draws begins with the same seed: what a dropout keeps of a tensor depends
on its shape alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_SEED = 0


class SameDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The mode in which a step is run to be compared. Generators are left as they were found."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.drew = False
        """Whether any operation drew."""
        self.rounding = 0.0
        """The relative rounding of the least precise floating-point numbers that an operation made."""
        self._forked = torch.random.fork_rng()

    def __enter__(self) -> SameDraws:
        self._forked.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        self._forked.__exit__(*raised)

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs an operation, with the seed if it draws, and notes how precise its results are."""
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.drew = True
            torch.manual_seed(_SEED)
        function: Callable[..., Any] = func
        made = function(*args, **(kwargs or {}))
        for each in tree_leaves(made):
            if isinstance(each, Tensor) and each.is_floating_point():
                self.rounding = max(self.rounding, torch.finfo(each.dtype).eps)
        return made
