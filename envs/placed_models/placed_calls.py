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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.modules._functions import BackwardHookFunction
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from envs.placed_models.call_placement import CallPlacement
from envs.placed_models.copies import Copier, CopyOf
from envs.placed_models.in_place import changed_argument
from envs.placed_models.places import EVERYWHERE
from envs.placed_models.weight_gradients import deferred
from graphs.capture.function_calls import FunctionCalls
from graphs.op_graph import Call

# Views where memory allows it, as it may have on another kind of device.
_LAYOUTS = {"reshape", "flatten", "contiguous"}

_MOVES = {"to", "cuda", "cpu"}  # by the model's own code

# What these are given says where in autograd's graph gradients are wanted; of a copy there would be others, or none.
_OF_THE_GRAPH = {torch.autograd.grad, torch.autograd.backward, Tensor.backward}


@dataclass(eq=False)
class _View:
    """How a tensor was made that shows all of another."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: int  # which of the tensors that the function returns
    with_gradient: bool  # whether it had one, when it was made


@dataclass(eq=False)
class _Known:
    """What is known of a tensor."""

    place: int
    of: CopyOf
    call: Call | None = None  # that made it, or what it is a view of
    view: _View | None = None
    copies: dict[int, tuple[Tensor, int]] = field(default_factory=dict)  # by place: a copy, and of which version


class _Brought(NamedTuple):
    """A tensor that was copied for a call, and the copy."""

    original: Tensor
    there: Tensor
    version: int  # of the copy, before the call


class PlacedCalls(FunctionCalls):
    """One forward pass of a model."""

    def __init__(
        self,
        paths: list[str],
        placement: CallPlacement,
        copier: Copier,
        weights: Mapping[str, nn.Parameter],
        *,
        defers: bool,
    ) -> None:
        """`weights` are the model's parameters by name; `defers`: gradients of weights wait."""
        super().__init__(paths)
        self.unknown: dict[Call, int] = {}  # calls that the plan does not know -> where they ran
        self._placement, self._copier, self._defers = placement, copier, defers
        self._of_function: int | None = None  # the place of the autograd function that runs, if all of it has one
        self._known = WeakTensorKeyDictionary()
        for name, weight in weights.items():
            home = placement.homes.get(name, EVERYWHERE)
            lies = home if copier.places.has(weight, home) else copier.places.of(weight.device)
            self._known[weight] = _Known(lies, CopyOf.WEIGHT)

    # ---- a call ----------------------------------------------------------------------------------------------

    def run(self, call: Call, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the call returns, having run where the plan says, or else where the first tensor is that it reads."""
        if function in _OF_THE_GRAPH:
            return function(*args, **kwargs)
        place = self._placement.devices.get(call) if self.within is None else self._of_function
        given = list(_tensors((args, kwargs)))
        changed = changed_argument(function, args, kwargs)
        at = self._place_of_call(place, given, changed)
        copied: list[_Brought] = []
        makes_new = place is not None and _is_new(function)
        if at != EVERYWHERE and not makes_new:
            args, kwargs = self._brought((args, kwargs), at, copied)
        if place is not None and (makes_new or kwargs.get("device") is not None):
            kwargs = kwargs | {"device": self._copier.places.devices[at]}
        if not given and at != EVERYWHERE:
            with self._copier.places.devices[at]:
                out = function(*args, **kwargs)
        else:
            out = self._called(function, args, kwargs)
        self._write_back(copied, at)
        if changed is not None and place is not None:
            self._of(changed).call = call
        self._note(out, call, at, function, args, kwargs, is_planned=place is not None)
        return out

    def _called(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._defers:
            out = deferred(function, args, kwargs)
            if out is not NotImplemented:
                return out
        return function(*args, **kwargs)

    def apply(self, call: Call, function: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What an autograd function returns, all of whose forward runs in one place, on inputs that are there."""
        planned, copied = self._placement.devices.get(call), list[_Brought]()
        at = self._place_of_call(planned, list(_tensors((args, kwargs))), None)
        is_moved = at != EVERYWHERE and function is not BackwardHookFunction  # which passes on what it is given
        with torch._C.DisableTorchFunction():
            if is_moved:
                args, kwargs = self._brought((args, kwargs), at, copied)
        self._of_function = at if is_moved else None
        out = super().apply(call, function, args, kwargs)
        with torch._C.DisableTorchFunction():
            self._write_back(copied, at)
        if planned is None and any(self._of(made).call == call for made in _tensors(out)):
            self.unknown.setdefault(call, at)
        return out

    def _place_of_call(self, place: int | None, given: list[Tensor], changed: Tensor | None) -> int:
        if changed is not None and self._of(changed).of is not CopyOf.GIVEN:
            return self._of(changed).place
        if changed is not None:
            return self._copier.places.of(changed.device)
        if place is not None:
            return place
        return next((at for tensor in given if (at := self._of(tensor).place) != EVERYWHERE), EVERYWHERE)

    def _brought(self, arguments: Any, at: int, copied: list[_Brought]) -> Any:
        """Arguments in a place; copies that were made for it are added to `copied`."""

        def put(tensor: Tensor) -> Tensor:
            there = self.at(tensor, at)
            if there is not tensor:
                copied.append(_Brought(tensor, there, _version(there)))
            return there

        return _mapped(arguments, put)

    def _write_back(self, copied: Iterable[_Brought], at: int) -> None:
        """Where a call has changed the copy of a tensor, which neither its name nor its arguments said: change that."""
        for original, there, version in copied:
            if _version(there) == version:
                continue
            known, back = self._of(original), there
            if known.place != EVERYWHERE:
                back = self._copier.copy(there, at, known.place, known.of, known.call)
            with torch.set_grad_enabled(torch.is_grad_enabled() and (original.requires_grad or there.requires_grad)):
                original.copy_(back)
            known.copies = {at: (there, _version(original))}

    # ---- tensors ---------------------------------------------------------------------------------------------

    def at(self, tensor: Tensor, place: int) -> Tensor:
        """The tensor, or the one copy of it, in a place."""
        known = self._of(tensor)
        if known.place == place or (known.place == EVERYWHERE and self._copier.places.has(tensor, place)):
            return tensor
        with_gradient, view = torch.is_grad_enabled() and tensor.requires_grad, known.view
        if view is not None and tensor.requires_grad and not view.with_gradient:
            view = None  # it has been given a gradient of its own, by an autograd function or as a leaf
        copy, version = known.copies.get(place, (None, 0))
        if copy is not None and version == _version(tensor) and (copy.requires_grad or not with_gradient):
            return copy
        if view is not None:
            with torch.set_grad_enabled(with_gradient):
                copy = self._again(view, place)
        else:
            copy = self._copier.copy(tensor, known.place, place, known.of, known.call)
        self._known[copy] = _Known(place, known.of, known.call)
        known.copies[place] = copy, _version(tensor)
        return copy

    def _again(self, view: _View, place: int) -> Tensor:
        """The same view of a copy of what it is a view of."""

        def put(tensor: Tensor) -> Tensor:
            return self.at(tensor, place)

        out = view.function(*_mapped(view.args, put), **_mapped(view.kwargs, put))
        return list(_tensors(out))[view.output]

    def _of(self, tensor: Tensor) -> _Known:
        """What is known of a tensor; of one that nothing is known of, where it lies."""
        known: _Known | None = self._known.get(tensor)  # type: ignore[no-untyped-call]
        if known is None:
            known = _Known(self._copier.places.of(tensor.device), CopyOf.GIVEN)
            self._known[tensor] = known
        return known

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
    ) -> None:
        """Note of what a call returns where it is: views with what they show, and all else where it was made."""
        made = [(position, tensor) for position, tensor in enumerate(_tensors(out)) if tensor not in self._known]
        if not made:
            return
        read = list(_tensors((args, kwargs)))
        memory = {_memory(tensor): tensor for tensor in reversed(read)}
        is_made_here = is_planned or any(self._of(tensor).of is not CopyOf.GIVEN for tensor in read)
        for position, tensor in made:
            shown = memory.get(_memory(tensor))
            if shown is None and not is_planned and call.function in _LAYOUTS:
                shown = read[0]
            if shown is not None:
                known = self._of(shown)
                view = _View(function, args, kwargs, position, torch.is_grad_enabled() and tensor.requires_grad)
                is_whole = tensor.numel() >= shown.numel() or known.of is not CopyOf.OUTPUT
                shows = known.call if is_whole or not is_planned else call
                self._known[tensor] = _Known(known.place, known.of, shows, view if is_whole else None)
            elif is_made_here:
                place = at if self._copier.places.has(tensor, at) else self._copier.places.of(tensor.device)
                self._known[tensor] = _Known(place, CopyOf.OUTPUT, call)
                counts = tensor.requires_grad or not self._placement.of_training
                if counts and not is_planned and call.function not in _MOVES:
                    self.unknown.setdefault(call, place)

    # ---- the end ---------------------------------------------------------------------------------------------

    def outputs(self, returned: Any) -> Any:
        """What the model returns: what the plan's loss reads is where that is computed, and all else where it is."""
        loss = self._placement.loss_device
        if loss < 0:
            return returned

        def put(tensor: Tensor) -> Tensor:
            known: _Known | None = self._known.get(tensor)  # type: ignore[no-untyped-call]
            reads = known is not None and known.call in self._placement.loss_reads
            return self.at(tensor, loss) if reads else tensor

        return tree_map_only(Tensor, put, returned)


def _memory(tensor: Tensor) -> int:
    """A number that a tensor and its views have in common; another one for each that has no memory of its own."""
    if tensor.is_sparse or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return -id(tensor)
    return int(tensor.untyped_storage()._cdata)


def _is_new(function: Callable[..., Any]) -> bool:
    """Whether a function makes a tensor on any device: `Tensor.new_ones` reads nothing of its first argument."""
    return str(getattr(function, "__name__", "")).startswith("new_")


def _version(tensor: Tensor) -> int:
    """How often the memory of a tensor has been changed in place."""
    return 0 if tensor.is_inference() else tensor._version


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors of arguments, or of what a function returns."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each)


def _mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Arguments with each tensor replaced."""
    if isinstance(value, Tensor):
        return function(value)
    if type(value) in (tuple, list):
        return type(value)([_mapped(each, function) for each in value])
    if type(value) is dict:
        return {key: _mapped(each, function) for key, each in value.items()}
    return value
