"""Modules that run whole: what has been seen to run in one place, with nothing to do about it, is not seen again.

    first pass      block(x)    each of its calls is decided: all run on 1, and x is copied there for the first
    further ones    block(x)    x is copied, block runs without the mode, and what it returns is noted

A call of a module is such if all calls in it run in one place, where its parameters and buffers are, and are given only
what is there or an argument of the module, which is copied before. None is an autograd function, defers a gradient, or
makes a tensor on another device than it does by itself. What another device reads is returned; it is no view of what
the module was given, or of another output.

That is known of a place in the code: after the same calls as before. It holds as long as the arguments lie where they
did, and the module has the same parts (`Parts`); otherwise it is seen again. So it is after an exception, and while it
has hooks that were added since, which are to see no copies. Nothing that is copied for it is kept, which Python's count
of references tells.
Its code may still call something else, as its own values tell: all it has is on one device, and there that runs as
PyTorch runs it, as it would if it were seen.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.overrides import _pop_mode, _push_mode
from torch.utils._device import _device_constructors

from envs.placed_models.arguments import Given, guard_of, mapped, tensors_of
from envs.placed_models.copies import Copier
from envs.placed_models.decisions import Decision, Returned, WholeModule
from envs.placed_models.known_tensors import Brought, KnownTensors, memory_of, version_of
from envs.placed_models.module_parts import Parts
from envs.placed_models.places import EVERYWHERE
from graphs.foundation.errors import InputError
from graphs.op_graph import Call
from graphs.transforms.module_calls import FEWEST

# What may be asked of a tensor that lies elsewhere: a copy answers the same.
_ASKED = frozenset({"shape", "size", "dim", "ndim", "dtype", "numel", "is_floating_point", "__len__", "requires_grad"})


@dataclass(eq=False, slots=True)
class _Entered:
    """A module whose calls are seen."""

    part: nn.Module
    last: Decision  # about the call before it
    given: Given
    handled: BaseException | None  # the exception that the model's code handles meanwhile
    holders: Counter[int]  # of each argument, in Python, by its number
    brought: list[Brought] = field(default_factory=list)  # what was copied for its calls


@dataclass(eq=False, slots=True)
class _Unseen:
    """A module that runs whole."""

    part: nn.Module
    whole: WholeModule
    handled: BaseException | None
    sent: Sequence[tuple[Tensor, int]]  # arguments that may be on their way elsewhere, and their versions
    copied: list[Brought] = field(default_factory=list)
    depth: int = 0  # how often it has called itself


class Mode(Protocol):
    """The mode of a forward pass."""

    last: Decision  # about the last call so far
    within: Call | None  # the autograd function that runs
    repeats: bool  # whether calls are those of a pass before

    def leave_out(self, whole: WholeModule, returned: Any) -> None:
        """Note of what a module returns later, if at all."""


class WholeModuleCalls:
    """The calls of modules in one forward pass, whose mode all are told."""

    def __init__(self, tensors: KnownTensors, copier: Copier) -> None:
        self._tensors, self._copier = tensors, copier
        self._entered: list[_Entered] = []
        self._unseen: _Unseen | None = None

    @property
    def is_left(self) -> bool:
        """Whether a module runs whole."""
        return self._unseen is not None

    def end(self, mode: Mode) -> None:
        """The pass ends: its mode is entered again, if an exception that hooks are not told of has ended a module."""
        if self._unseen is not None:
            self._unseen.whole.runs, self._unseen = False, None
            _push_mode(mode)  # type: ignore[no-untyped-call]

    def note_brought(self, copied: Iterable[Brought]) -> None:
        """Note tensors that were copied for a call."""
        for each in self._entered:
            each.brought += copied

    # ---- what hooks tell -------------------------------------------------------------------------------------

    def enter(self, mode: Mode, part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given | None:
        """A module is called; returns other arguments, if it runs whole and some are copied for that."""
        if self._unseen is not None:
            self._unseen.depth += part is self._unseen.part
            return None
        whole, handled = mode.last.modules.get(part) if mode.repeats else None, sys.exc_info()[1]
        if whole is None or not whole.runs or _shows_others(part) or not self._is_innermost(mode):
            self._entered.append(_Entered(part, mode.last, (args, kwargs), handled, _holders((args, kwargs))))
            return None
        given = None
        _pop_mode()  # type: ignore[no-untyped-call]
        try:
            if whole.guard == guard_of(args, kwargs) and whole.parts.are_same():
                sent: list[tuple[Tensor, int]] = []
                if whole.changes:
                    self._copier.settle(whole.place)
                elif self._copier.side is not None and self._copier.side.has_left(whole.place):
                    sent = [(each, version_of(each)) for each in self._tensors.copied(tensors_of((args, kwargs)))]
                unseen = _Unseen(part, whole, handled, sent)
                if whole.copied:
                    given = self._tensors.brought((args, kwargs), whole.copied, whole.place, unseen.copied)
                self._unseen = unseen
            else:
                self._entered.append(_Entered(part, mode.last, (args, kwargs), handled, _holders((args, kwargs))))
        finally:
            if self._unseen is None:
                _push_mode(mode)  # type: ignore[no-untyped-call]
        return given

    def leave(self, mode: Mode, part: nn.Module, out: Any) -> Any:
        """A module has returned, or raised an exception; returns what it returns, if that is something else."""
        error = sys.exc_info()[1]
        if self._unseen is not None:
            if part is self._unseen.part:
                self._unseen.depth -= 1
                return self._see_again(mode, self._unseen, out, error) if self._unseen.depth < 0 else None
            return None
        while self._entered:
            entered = self._entered.pop()
            if entered.part is part:
                if error is entered.handled and not (mode.repeats and part not in entered.last.modules):
                    self._learn_unseen(mode, entered, out)
                break
        return None

    def _learn_unseen(self, mode: Mode, entered: _Entered, out: Any) -> None:
        """Learn of a module while the mode sees nothing."""
        if self._is_innermost(mode):
            _pop_mode()  # type: ignore[no-untyped-call]
            try:
                self._learn(mode, entered, out)
            finally:
                _push_mode(mode)  # type: ignore[no-untyped-call]

    def _is_innermost(self, mode: Mode) -> bool:
        """Whether the mode sees what is called next, and does with it nothing but what is decided."""
        count = torch._C._len_torch_function_stack()
        return (
            count > 0
            and torch._C._get_function_stack_at(count - 1) is mode
            and mode.within is None
            and not torch.is_inference_mode_enabled()
            and not torch._C._is_torch_function_all_disabled()
            and not torch._C._are_functorch_transforms_active()
        )

    def _see_again(self, mode: Mode, unseen: _Unseen, out: Any, error: BaseException | None) -> Any:
        """Enter the mode again, after a module that has run whole."""
        whole, result = unseen.whole, None
        try:
            if error is not unseen.handled:
                whole.runs = False
                return None
            if any(version_of(tensor) != version for tensor, version in unseen.sent):
                whole.runs = False
                raise self._refused(unseen, "changed what it was given, which is being copied")
            if any(maker.is_needed for each in whole.returned for maker in each.makers):
                self.note(whole, [out] if isinstance(out, Tensor) else list(tensors_of(out)))
            else:
                mode.leave_out(whole, out)
            if unseen.copied:
                if any(there._backward_hooks or there.retains_grad for _, _, there, _ in unseen.copied):
                    whole.runs = False
                    raise self._refused(unseen, "asked for the gradient of what it was given (a hook, `retain_grad`)")
                self._tensors.write_back(unseen.copied, whole.place)
                result = self._without_copies(unseen, out)
            mode.last = whole.end
        finally:
            self._unseen = None
            _push_mode(mode)  # type: ignore[no-untyped-call]
        return result

    def note(self, whole: WholeModule, returned: Sequence[Tensor | None]) -> None:
        """Note of tensors that a module has returned what is known of them; of those that are still there."""
        for each in whole.returned:
            tensor = returned[each.position] if each.position < len(returned) else None
            if tensor is not None and tensor not in self._tensors:
                self._tensors.note_returned(tensor, each.place, each.of, each.call, each.makers)

    def _without_copies(self, unseen: _Unseen, out: Any) -> Any:
        """What a module returns, if that is what it was given, and not what it returned before."""
        if not self._tensors.shows(unseen.copied, out):
            return None
        unseen.whole.runs = False
        of = {id(there): original for _, original, there, _ in unseen.copied}
        out = mapped(out, lambda tensor: of.get(id(tensor), tensor))
        if self._tensors.shows(unseen.copied, out):
            raise self._refused(unseen, "returned a view of what it was given")
        return out

    def _refused(self, unseen: _Unseen, what: str) -> InputError:
        return InputError(
            f"{type(unseen.part).__name__} has {what}, which it did not before, and was run whole; call the model "
            "again, which looks at each of its calls"
        )

    # ---- what is learned -------------------------------------------------------------------------------------

    def _learn(self, mode: Mode, entered: _Entered, out: Any) -> None:
        """Note of a module that has been seen whether it can run whole."""
        known, devices = entered.last.modules.get(entered.part), self._copier.places.devices
        if mode.repeats:
            if known is not None and known.end is mode.last:
                known.guard, known.parts = guard_of(*entered.given), Parts(entered.part, devices[known.place])
            return
        decisions = _since(entered.last, mode.last)
        if len(decisions) < FEWEST:
            return
        place = _place(decisions)
        if place is None or not _is_by_itself(decisions, place, devices[place]):
            return
        parts, copied = Parts(entered.part, devices[place]), self._copied(entered, out)
        returned = self._returned(entered, out, place, decisions)
        if copied is None or returned is None or not (parts.run and parts.are_same()):
            return
        changes = any(each.changes or each.writes for each in decisions)
        guard = guard_of(*entered.given)
        whole = WholeModule(mode.last, place, guard, parts, copied, changes, tuple(returned))
        may_be_read = {maker for each in returned for maker in _shown(each.makers)}
        for each in decisions:
            if each not in may_be_read:
                each.within.append(whole)
                whole.runs &= not each.is_needed
        entered.last.modules[entered.part] = whole

    def _copied(self, entered: _Entered, out: Any) -> tuple[int | str, ...] | None:
        """The arguments that were copied for calls of a module.

        None if something else was, or if one of them is returned, kept anywhere, or has attributes of the user's.
        """
        args, kwargs = entered.given
        more = (
            _holders(entered.given) - entered.holders - Counter(id(original) for _, original, _, _ in entered.brought)
        )
        holders: dict[int, int | str] = {
            id(tensor): key
            for key, value in _arguments(args, kwargs)
            if _is_fixed(value)
            for tensor in tensors_of(value)
        }
        kept = {id(tensor) for part in entered.part.modules() for tensor in tensors_of(vars(part))}
        memory = {memory_of(tensor) for tensor in tensors_of(out)}
        for _, original, there, version in entered.brought:
            if id(original) not in holders or id(original) in kept or version_of(there) != version:
                return None
            if id(original) in more or vars(original):
                return None
            if memory_of(original) in memory or memory_of(there) in memory:
                return None
        return tuple(dict.fromkeys(holders[id(original)] for _, original, _, _ in entered.brought))

    def _returned(self, entered: _Entered, out: Any, place: int, decisions: list[Decision]) -> list[Returned] | None:
        """What is to be noted of what a module returns; None if it is not all its own."""
        given = {id(tensor) for tensor in tensors_of(entered.given)}
        found, memory, own = list[Returned](), set[int](), set(decisions)
        for position, tensor in enumerate(tensors_of(out)):
            if id(tensor) in given or tensor not in self._tensors:
                continue
            known, shown = self._tensors.of(tensor), memory_of(tensor)
            if known.place != place or not known.makers or shown in memory or not own.issuperset(_shown(known.makers)):
                return None
            memory.add(shown)
            found.append(Returned(position, known.place, known.of, known.call, known.makers))
        return found


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[int | str, Any]]:
    yield from enumerate(args)
    yield from kwargs.items()


def _shows_others(part: nn.Module) -> bool:
    """Whether what a module is given is shown to hooks of the user, added since: they are to see no copies."""
    return any(
        not hasattr(next(reversed(hooks.values()), None), "runs_by_plan")
        for hooks in (part._forward_pre_hooks, part._forward_hooks)
    )


def _holders(given: Given) -> Counter[int]:
    """How often Python refers to each tensor of arguments, by its number; autograd does not count."""
    return Counter({id(tensor): sys.getrefcount(tensor) for tensor in tensors_of(given)})


def _is_fixed(value: Any) -> bool:
    """Whether a call can be given copies of an argument's tensors: not within a list, which it may change."""
    if type(value) is tuple:
        return all(map(_is_fixed, value))
    return not isinstance(value, (tuple, list, dict))


def _since(first: Decision, last: Decision) -> list[Decision]:
    """The decisions after one, the latest first; none if the other does not come after it."""
    found, each = list[Decision](), last
    while each is not first:
        found.append(each)
        if each.before is None:
            return []
        each = each.before
    return found


def _place(decisions: Iterable[Decision]) -> int | None:
    """The place where all calls run, but for what is asked of a tensor elsewhere; None for several."""
    places = {each.place for each in decisions if not (_asks(each) or (each.place == EVERYWHERE and not each.moved))}
    return places.pop() if len(places) == 1 else None


def _asks(decision: Decision) -> bool:
    return decision.call.function in _ASKED and not (decision.made or decision.changes)


def _is_by_itself(decisions: Iterable[Decision], place: int, device: torch.device) -> bool:
    """Whether calls do the same if they are not seen, given what is in their place."""
    return all(
        each.repeats
        and not (each.is_part or isinstance(each.function, type) or each.defers or each.call.function == "data")
        and (not each.tells or _is_told(each, device))
        and all(made.place in (place, EVERYWHERE) for made in each.made)
        for each in decisions
    )


def _is_told(decision: Decision, device: torch.device) -> bool:
    """Whether the model's own code tells a call on which device it makes a tensor, and that is this one."""
    if decision.options is not None:
        return decision.function in _device_constructors() and _same(decision.options[0], device)
    first = next((each for each in decision.guard if not isinstance(each, str)), None)
    return decision.call.function.startswith("new_") and first == device


def _same(told: object, device: torch.device) -> bool:
    return isinstance(told, torch.device) and told == device


def _shown(makers: Iterable[Decision]) -> set[Decision]:
    """Decisions about what made a tensor, and what that shows."""
    found, more = set[Decision](), [*makers]
    while more:
        each = more.pop()
        if each not in found:
            found.add(each)
            more += each.shows
    return found
