"""What is known of tensors while a model runs: in which place each is, what made it, and its copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from envs.placed_models.arguments import mapped, tensors_of
from envs.placed_models.copies import Copier, CopyOf
from envs.placed_models.decisions import Decision, Made
from envs.placed_models.places import EVERYWHERE
from graphs.op_graph import Call


@dataclass(eq=False)
class View:
    """How a tensor was made that shows all of another."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: int  # which of the tensors that the function returns
    with_gradient: bool  # whether it had one, when it was made

    @classmethod
    def of(
        cls, made: Made, tensor: Tensor, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> View | None:
        """How a call has just made a tensor; None if that does not show another."""
        if not made.is_view:
            return None
        return cls(function, args, kwargs, made.position, torch.is_grad_enabled() and tensor.requires_grad)


@dataclass(eq=False)
class Known:
    """What is known of a tensor."""

    place: int
    of: CopyOf
    call: Call | None = None  # that made it, or what it is a view of
    view: View | None = None
    copies: dict[int, tuple[Tensor, int]] = field(default_factory=dict)  # by place: a copy, and its version
    makers: list[Decision] = field(default_factory=list)  # about the calls that made it, or changed it

    def need(self) -> None:
        """Let it be known in further passes, too."""
        for maker in self.makers:
            maker.is_needed = True


class Brought(NamedTuple):
    """A tensor that was copied for a call, and the copy."""

    original: Tensor
    there: Tensor
    version: int  # of the copy, before the call


class KnownTensors:
    """The tensors of one forward pass."""

    def __init__(
        self, homes: Mapping[str, int], copier: Copier, weights: Callable[[], Iterable[tuple[str, nn.Parameter]]]
    ) -> None:
        """`homes`: the places of weights by name; `weights` gives the model's parameters with their names."""
        self._homes_by_name, self._copier, self._weights = homes, copier, weights
        self._homes: dict[int, tuple[nn.Parameter, int]] = {}  # by the number of a weight, once one is asked for
        self._known = WeakTensorKeyDictionary()

    def __contains__(self, tensor: Tensor) -> bool:
        return tensor in self._known

    def at(self, tensor: Tensor, place: int) -> Tensor:
        """The tensor, or the one copy of it, in a place."""
        known = self.of(tensor)
        if known.place == place or (known.place == EVERYWHERE and self._copier.places.has(tensor, place)):
            return tensor
        known.need()
        with_gradient, view = torch.is_grad_enabled() and tensor.requires_grad, known.view
        if view is not None and tensor.requires_grad and not view.with_gradient:
            view = None  # it has been given a gradient of its own, by an autograd function or as a leaf
        copy, version = known.copies.get(place, (None, 0))
        if copy is not None and version == version_of(tensor) and (copy.requires_grad or not with_gradient):
            return copy
        if view is not None:
            with torch.set_grad_enabled(with_gradient):
                copy = self._again(view, place)
        else:
            copy = self._copier.copy(tensor, known.place, place, known.of, known.call)
        self._known[copy] = Known(place, known.of, known.call)
        self._known[tensor] = known
        known.copies[place] = copy, version_of(tensor)
        return copy

    def _again(self, view: View, place: int) -> Tensor:
        """The same view of a copy of what it is a view of."""

        def put(tensor: Tensor) -> Tensor:
            return self.at(tensor, place)

        out = view.function(*mapped(view.args, put), **mapped(view.kwargs, put))
        return list(tensors_of(out))[view.output]

    def of(self, tensor: Tensor) -> Known:
        """What is known of a tensor; of one that nothing is known of, where it lies."""
        known: Known | None = self._known.get(tensor)  # type: ignore[no-untyped-call]
        if known is not None:
            return known
        places = self._copier.places
        if not self._homes:
            homes = self._homes_by_name
            self._homes = {id(weight): (weight, homes.get(name, EVERYWHERE)) for name, weight in self._weights()}
        weight, home = self._homes.get(id(tensor), (None, EVERYWHERE))
        if weight is not tensor:
            return Known(places.of(tensor.device), CopyOf.GIVEN)
        return Known(home if places.has(tensor, home) else places.of(tensor.device), CopyOf.WEIGHT)

    def need(self, given: Iterable[Tensor]) -> None:
        """Let what is known of tensors be known in further passes, too: a call that is not repeated reads them."""
        for tensor in given:
            self.of(tensor).need()

    def brought(self, arguments: Any, at: int, copied: list[Brought]) -> Any:
        """Arguments in a place; copies that were made for it are added to `copied`."""

        def put(tensor: Tensor) -> Tensor:
            there = self.at(tensor, at)
            if there is not tensor:
                copied.append(Brought(tensor, there, version_of(there)))
            return there

        return mapped(arguments, put)

    def write_back(self, copied: Iterable[Brought], at: int) -> bool:
        """Where a call has changed the copy of a tensor, which neither its name nor its arguments said: change that.

        Returns whether one has.
        """
        has_changed = False
        for original, there, version in copied:
            if version_of(there) == version:
                continue
            has_changed = True
            known, back = self.of(original), there
            if known.place != EVERYWHERE:
                back = self._copier.copy(there, at, known.place, known.of, known.call)
            with torch.set_grad_enabled(torch.is_grad_enabled() and (original.requires_grad or there.requires_grad)):
                original.copy_(back)
            known.copies = {at: (there, version_of(original))}
        return has_changed

    def note(self, made: Made, tensor: Tensor, decision: Decision, view: View | None = None) -> None:
        """Note of a tensor what made it."""
        self._known[tensor] = Known(made.place, made.of, made.call, view, makers=[decision])

    def note_change(self, changed: Tensor, call: Call, decision: Decision) -> None:
        """Note that a tensor is now what a call has made of it."""
        known = self._known[changed] = self.of(changed)
        known.call = call
        known.makers.append(decision)


def version_of(tensor: Tensor) -> int:
    """How often the memory of a tensor has been changed in place."""
    return 0 if tensor.is_inference() else tensor._version
