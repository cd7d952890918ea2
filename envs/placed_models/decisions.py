"""Decisions: what was decided about each call of a forward pass, to be done likewise in the next one.

Where a call runs, and which of its arguments are copied for that, follows from its name, from the plan and from where
its arguments are. Finding that out takes Python several times as long as the call itself. So it is kept: a pass that
calls the same functions, with tensors on the same devices, does what was decided before.

    first pass      linear  relu  linear             each is decided
    second          linear  relu  linear             as before
    third           linear  relu  sigmoid  linear    two as before; the others are decided, and kept as another way on
    fourth          either is known

Recomputation in the backward pass (`recomputation`) continues after the call before it, with decisions of its own. So
does each thread, as several may run the model at once: none sees a decision that another has not come to the end of.
Of most tensors nothing need be noted then: only of those that were copied for a call elsewhere.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from envs.placed_models.arguments import Guard
from envs.placed_models.copies import CopyOf
from envs.placed_models.module_parts import Parts
from envs.placed_models.places import EVERYWHERE
from graphs.op_graph import Call

T = TypeVar("T")

_MOST = 50_000  # decisions: a hundred ways through a model of 500 calls, some 20 MB


_Begun = tuple[str, bool, int]  # the path of the module whose code ran, whether with gradients, and the thread


class Made(NamedTuple):
    """What is known of a tensor that a call has made."""

    position: int  # among the tensors that the call returns
    place: int
    of: CopyOf
    call: Call | None
    is_view: bool  # of all of another tensor


@dataclass(eq=False, slots=True)
class Decision:
    """What was decided about a call, which is the same after the same calls before it."""

    call: Call
    function: Callable[..., Any]
    guard: Guard = field(default_factory=list)  # of its arguments
    options: tuple[Any, ...] | None = None  # of a call that is told a device: what it is told
    is_part: bool = False  # of an autograd function, whose call it is
    before: Decision | None = None  # about the previous call
    after: list[Decision] = field(default_factory=list)  # about the calls that have followed
    again: dict[_Begun, Decision] = field(default_factory=dict)  # where what is computed again begins
    repeats: bool = False  # otherwise it is decided again, each time
    is_plain: bool = False  # it is repeated, and the model's own call is all that is done
    place: int = EVERYWHERE
    is_planned: bool = False  # whether the plan says so
    defers: bool = False  # whether its gradients of weights wait
    moved: tuple[int | str, ...] = ()  # the arguments, by number or name, that hold tensors which are copied for it
    tells: bool = False  # whether it makes tensors on a device, which it is told
    has_device: bool = False  # whether an argument `device` tells it that
    changes: bool = False  # whether it changes an argument, as it says: if it is repeated, the first
    writes: bool = False  # whether it has changed any in place, if that was asked
    made: tuple[Made, ...] = ()
    shows: tuple[Decision, ...] = ()  # about the calls that made what its outputs are views of
    is_needed: bool = False  # whether what it made, or changed, was copied for another call
    modules: dict[nn.Module, WholeModule] = field(default_factory=dict)  # that were called next, and can run whole
    within: list[WholeModule] = field(default_factory=list)  # those it is part of which do not return what it makes

    def settle(self, made: Sequence[Made], moved: Iterable[int | str]) -> None:
        """Let the call be repeated as it was run."""
        self.repeats, self.made, self.moved = True, tuple(made), tuple(dict.fromkeys(moved))
        self.is_plain = not (self.moved or self.tells or self.changes or self.writes)

    def need(self) -> None:
        """Let what the call makes be known in further passes, and what that shows."""
        if not self.is_needed:
            self.is_needed = True
            for module in self.within:
                module.runs = False
            for maker in self.shows:
                maker.need()

    def of_made(self, made: Sequence[T]) -> list[tuple[Made, T]]:
        """Of each tensor that the call makes what is known of it; it may make fewer than at first."""
        return [(each, made[each.position]) for each in self.made if each.position < len(made)]

    @property
    def made_before(self) -> Counter[tuple[str, str]]:
        """How many calls there were up to this one, by module and function."""
        made, each = Counter[tuple[str, str]](), self
        while each.before is not None:
            if each.call.function and not each.is_part:  # nor where something begins
                made[each.call.module, each.call.function] += 1
            each = each.before
        return made


class Returned(NamedTuple):
    """What is known of a tensor that a module returns."""

    position: int  # among those
    place: int
    of: CopyOf
    call: Call | None
    makers: tuple[Decision, ...]


@dataclass(eq=False, slots=True)
class WholeModule:
    """What is known of a call of a module."""

    end: Decision  # about its last call
    place: int
    guard: Guard  # of its arguments
    parts: Parts
    copied: tuple[int | str, ...]  # the arguments that are copied for it
    changes: bool  # whether it changes tensors in place
    returned: tuple[Returned, ...]
    runs: bool = True  # whether it does run whole: nothing else that it makes is read on another device


class Decisions:
    """The decisions of all passes of a model so far."""

    def __init__(self) -> None:
        self._starts: dict[_Begun, Decision] = {}
        self._count = 0

    def __reduce__(self) -> tuple[type[Decisions], tuple[()]]:
        return Decisions, ()  # of a model that is copied or saved they are not part

    def start(self) -> Decision:
        """What comes before the first call of a pass of this thread, with gradients or without.

        If there were more ways through the model than are kept, they are forgotten.
        """
        if self._count > _MOST:
            self._starts, self._count = {}, 0
        return self._starts.setdefault(_begun(""), _start(None))

    def start_again(self, path: str, after: Decision) -> Decision:
        """What comes before the first call of what is computed again, which began there in the code after a call."""
        return after.again.setdefault(_begun(path), _start(after))

    def add(self, decision: Decision, after: Decision) -> Decision:
        """A new decision."""
        decision.before = after
        after.after.append(decision)
        self._count += 1
        return decision


def _begun(path: str) -> _Begun:
    return path, torch.is_grad_enabled(), threading.get_ident()


def _start(before: Decision | None) -> Decision:
    return Decision(Call("", "", 0), Decisions, before=before)
