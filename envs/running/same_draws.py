"""SameDraws: random numbers that come out alike wherever, and in whichever order, operations draw them.

A plan draws in other processes and another order than the model does without it, so their numbers differ, and nothing
could be compared. Here every operation that draws begins with the same seed: what a dropout keeps of a tensor depends
on its shape alone. And a GPU computes with the precision of its numbers, in one order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        self._forked, self._alike = torch.random.fork_rng(), _computing_alike()

    def __enter__(self) -> SameDraws:
        self._forked.__enter__()
        self._alike.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        self._alike.__exit__(*raised)
        self._forked.__exit__(*raised)

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs an operation, with the seed if it draws, and notes how precise its results are."""
        if _draws(func, args, kwargs or {}):
            self.drew = True
            torch.manual_seed(_SEED)
        function: Callable[..., Any] = func
        made = function(*args, **(kwargs or {}))
        for each in tree_leaves(made):
            if isinstance(each, Tensor) and each.is_floating_point():
                self.rounding = max(self.rounding, torch.finfo(each.dtype).eps)
        return made


def _draws(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operation draws: attention is tagged as one that may, and does so for dropout alone."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    names = [each.name for each in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs  # without those left at their defaults, such as dropout_p=0
    return "dropout_p" not in names or bool(given.get("dropout_p", 0.0))


@contextmanager
def _computing_alike() -> Iterator[None]:
    """Inside, a GPU multiplies single-precision numbers as such, and adds up in one order wherever PyTorch knows how.

    By TF32, the default of convolutions, products are rounded to ten bits, by each kernel at other places; and sums by
    atomic operations, as in an embedding's gradient, come in any order. So two runs of one step would differ by more
    than what is to be found.
    """
    if not torch.cuda.is_available():
        yield
        return
    backends: list[Any] = [torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn]  # type: ignore[attr-defined]
    before = [backend.fp32_precision for backend in backends]
    mode = torch.get_deterministic_debug_mode()
    for backend in backends:
        backend.fp32_precision = "ieee"
    torch.set_deterministic_debug_mode("warn")  # where it does not know how, it says so
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        for backend, precision in zip(backends, before, strict=True):
            backend.fp32_precision = precision
