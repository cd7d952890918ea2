"""What is known of tensors while a model runs: in which place each is, what made it, and its copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor

from envs.placed_models.arguments import Given, mapped, tensors_of
from envs.placed_models.copies import Copier, CopyOf
from envs.placed_models.decisions import Decision, Made
from envs.placed_models.places import EVERYWHERE
from envs.placed_models.weight_homes import WeightHomes
from graphs.op_graph import Call

_State = tuple[int, int, int]  # of a tensor: it is another after each change in place


class View(NamedTuple):
    """How a tensor was made that shows all of another."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: int  # which of the tensors that the function returns
    with_gradient: bool  # whether it had one, when it was made

    @classmethod
    def of(
        cls, tensor: Tensor, output: int, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> View:
        """How a call has just made a tensor."""
        return cls(function, args, kwargs, output, torch.is_grad_enabled() and tensor.requires_grad)


def _nobody() -> None:
    return None


@dataclass(eq=False, slots=True)
class Known:
    """What is known of a tensor."""

    place: int
    of: CopyOf
    call: Call | None = None  # that made it, or what it is a view of
    view: View | None = None
    makers: tuple[Decision, ...] = ()  # about the calls that made it, or changed it
    copies: dict[int, tuple[Tensor, _State]] = field(default_factory=dict)  # by place: a copy, and of which state
    tensor: Callable[[], Tensor | None] = _nobody  # whose it is, if that is noted

    def need(self) -> None:
        """Let it be known in further passes, too."""
        for maker in self.makers:
            maker.need()


# A tensor that was copied for a call: the argument that holds it, itself, the copy, and its version before the call.
Brought = tuple[int | str, Tensor, Tensor, int]


class _Table(dict[int, Known]):
    """What is known of tensors, by their numbers."""


class _Key(ref[Tensor]):
    """A reference to a tensor of a table, in which there is nothing of it once it is gone.

    As of torch.utils.weak.WeakTensorKeyDictionary, which takes several times as long.
    """

    __slots__ = ("number", "table")

    number: int
    table: ref[_Table]


def _forget(key: Any) -> None:
    table = key.table()
    if table is not None:
        table.pop(key.number, None)


class KnownTensors:
    """The tensors of one forward pass."""

    def __init__(self, homes: WeightHomes, copier: Copier) -> None:
        """`homes`: the places of weights."""
        self._homes, self._copier = homes, copier
        self._known = _Table()
        self._table = ref(self._known)
        self._writes: dict[int, int] = {}  # changes in place since it was first copied, by memory

    def __contains__(self, tensor: Tensor) -> bool:
        known = self._known.get(id(tensor))
        return known is not None and known.tensor() is tensor

    def _keep(self, tensor: Tensor, known: Known) -> None:
        if known.tensor() is None:
            key = known.tensor = _Key(tensor, _forget)
            key.number, key.table = id(tensor), self._table
            self._known[key.number] = known

    def at(self, tensor: Tensor, place: int) -> Tensor:
        """The tensor, or the one copy of it, in a place."""
        known = self.of(tensor)
        if known.place == place or (known.place == EVERYWHERE and self._copier.places.has(tensor, place)):
            return tensor
        with_gradient, state = tensor.requires_grad and torch.is_grad_enabled(), self._state(tensor)
        copy, of = known.copies.get(place, (None, None))
        if copy is not None and of == state and (copy.requires_grad or not with_gradient):
            return copy
        known.need()
        if known.tensor is _nobody:
            self._keep(tensor, known)
        copy = self._copied(tensor, known, place, with_gradient=with_gradient)
        self._keep(copy, Known(place, known.of, known.call))
        known.copies[place] = copy, state
        return copy

    def _all_at(self, value: Any, place: int) -> Any:
        """The same of the tensors of an argument."""
        return self.at(value, place) if isinstance(value, Tensor) else mapped(value, lambda each: self.at(each, place))

    def _copied(self, tensor: Tensor, known: Known, place: int, *, with_gradient: bool) -> Tensor:
        """A copy; of a view the same view of a copy of what it shows.

        But a tensor has a gradient of its own that an autograd function has given it, or as a leaf; and what may be a
        view (`reshape`) is none if it has memory of its own.
        """
        view = known.view
        if view is not None and (view.with_gradient or not tensor.requires_grad) and _shows(view, tensor):
            args = [self._all_at(each, place) for each in view.args]
            kwargs = {name: self._all_at(each, place) for name, each in view.kwargs.items()}
            with nullcontext() if with_gradient else torch.no_grad():
                out = view.function(*args, **kwargs)
            return out if isinstance(out, Tensor) else list(tensors_of(out))[view.output]
        if with_gradient:
            return self._copier.copy(tensor, known.place, place, known.of, known.call)
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False), torch.no_grad():  # so that changes of the copy are counted
                return self._copier.moved(tensor, known.place, place, known.of, known.call)
        return self._copier.moved(tensor, known.place, place, known.of, known.call)

    def of(self, tensor: Tensor) -> Known:
        """What is known of a tensor; of one that nothing is known of, where it lies."""
        known = self._known.get(id(tensor))
        if known is not None and known.tensor() is tensor:
            return known
        places, home = self._copier.places, self._homes.of(tensor)
        if home is None:
            return Known(places.of(tensor.device), CopyOf.GIVEN)
        is_home = home != EVERYWHERE and places.has(tensor, home)
        return Known(home if is_home else places.of(tensor.device), CopyOf.WEIGHT)

    def need(self, given: Iterable[Tensor]) -> None:
        """Let what is known of tensors be known in further passes, too: a call that is not repeated reads them."""
        for tensor in given:
            self.of(tensor).need()

    def brought(self, given: Given, which: Iterable[int | str], at: int, copied: list[Brought]) -> Given:
        """Arguments in a place, `which` of them are looked at; copies that were made for it are added to `copied`."""
        args, kwargs = list(given[0]), given[1].copy()

        def put(argument: int | str, tensor: Tensor) -> Tensor:
            there = self.at(tensor, at)
            if there is not tensor:
                copied.append((argument, tensor, there, version_of(there)))
            return there

        for argument in which:
            holder: Any = kwargs if isinstance(argument, str) else args
            value = holder[argument]
            holder[argument] = (
                put(argument, value) if isinstance(value, Tensor) else mapped(value, partial(put, argument))
            )
        return tuple(args), kwargs

    def copied(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Those of whose memory there may be copies."""
        return [tensor for tensor in tensors if memory_of(tensor) in self._writes]

    def shows(self, copied: Iterable[Brought], out: Any) -> bool:
        """Whether what a call returns shows a copy that was made for it."""
        if isinstance(out, Tensor) and out.requires_grad and not out._is_view():  # has memory of its own, or is one
            return any(there is out for _, _, there, _ in copied)
        memory = [memory_of(there) for _, _, there, _ in copied]
        return any(memory_of(tensor) in memory for tensor in tensors_of(out))

    def write_back(self, copied: Iterable[Brought], at: int) -> None:
        """Where a call has changed the copy of a tensor, which neither its name nor its arguments said: change that."""
        for _, original, there, version in copied:
            if version_of(there) == version:
                continue
            known, back = self.of(original), there
            if known.place != EVERYWHERE:
                back = self._copier.copy(there, at, known.place, known.of, known.call)
            self._copier.settle(known.place)
            with torch.set_grad_enabled(torch.is_grad_enabled() and (original.requires_grad or there.requires_grad)):
                original.copy_(back)
            self.note_write(original)
            known.copies = {at: (there, self._state(original))}

    def note(self, made: Made, tensor: Tensor, decision: Decision, view: View | None = None) -> None:
        """Note of a tensor what made it."""
        self._keep(tensor, Known(made.place, made.of, made.call, view, (decision,)))

    def note_returned(
        self, tensor: Tensor, place: int, of: CopyOf, call: Call | None, makers: tuple[Decision, ...]
    ) -> None:
        """Note of a tensor what is known of it: a module returns it whose calls were not seen."""
        self._keep(tensor, Known(place, of, call, None, makers))

    def note_change(self, changed: Tensor, decision: Decision) -> None:
        """Note that a tensor is now what a call has made of it."""
        known = self.of(changed)
        self._keep(changed, known)
        known.call = decision.call
        known.makers += (decision,)

    def note_write(self, changed: Tensor) -> None:
        """Note that a call has changed a tensor, and all that show the same memory."""
        if self._writes and (memory := memory_of(changed)) in self._writes:
            self._writes[memory] += 1

    def _state(self, tensor: Tensor) -> _State:
        """What no copy of the tensor has that was made before it has changed, or has got other memory (`Tensor.data`).

        PyTorch counts no change in inference mode, nor one of what `Tensor.data` returns.
        """
        memory = memory_of(tensor)
        return version_of(tensor), memory, self._writes.setdefault(memory, 0)


def memory_of(tensor: Tensor) -> int:
    """A number that a tensor and its views have in common; another one for each that has no memory of its own."""
    try:
        memory: int = tensor.untyped_storage()._cdata
    except NotImplementedError:  # sparse, or seen within a transform of a function
        return -id(tensor)
    return memory


def _shows(view: View, tensor: Tensor) -> bool:
    memory, first = memory_of(tensor), view.args[0] if view.args else None
    if isinstance(first, Tensor) and memory_of(first) == memory:
        return True
    return any(memory_of(each) == memory for each in tensors_of((view.args, view.kwargs)))


def version_of(tensor: Tensor) -> int:
    """How often the memory of a tensor has been changed in place."""
    return 0 if tensor.is_inference() else tensor._version
