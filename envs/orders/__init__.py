"""Orders: which of the ops that are ready a device runs first. An extension folder: one file, one rule.

A rule gives each op of a problem a priority, the smaller first; a transfer is as urgent as its producer. A plan may
also give a number for each op itself (`Plan.order`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from envs.costs.costs import costs_of
from graphs.foundation import by_name
from graphs.foundation.by_name import Extension
from graphs.foundation.errors import InputError
from graphs.foundation.user_code import user_code
from graphs.op_graph import Floats
from graphs.problem import Problem
from graphs.runtime import order_of

GIVEN = "given"  # how reports name an order that is a number for each op, and no rule
OrderLike: TypeAlias = Extension[Any] | str | NDArray[np.number] | Sequence[float] | None
"""A rule, its spec, or a number for each op, the smaller first; None, or "", for the rule of the problem."""


class Order(Protocol):
    """A rule that orders the ops of any problem."""

    def priorities(self, problem: Problem, op_seconds: Floats) -> Floats:
        """(ops,) the smaller goes first, of equal ones what was ready first; empty for first come, first served.

        `op_seconds`, (ops, devices), are what the ops cost: `problem.op_seconds` may be None.
        """
        ...


def priorities_of(problem: Problem, order: OrderLike = None, op_seconds: Floats | None = None) -> Floats:
    """(ops,) priorities by a rule, or as given; empty for first come, first served.

    `op_seconds`, (ops, devices), need not be given. Raises InputError for an unknown rule, and for priorities that are
    not one finite number for each op.
    """
    rule = _rule(problem, order)
    if rule is not None:
        return _by_rule(problem, rule, op_seconds)
    given = np.array(order, np.float64)
    if given.shape != (len(problem.graph),) or not np.isfinite(given).all():
        raise InputError(
            f"a given order is one finite number for each of the {len(problem.graph)} ops of {problem.graph.name!r}, "
            f"the smallest first; got {_described(given)}"
        )
    return given


def order_name(problem: Problem, order: OrderLike) -> str:
    """How reports name the order of a plan for a problem: the spec of its rule, or `GIVEN`."""
    rule = _rule(problem, order)
    return GIVEN if rule is None else rule.name


def _rule(problem: Problem, order: OrderLike) -> Extension[Order] | None:
    """The rule, the problem's unless another is named; None for numbers. A loop of the user's own follows no other."""
    if problem.runtime.streams or order is None or (isinstance(order, str) and not order):
        return problem.runtime.order
    return order_of(order) if isinstance(order, str | Extension) else None


@dataclass(frozen=True)
class OwnOrder(by_name.OwnExtension[Order]):
    """A rule from a user's file."""

    folder = "envs.orders"

    def priorities(self, problem: Problem, op_seconds: Floats) -> Floats:
        """What the user's rule says. Raises UserCodeError for what its code raises."""
        with user_code(self.file):
            return self.built.priorities(problem, op_seconds)


def checked(spec: str, built: Any) -> Order:
    """What `build` of a user's file or of another package returned. Raises InputError for what is no rule."""
    order: Order = OwnOrder.checked(spec, built, "an order", "priorities")
    return order


def _by_rule(problem: Problem, rule: Extension[Order], op_seconds: Floats | None) -> Floats:
    """(ops,) or no priorities by a rule; what others' rules say is checked."""
    op_seconds = costs_of(problem).op_seconds if op_seconds is None else op_seconds
    found = rule.built.priorities(problem, op_seconds)
    try:
        priorities = np.array(found, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{rule.name!r}: expected priorities as numbers, got {type(found).__name__}") from error
    ops = len(problem.graph)
    if priorities.shape not in ((ops,), (0,)) or not np.isfinite(priorities).all():
        raise InputError(
            f"{rule.name!r}: expected one finite priority for each of the {ops} ops of {problem.graph.name!r}, or none "
            f"for first come, first served; got {_described(priorities)}"
        )
    return priorities


def _described(numbers: Floats) -> str:
    wrong = numbers.size - int(np.isfinite(numbers).sum())
    return f"an array of shape {numbers.shape}" + (f", of which {wrong} are NaN or infinite" if wrong else "")
