"""The mode in which a model's forward pass runs: it sees every call, and runs it where the plan says.

    plan: a on 0; b, c on 1          forward: x = a(i); y = b(x.T); z = c(x)

    a   runs on 0, on a copy of i if that is elsewhere
    .T  is a view, which no plan knows: it stays with x
    b   runs on 1, on the view of a copy of x
    c   runs on 1, on the same copy: there is one of a tensor for each device that reads it

Nothing else is different: values, gradients, random numbers and aliases are those of the same calls in the same order.
What a call changes in place is changed where it lies, so that whoever holds that tensor sees it; so a call that turns
out to return a view of a copy is made again, of the tensor itself. (GPUs have generators of random numbers of their
own: what is drawn on another one is other numbers.)

An autograd function runs on one device, forward and backward, since its backward may read all that its forward has read
and made. What it returns has the gradient that it says, be it a view or the input itself: it is copied, and not made
again elsewhere as views are.

What was decided about the calls of one pass is done likewise in the next (`decisions`), as long as its calls are the
same. Where they no longer are, what was left out until there is noted, and the rest is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.modules._functions import BackwardHookFunction
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_map_only

from envs.placed_models.arguments import Given, guard_of, tensors_of
from envs.placed_models.call_placement import CallPlacement
from envs.placed_models.copies import Copier, CopyOf
from envs.placed_models.decisions import Decision, Decisions, Made, WholeModule
from envs.placed_models.in_place import changed_argument
from envs.placed_models.known_tensors import Brought, KnownTensors, View, memory_of, version_of
from envs.placed_models.places import EVERYWHERE
from envs.placed_models.recomputation import drawing_by_others
from envs.placed_models.weight_gradients import deferred
from envs.placed_models.weight_homes import WeightHomes
from envs.placed_models.whole_modules import WholeModuleCalls
from graphs.capture.function_calls import FunctionCalls
from graphs.op_graph import Call

# Views where memory allows it, as it may have on another kind of device.
_LAYOUTS = {"reshape", "flatten", "contiguous"}

_MOVES = {"to", "cuda", "cpu"}  # by the model's own code

# What these are given says where in autograd's graph gradients are wanted; of a copy there would be others, or none.
_OF_THE_GRAPH = {torch.autograd.grad, torch.autograd.backward, Tensor.backward}


# Decisions about calls that were repeated without a note, or modules, what these returned, and what calls changed.
_LeftOut = list[tuple[Decision | WholeModule, "ref[Tensor] | list[ref[Tensor]]", "ref[Tensor] | None"]]


class PlacedCalls(FunctionCalls):
    """One forward pass of a model."""

    def __init__(
        self,
        path: Callable[[], str],
        placement: CallPlacement,
        copier: Copier,
        homes: WeightHomes,
        decisions: Decisions,
        start: Decision,
        deferred: Container[Call],
    ) -> None:
        """`start` comes before the first call; gradients of weights of `deferred` calls wait."""
        super().__init__(path)
        self.unknown: dict[Call, int] = {}  # calls that the plan does not know -> where they ran
        self._placement, self._copier, self._deferred = placement, copier, deferred
        self._of_function: int | None = None  # the place of the autograd function that runs, if all of it has one
        self._tensors = KnownTensors(homes, copier)
        self._decisions, self.last = decisions, start  # about the last call so far
        self.repeats = True  # the calls are those of a pass before; otherwise all is noted
        self._left_out: _LeftOut = []
        self.modules = WholeModuleCalls(self._tensors, copier)

    def __exit__(self, *raised: object) -> None:
        self.modules.end(self)
        super().__exit__(*raised)

    # ---- a call ----------------------------------------------------------------------------------------------

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """What the function returns, having run where it did in a pass before, or where it is decided now."""
        kwargs = kwargs or {}
        decision = self._next(func, args, kwargs)
        if not decision.is_plain:
            return self._run(decision, func, args, kwargs)
        out = self._called(decision, func, args, kwargs) if decision.defers else func(*args, **kwargs)
        if decision.is_needed:
            self._note_again(decision, None, out, func, args, kwargs)
        elif decision.made:
            self._left_out.append((decision, _references(out), None))
        return out

    def named(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """The next call, which is of an autograd function."""
        with torch._C.DisableTorchFunction():
            return self._next(function, args, kwargs).call

    def _next(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Decision:
        """The decision about the next call, which is new unless the same calls have been made before."""
        guard, last = guard_of(args, kwargs), self.last
        if self.repeats:
            for each in last.after:
                is_same = (each.function is function or each.function == function) and each.guard == guard
                if is_same and (each.options is None or each.options == _options(function, args, kwargs)):
                    self.last = each
                    return each
            self._note_left_out()
        call = super().named(function, args, kwargs) if self.within is None else self.within
        new = Decision(call, function, guard, _options(function, args, kwargs), is_part=self.within is not None)
        new.defers = call in self._deferred
        self.last = self._decisions.add(new, after=last)
        return new

    def _run(
        self, decision: Decision, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What a call returns for which tensors are copied, or changed, or that is decided about now."""
        copied: list[Brought] = []
        given, is_repeated = (args, kwargs), decision.repeats
        if is_repeated:
            changed = args[0] if decision.changes else None
        elif function in _OF_THE_GRAPH:
            with drawing_by_others():
                return function(*args, **kwargs)
        else:
            changed = self._decide(decision, function, args, kwargs)
        if decision.moved:
            args, kwargs = self._tensors.brought(given, decision.moved, decision.place, copied)
        if self._copier.side is None or (is_repeated and not (decision.changes or decision.writes)):
            out = self._called(decision, function, args, kwargs)
        else:
            out = self._settled(decision, function, args, kwargs)
        if copied and self._tensors.shows(copied, out):  # a view stays with what it shows, so as to change with it
            args, kwargs = given
            out, copied, is_repeated = function(*args, **kwargs), [], False
        if copied:
            self.modules.note_brought(copied)
            self._tensors.write_back(copied, decision.place)
        if changed is not None:
            self._tensors.note_write(changed)
        if is_repeated:
            self._note_again(decision, changed, out, function, args, kwargs)
        else:
            made = self._note(decision, changed, out, function, args, kwargs)
            self._settle(decision, made, given, changed, copied)
        return out

    def _settled(
        self, decision: Decision, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What the function returns, before which what leaves in side streams has been read, for it may change that."""
        self._copier.settle(decision.place)
        if decision.repeats:
            return self._called(decision, function, args, kwargs)
        versions = [version_of(tensor) for tensor in tensors_of((args, kwargs))]
        out = self._called(decision, function, args, kwargs)
        decision.writes = versions != [version_of(tensor) for tensor in tensors_of((args, kwargs))]
        return out

    def _called(
        self, decision: Decision, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What the function returns, of arguments that are where it runs."""
        if decision.tells:
            device = self._copier.places.devices[decision.place]
            if decision.has_device:
                return function(*args, **kwargs | {"device": device})
            with device:
                return function(*args, **kwargs)
        if decision.defers:
            out = deferred(function, args, kwargs)
            if out is not NotImplemented:
                return out
        return function(*args, **kwargs)

    def _decide(
        self, decision: Decision, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Tensor | None:
        """Decide where a call runs, and on what; returns the tensor that it changes."""
        planned = self._placement.devices.get(decision.call) if self.within is None else self._of_function
        given, changed = list(tensors_of((args, kwargs))), changed_argument(function, args, kwargs)
        place, is_planned = self._place_of_call(planned, given, changed), planned is not None
        makes_new = is_planned and _is_new(function)
        names_device = is_planned and kwargs.get("device") is not None
        decision.place, decision.is_planned, decision.changes = place, is_planned, changed is not None
        decision.moved = (*range(len(args)), *kwargs) if place != EVERYWHERE and given and not makes_new else ()
        decision.tells = place != EVERYWHERE and (makes_new or names_device or not given)
        decision.has_device = makes_new or names_device or function in _device_constructors()
        return changed

    def apply(self, call: Call, function: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What an autograd function returns, all of whose forward runs in one place, on inputs that are there."""
        copied: list[Brought] = []
        decision, is_repeated = self.last, self.last.repeats
        planned, is_hook = self._placement.devices.get(call), function is BackwardHookFunction
        with torch._C.DisableTorchFunction():
            if not is_repeated:
                decision.place = self._place_of_call(planned, list(tensors_of((args, kwargs))), None)
                passes_on = decision.place == EVERYWHERE or is_hook  # what it is given
                decision.moved = () if passes_on else (*range(len(args)), *kwargs)
            if decision.moved:
                args, kwargs = self._tensors.brought((args, kwargs), decision.moved, decision.place, copied)
        self._copier.settle(decision.place)
        self._of_function = None if is_hook or decision.place == EVERYWHERE else decision.place
        out = super().apply(call, function, args, kwargs)
        with torch._C.DisableTorchFunction():
            self._tensors.write_back(copied, decision.place)
        if not is_repeated:
            if planned is None and any(self._tensors.of(made).call == call for made in tensors_of(out)):
                self.unknown.setdefault(call, decision.place)
            decision.settle((), (argument for argument, *_ in copied))
        return out

    def _place_of_call(self, place: int | None, given: list[Tensor], changed: Tensor | None) -> int:
        if changed is not None and self._tensors.of(changed).of is not CopyOf.GIVEN:
            return self._tensors.of(changed).place
        if changed is not None:
            return self._copier.places.of(changed.device)
        if place is not None:
            return place
        return next((at for tensor in given if (at := self._tensors.of(tensor).place) != EVERYWHERE), EVERYWHERE)

    # ---- what is noted ---------------------------------------------------------------------------------------

    def _note(
        self,
        decision: Decision,
        changed: Tensor | None,
        out: Any,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> list[Made]:
        """Note of what a call returns where it is: views with what they show, and all else where it was made."""
        call, at, is_planned = decision.call, decision.place, decision.is_planned
        if changed is not None and is_planned:
            self._tensors.note_change(changed, decision)
        read, made = list(tensors_of((args, kwargs))), list[Made]()
        new = [
            (position, tensor)
            for position, tensor in enumerate(tensors_of(out))
            if tensor not in self._tensors and not any(tensor is each for each in read)
        ]
        memory = {memory_of(tensor): tensor for tensor in reversed(read)} if new else {}
        is_made_here = is_planned or any(self._tensors.of(tensor).of is not CopyOf.GIVEN for tensor in read)
        for position, tensor in new:
            shown = memory.get(memory_of(tensor))
            if shown is None and not is_planned and call.function in _LAYOUTS:
                shown = read[0]
            if shown is not None:
                known = self._tensors.of(shown)
                is_whole = tensor.numel() >= shown.numel() or known.of is not CopyOf.OUTPUT
                shows = known.call if is_whole or not is_planned else call
                made.append(Made(position, known.place, known.of, shows, is_whole))
                decision.shows += known.makers if is_whole else ()
            elif is_made_here:
                place = at if self._copier.places.has(tensor, at) else self._copier.places.of(tensor.device)
                made.append(Made(position, place, CopyOf.OUTPUT, call, is_view=False))
                is_wanted = tensor.requires_grad or not self._placement.of_training
                if not is_planned and is_wanted and call.function not in _MOVES:
                    self.unknown.setdefault(call, place)
            else:
                continue
            view = View.of(tensor, position, function, args, kwargs) if made[-1].is_view else None
            self._tensors.note(made[-1], tensor, decision, view)
        return made

    def _settle(
        self, decision: Decision, made: list[Made], given: Given, changed: Tensor | None, copied: Iterable[Brought]
    ) -> None:
        """Let a call be repeated, if what it changes is its first argument or nothing."""
        if changed is None or changed is given[0][0]:
            decision.settle(made, (argument for argument, *_ in copied))
        else:
            self._tensors.need(tensors_of(given))

    def _note_again(
        self,
        decision: Decision,
        changed: Tensor | None,
        out: Any,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Note of what a call returns what was noted before, if that was of use; otherwise only if it will be."""
        if not decision.is_planned:
            changed = None  # it is what it was
        if decision.is_needed:
            if changed is not None:
                self._tensors.note_change(changed, decision)
            for made, tensor in decision.of_made([out] if isinstance(out, Tensor) else list(tensors_of(out))):
                if tensor not in self._tensors:
                    view = View.of(tensor, made.position, function, args, kwargs) if made.is_view else None
                    self._tensors.note(made, tensor, decision, view)
        elif decision.made or changed is not None:
            self._left_out.append((decision, _references(out), None if changed is None else ref(changed)))

    def leave_out(self, whole: WholeModule, returned: Any) -> None:
        """Note of what a module returns only if it will be of use."""
        if whole.returned:
            self._left_out.append((whole, _references(returned), None))

    def _note_left_out(self) -> None:
        """Note what was left out, of tensors that are still there: from here on the calls are others than before."""
        for decision, tensors, changed in self._left_out:
            returned, tensor = tensors if isinstance(tensors, list) else [tensors], _alive(changed)
            if isinstance(decision, WholeModule):
                self.modules.note(decision, [_alive(each) for each in returned])
                continue
            if tensor is not None:
                self._tensors.note_change(tensor, decision)
            for made, each in decision.of_made(returned):
                tensor = _alive(each)
                if tensor is not None and tensor not in self._tensors:
                    self._tensors.note(made, tensor, decision)
        self.made.update(self.last.made_before)
        self.repeats, self._left_out = False, []

    # ---- the end ---------------------------------------------------------------------------------------------

    def outputs(self, returned: Any) -> Any:
        """What the model returns: what the plan's loss reads is where that is computed, and all else where it is."""
        loss = self._placement.loss_device
        if loss < 0:
            return returned

        def put(tensor: Tensor) -> Tensor:
            known = self._tensors.of(tensor)
            if known.call is None or known.call not in self._placement.loss_reads:
                return tensor
            known.need()
            return self._tensors.at(tensor, loss)

        if isinstance(returned, Tensor):
            return put(returned)
        return tree_map_only(Tensor, put, returned)


def _is_new(function: Callable[..., Any]) -> bool:
    """Whether a function makes a tensor on any device: `Tensor.new_ones` reads nothing of its first argument."""
    return str(getattr(function, "__name__", "")).startswith("new_")


def _options(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """What says on which device a call's outputs are: what a function that moves a tensor is told, or a device."""
    if getattr(function, "__name__", "") in _MOVES:
        return tuple(each for each in (*args[1:], *kwargs.items()) if not isinstance(each, Tensor))
    device = kwargs.get("device")
    return None if device is None else (device,)


def _references(out: Any) -> ref[Tensor] | list[ref[Tensor]]:
    """To the tensors that a call returns."""
    return ref(out) if isinstance(out, Tensor) else [ref(tensor) for tensor in tensors_of(out)]


def _alive(tensor: ref[Tensor] | None) -> Tensor | None:
    """A tensor, if there still is one."""
    there = None if tensor is None else tensor()
    if there is not None:
        there._fix_weakref()  # type: ignore[attr-defined]  # of one that only PyTorch has kept, as torch.utils.weak does
    return there
