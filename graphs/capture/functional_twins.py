"""Functional twins: for an operation that changes tensors in place, the one that makes new tensors instead."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


@cache
def twin_of(func: Any) -> tuple[Any, tuple[int | str, ...]]:
    """The operation that makes new tensors of those that `func` changes, if it is known, and what `func` calls these.

    They are positions, or names of arguments that have no position: `out`. The new tensor is the operation's result,
    for "add_" and "add.out"; for "_native_batch_norm_legit" new tensors follow its other results.
    """
    arguments = func._schema.arguments
    written = tuple(i for i, each in enumerate(arguments) if each.alias_info is not None and each.alias_info.is_write)
    name, overload = func._schema.name.partition("::")[2], func._overloadname
    if func in _TWINS:
        return _TWINS[func], written
    if any(arguments[position].kwarg_only for position in written):
        return _without_out(func, written), tuple(arguments[position].name for position in written)
    name = name[:-1] if name.endswith("_") and written == (0,) else f"{name}_functional"
    packet: Any = getattr(getattr(torch.ops, func.namespace), name, None)
    twin = getattr(packet, overload, None)
    if twin is not None and not _takes_the_same(twin, func):  # pow_.Scalar takes what pow.Tensor_Scalar does
        others = [getattr(packet, other) for other in packet.overloads()]
        twin = next((other for other in others if _takes_the_same(other, func)), twin)
    if torch.Tag.inplace_view in func.tags and not (twin is not None and is_view(twin)):
        return None, ()
    return twin, written


def _takes_the_same(func: Any, other: Any) -> bool:
    """Whether two operations take arguments of the same types, in the same order."""
    one, two = ([str(argument.type) for argument in each._schema.arguments] for each in (func, other))
    return one == two


def _without_out(func: Any, written: tuple[int, ...]) -> Any:
    """The operation that returns what `func` writes into tensors that it is given by name, all of them; or None."""
    packet, arguments = func.overloadpacket, func._schema.arguments
    given = [str(each.type) for i, each in enumerate(arguments) if i not in written]
    if not all(arguments[position].kwarg_only for position in written) or len(func._schema.returns) != len(written):
        return None
    others = (getattr(packet, name) for name in packet.overloads())
    return next(
        (
            other
            for other in others
            if not other._schema.is_mutable and [str(each.type) for each in other._schema.arguments] == given
        ),
        None,
    )


@cache
def is_view(func: Any) -> bool:
    """Whether what an operation returns lies in the memory of its first operand."""
    return any(result.alias_info is not None for result in func._schema.returns)


def split_results(out: Any, results: int) -> tuple[list[Tensor], Any]:
    """The new tensors of a twin's outputs, and its other results, as the operation returns them."""
    return list(out[results:]), out[0] if results == 1 else tuple(out[:results])


def _bernoulli(tensor: Tensor, p: float = 0.5, *, generator: torch.Generator | None = None) -> Tensor:
    drawn: Tensor = aten.bernoulli.p(tensor, p, generator=generator)
    return drawn


_TWINS = {
    aten.normal_.default: aten.normal_functional.default,
    aten.bernoulli_.float: _bernoulli,
    aten.detach_.default: aten.detach.default,
}
