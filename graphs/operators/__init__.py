"""Operators: index notation of ATen operations. An extension folder: one file describes operations of one sort.

A file lists the kinds of ops that it describes in `KINDS`, and calls of them in `EXAMPLES`; its `build` returns a
`Description`. A kind that no file describes, or not with these arguments, is not divided.

`tests/contracts/test_operators.py` runs every strategy of every example on slices, forward and backward, and so finds a
wrong description. In an example, x(4, 6) is a tensor, p(4, 6) one of positive numbers, c(4, 6) the same without
a gradient, b(4, 6) one of truth values, and i(9, 4, 6) one of whole numbers below 9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.notation.operator import Operator
from graphs.notation.signatures import Signature

if TYPE_CHECKING:
    from torch import Tensor

    from graphs.notation.shard import Shard

FOLDER = "graphs.operators"


@dataclass(frozen=True)
class Description:
    """How ops of some kinds are described, and how a part of one is run."""

    operator: Callable[[Signature], Operator | None]  # with the tensors as they are read; None if it cannot be divided
    run: Callable[[Shard], Tensor] | None = None  # what a part makes of its slices; None: the operation as it is
    together: Callable[[Sequence[Shard]], list[Tensor]] | None = (
        None  # all parts, each once, where they share statistics
    )


@cache
def kinds() -> dict[str, str]:
    """The kinds of ops that are described, "aten.mm", and the name of the file that does so.

    Raises InputError for a file that lists none: `KINDS` is read without running it.
    """
    found = {}
    for name in by_name.names(FOLDER):
        listed = by_name.constants(FOLDER, name).get("KINDS")
        if not listed:
            raise InputError(f"operators {name!r}: no kinds of ops; list them as text, such as KINDS = ('aten.mm',)")
        found.update(dict.fromkeys(listed, name))
    return found


def description_of(kind: str) -> Description | None:
    """The description of a kind of ops, if there is one."""
    name = kinds().get(kind)
    return None if name is None else _built(name)


def described(signature: Signature) -> Operator | None:
    """An op in index notation, with the tensors as it reads them; None if it is not described."""
    description = description_of(signature.function)
    return None if description is None else description.operator(signature)


@cache
def _built(name: str) -> Description:
    built: Description = by_name.build(FOLDER, name)
    return built


def checked(spec: str, built: Any) -> Description:
    """What `build` of another package returned. Raises InputError for what is no description."""
    if not isinstance(built, Description):
        raise InputError(f"{spec!r}: expected a description of operators, got {type(built).__name__}")
    return built
