"""The mode in which a model's forward pass runs: it sees every call, and runs it where the plan says.

    plan: a on 0; b, c on 1          forward: x = a(i); y = b(x.T); z = c(x)

    a   runs on 0, on a copy of i if that is elsewhere
    .T  is a view, which no plan knows: it stays with x
    b   runs on 1, on the view of a copy of x
    c   runs on 1, on the same copy: there is one of a tensor for each device that reads it

Nothing else is different: values, gradients, random numbers and aliases are those of the same calls in the same order.
What a call changes in place is changed where it lies, so that whoever holds that tensor sees it. (GPUs have generators
of random numbers of their own: what is drawn on another one is other numbers.)

An autograd function runs on one device, forward and backward, since its backward may read all that its forward has read
and made. What it returns has the gradient that it says, be it a view or the input itself: it is copied, and not made
again elsewhere as views are.

What was decided about the calls of one pass is done likewise in the next (`decisions`), as long as its calls are the
same. Where they no longer are, what was left out until there is noted, and the rest is decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.modules._functions import BackwardHookFunction
from torch.utils._pytree import tree_map_only

from envs.placed_models.arguments import devices_of, tensors_of
from envs.placed_models.call_placement import CallPlacement
from envs.placed_models.copies import Copier, CopyOf
from envs.placed_models.decisions import Decision, Decisions, Made
from envs.placed_models.in_place import changed_argument
from envs.placed_models.known_tensors import Brought, KnownTensors, View, version_of
from envs.placed_models.places import EVERYWHERE
from envs.placed_models.weight_gradients import deferred
from graphs.capture.function_calls import FunctionCalls
from graphs.op_graph import Call

# Views where memory allows it, as it may have on another kind of device.
_LAYOUTS = {"reshape", "flatten", "contiguous"}

_MOVES = {"to", "cuda", "cpu"}  # by the model's own code

# What these are given says where in autograd's graph gradients are wanted; of a copy there would be others, or none.
_OF_THE_GRAPH = {torch.autograd.grad, torch.autograd.backward, Tensor.backward}


# The decisions about calls that were repeated without a note, with what they returned, and what they changed.
_LeftOut = list[tuple[Decision, list["ref[Tensor]"], "ref[Tensor] | None"]]


class PlacedCalls(FunctionCalls):
    """One forward pass of a model."""

    def __init__(
        self,
        path: Callable[[], str],
        placement: CallPlacement,
        copier: Copier,
        weights: Callable[[], Iterable[tuple[str, nn.Parameter]]],
        decisions: Decisions,
        *,
        defers: bool,
    ) -> None:
        """`weights` gives the model's parameters with their names; `defers`: gradients of weights wait."""
        super().__init__(path)
        self.unknown: dict[Call, int] = {}  # calls that the plan does not know -> where they ran
        self._placement, self._copier, self._defers = placement, copier, defers
        self._of_function: int | None = None  # the place of the autograd function that runs, if all of it has one
        self._tensors = KnownTensors(placement.homes, copier, weights)
        self._decisions, self._last = decisions, decisions.start()
        self._left_out: _LeftOut | None = []  # None: the calls are others than before, and all is noted

    @property
    def so_far(self) -> Counter[tuple[str, str]]:
        """How many calls there were, by module and function."""
        return self.made.copy() if self._left_out is None else self.made + self._last.made_before

    # ---- a call ----------------------------------------------------------------------------------------------

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """What the function returns, having run where it did in a pass before, or as `run` decides."""
        kwargs = kwargs or {}
        if self.within is not None:
            return self.run(self.within, func, args, kwargs)
        decision = self._next(func, args, kwargs)
        if not decision.repeats:
            return self.run(decision.call, func, args, kwargs)
        if decision.writes:
            self._copier.settle(decision.place)
        if decision.brings:
            return self._repeated(decision, func, args, kwargs)
        out = self._called(func, args, kwargs) if self._defers else func(*args, **kwargs)
        if decision.made or decision.changes:
            self._note_again(decision, out, func, args, kwargs)
        return out

    def named(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """The next call, which is of an autograd function."""
        with torch._C.DisableTorchFunction():
            return self._next(function, args, kwargs).call

    def _next(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Decision:
        """The decision about the next call, which is new unless the same calls have been made before."""
        devices, last = devices_of(args, kwargs), self._last
        if self._left_out is not None:
            for each in last.after:
                is_same = each.function == function and each.devices == devices
                if is_same and (each.options is None or each.options == _options(args, kwargs)):
                    self._last = each
                    return each
            self._note_left_out()
        call = super().named(function, args, kwargs)
        options = _options(args, kwargs) if call.function in _MOVES else None
        self._last = self._decisions.decide(last, call, function, devices, options)
        return self._last

    def _repeated(
        self, decision: Decision, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What a call returns for which tensors are copied, as in a pass before."""
        copied: list[Brought] = []
        args, kwargs = self._tensors.brought((args, kwargs), decision.place, copied)
        out = self._called(function, args, kwargs)
        self._tensors.write_back(copied, decision.place)
        self._note_again(decision, out, function, args, kwargs)
        return out

    def run(self, call: Call, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the call returns, having run where the plan says, or else where the first tensor is that it reads."""
        if function in _OF_THE_GRAPH:
            return function(*args, **kwargs)
        place = self._placement.devices.get(call) if self.within is None else self._of_function
        given = list(tensors_of((args, kwargs)))
        changed = changed_argument(function, args, kwargs)
        at = self._place_of_call(place, given, changed)
        copied: list[Brought] = []
        makes_new = place is not None and _is_new(function)
        if at != EVERYWHERE and not makes_new:
            args, kwargs = self._tensors.brought((args, kwargs), at, copied)
        self._copier.settle(at)  # whatever it changes
        versions = [version_of(tensor) for tensor in tensors_of((args, kwargs))]
        is_plain = given != [] and not makes_new and kwargs.get("device") is None
        if place is not None and (makes_new or kwargs.get("device") is not None):
            kwargs = kwargs | {"device": self._copier.places.devices[at]}
        if not given and at != EVERYWHERE:
            with self._copier.places.devices[at]:
                out = function(*args, **kwargs)
        else:
            out = self._called(function, args, kwargs)
        if self.within is None:
            self._last.writes = versions != [version_of(tensor) for tensor in tensors_of((args, kwargs))]
        is_plain &= not self._tensors.write_back(copied, at)
        changes = changed is not None and place is not None
        if changed is not None and changes:
            self._tensors.note_change(changed, call, self._last)
        made, is_known = self._note(out, call, at, function, args, kwargs, is_planned=place is not None)
        if self.within is None and is_plain and is_known and (changed is None or changed is args[0]):
            self._last.settle(at, made, brings=copied != [], changes=changes)
        elif self.within is None:
            self._tensors.need(given)
        return out

    def _called(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._defers:
            out = deferred(function, args, kwargs)
            if out is not NotImplemented:
                return out
        return function(*args, **kwargs)

    def apply(self, call: Call, function: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What an autograd function returns, all of whose forward runs in one place, on inputs that are there."""
        planned, copied, given = self._placement.devices.get(call), list[Brought](), list(tensors_of((args, kwargs)))
        at = self._place_of_call(planned, given, None)
        is_moved = at != EVERYWHERE and function is not BackwardHookFunction  # which passes on what it is given
        with torch._C.DisableTorchFunction():
            self._tensors.need(given)
            if is_moved:
                args, kwargs = self._tensors.brought((args, kwargs), at, copied)
        self._copier.settle(at)
        self._of_function = at if is_moved else None
        out = super().apply(call, function, args, kwargs)
        with torch._C.DisableTorchFunction():
            self._tensors.write_back(copied, at)
        if planned is None and any(self._tensors.of(made).call == call for made in tensors_of(out)):
            self.unknown.setdefault(call, at)
        return out

    def _place_of_call(self, place: int | None, given: list[Tensor], changed: Tensor | None) -> int:
        if changed is not None and self._tensors.of(changed).of is not CopyOf.GIVEN:
            return self._tensors.of(changed).place
        if changed is not None:
            return self._copier.places.of(changed.device)
        if place is not None:
            return place
        return next((at for tensor in given if (at := self._tensors.of(tensor).place) != EVERYWHERE), EVERYWHERE)

    def _note(
        self,
        out: Any,
        call: Call,
        at: int,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        is_planned: bool,
    ) -> tuple[list[Made], bool]:
        """Note of what a call returns where it is: views with what they show, and all else where it was made.

        Returns what was noted, and whether that could not be an output that the plan does not know.
        """
        read = list(tensors_of((args, kwargs)))
        new = [
            (position, tensor)
            for position, tensor in enumerate(tensors_of(out))
            if tensor not in self._tensors and not any(tensor is each for each in read)
        ]
        made, is_known = list[Made](), True
        if not new:
            return made, is_known
        memory = {_memory(tensor): tensor for tensor in reversed(read)}
        is_made_here = is_planned or any(self._tensors.of(tensor).of is not CopyOf.GIVEN for tensor in read)
        for position, tensor in new:
            shown = memory.get(_memory(tensor))
            if shown is None and not is_planned and call.function in _LAYOUTS:
                shown = read[0]
            if shown is not None:
                known = self._tensors.of(shown)
                is_whole = tensor.numel() >= shown.numel() or known.of is not CopyOf.OUTPUT
                shows = known.call if is_whole or not is_planned else call
                made.append(Made(position, known.place, known.of, shows, is_whole))
            elif is_made_here:
                place = at if self._copier.places.has(tensor, at) else self._copier.places.of(tensor.device)
                made.append(Made(position, place, CopyOf.OUTPUT, call, is_view=False))
                if not is_planned and call.function not in _MOVES:
                    is_known &= not tensor.dtype.is_floating_point
                    if tensor.requires_grad or not self._placement.of_training:
                        self.unknown.setdefault(call, place)
            else:
                continue
            self._tensors.note(made[-1], tensor, self._last, View.of(made[-1], tensor, function, args, kwargs))
        return made, is_known

    # ---- as before -------------------------------------------------------------------------------------------

    def _note_again(
        self,
        decision: Decision,
        out: Any,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Note of what a call returns what was noted before, if that was of use; otherwise only if it will be."""
        changed = args[0] if decision.changes and args else None
        if not decision.is_needed:
            assert self._left_out is not None
            tensors = [ref(out)] if isinstance(out, Tensor) else [ref(each) for each in tensors_of(out)]
            self._left_out.append((decision, tensors, changed if changed is None else ref(changed)))
            return
        if changed is not None:
            self._tensors.note_change(changed, decision.call, decision)
        for made, tensor in decision.of_made(list(tensors_of(out))):
            if tensor not in self._tensors:
                self._tensors.note(made, tensor, decision, View.of(made, tensor, function, args, kwargs))

    def _note_left_out(self) -> None:
        """Note what was left out, of tensors that are still there: from here on the calls are others than before."""
        assert self._left_out is not None
        for decision, tensors, changed in self._left_out:
            tensor = _alive(changed)
            if tensor is not None:
                self._tensors.note_change(tensor, decision.call, decision)
            for made, each in decision.of_made(tensors):
                tensor = _alive(each)
                if tensor is not None and tensor not in self._tensors:
                    self._tensors.note(made, tensor, decision)
        self.made.update(self._last.made_before)
        self._left_out = None

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


def _memory(tensor: Tensor) -> int:
    """A number that a tensor and its views have in common; another one for each that has no memory of its own."""
    if tensor.is_sparse or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return -id(tensor)
    return int(tensor.untyped_storage()._cdata)


def _is_new(function: Callable[..., Any]) -> bool:
    """Whether a function makes a tensor on any device: `Tensor.new_ones` reads nothing of its first argument."""
    return str(getattr(function, "__name__", "")).startswith("new_")


def _options(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """What a function that moves a tensor is told, but for tensors."""
    return tuple(each for each in (*args[1:], *kwargs.items()) if not isinstance(each, Tensor))


def _alive(tensor: ref[Tensor] | None) -> Tensor | None:
    """A tensor, if there still is one."""
    there = None if tensor is None else tensor()
    if there is not None:
        there._fix_weakref()  # type: ignore[attr-defined]  # of one that only PyTorch has kept, as torch.utils.weak does
    return there
