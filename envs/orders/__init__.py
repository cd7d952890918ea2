"""Orders: which of the ops that are ready a device runs first. An extension folder: one file, one rule.

A rule gives each op of a problem a priority, the smaller first; a transfer is as urgent as its producer. A plan may
also give a number for each op itself (`Plan.order`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from envs.costs.costs import costs_of
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.user_code import user_code
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from graphs.runtime import order_spec

GIVEN = "given"  # how reports name an order that is a number for each op, and no rule


class Order(Protocol):
    """A rule that orders the ops of any problem."""

    def priorities(self, problem: Problem, op_seconds: Floats) -> Floats:
        """(ops,) the smaller goes first, of equal ones what was ready first; empty for first come, first served.

        `op_seconds`, (ops, devices), are what the ops cost: `problem.op_seconds` may be None.
        """
        ...


def load_order(spec: str) -> Order:
    """The rule that a spec names, such as "longest_path" or "my.py:build".

    Raises InputError for an unknown name or knob, and for what is no rule.
    """
    is_known = isinstance(spec, str) and not by_name.own(spec)
    return _remembered(spec) if is_known else _built(spec)


def _built(spec: str) -> Order:
    order: Order = by_name.build("envs.orders", order_spec(spec))
    return order


_remembered = lru_cache(maxsize=64)(_built)  # a search asks for every candidate; a user's file may have changed


def priorities_of(
    problem: Problem, order: str | Floats | Ints | Sequence[float] = "", op_seconds: Floats | None = None
) -> Floats:
    """(ops,) priorities by a rule, the problem's unless one is named, or as given; empty for first come, first served.

    `op_seconds`, (ops, devices), need not be given. Raises InputError for an unknown rule, and for priorities that are
    not one finite number for each op.
    """
    if isinstance(order, str) or problem.runtime.streams:
        return _by_rule(problem, _rule(problem, order), op_seconds)
    given = np.array(order, np.float64)
    if given.shape != (len(problem.graph),) or not np.isfinite(given).all():
        raise InputError(
            f"a given order is one finite number for each of the {len(problem.graph)} ops of {problem.graph.name!r}, "
            f"the smallest first; got {_described(given)}"
        )
    return given


def order_name(problem: Problem, order: str | Floats | Ints | Sequence[float]) -> str:
    """How reports name the order of a plan for a problem: the spec of its rule, or `GIVEN`."""
    if isinstance(order, str) or problem.runtime.streams:
        return order_spec(_rule(problem, order))
    return GIVEN


def _rule(problem: Problem, order: str | Floats | Ints | Sequence[float]) -> str:
    """The problem's rule, unless another is named: a loop of the user's own follows no other."""
    return order if isinstance(order, str) and order and not problem.runtime.streams else problem.runtime.order


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


def _by_rule(problem: Problem, spec: str, op_seconds: Floats | None) -> Floats:
    """(ops,) or no priorities by a rule; what others' rules say is checked."""
    op_seconds = costs_of(problem).op_seconds if op_seconds is None else op_seconds
    found = load_order(spec).priorities(problem, op_seconds)
    try:
        priorities = np.array(found, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{spec!r}: expected priorities as numbers, got {type(found).__name__}") from error
    ops = len(problem.graph)
    if priorities.shape not in ((ops,), (0,)) or not np.isfinite(priorities).all():
        raise InputError(
            f"{spec!r}: expected one finite priority for each of the {ops} ops of {problem.graph.name!r}, or none for "
            f"first come, first served; got {_described(priorities)}"
        )
    return priorities


def _described(numbers: Floats) -> str:
    wrong = numbers.size - int(np.isfinite(numbers).sum())
    return f"an array of shape {numbers.shape}" + (f", of which {wrong} are NaN or infinite" if wrong else "")
