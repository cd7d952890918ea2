"""A model whose forward pass runs where a plan says: the same object, with the same parameters and the same names."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from types import CodeType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack

from envs.costs.costs import costs_of
from envs.placed_models.call_placement import CallPlacement
from envs.placed_models.called_parts import UnknownCallWarning, add_hooks, passes
from envs.placed_models.compilers import NotScriptedError, check_compiler, hide_from_compilers
from envs.placed_models.copies import Copier, Copy
from envs.placed_models.decisions import Decision, Decisions
from envs.placed_models.placed_calls import PlacedCalls
from envs.placed_models.places import DeviceLike, Places, given_devices
from envs.placed_models.recomputation import Resume, remembered_regions
from envs.placed_models.side_streams import SideStreams
from envs.placed_models.weight_homes import WeightHomes
from envs.plans.plan import Plan
from envs.replay.replayed_forward import ReplayedForward
from graphs.capture.function_calls import ModulePath
from graphs.foundation.errors import InputError, listed
from graphs.foundation.torch_names import PARALLELIZE, check_names
from graphs.op_graph import Call, Ints, OpGraph, Phase
from graphs.problem import Problem

Model = TypeVar("Model", bound=nn.Module)


def run_by_plan(
    model: Model,
    problem: Problem,
    plan: Plan,
    devices: Sequence[DeviceLike] | Mapping[str, DeviceLike],
    *,
    replayed: ReplayedForward | None = None,
    whole_modules: bool = True,
) -> Model:
    """The model, from now on run by a plan whose calls are on one device each (`call_placement.on_calls`).

    The problem's runtime says whether gradients of weights are deferred, and whether copies between accelerators have
    side streams. Parameters and buffers are moved. Training steps are `replayed`, if that is given; it was made of the
    same model. Modules on one device run whole, or each call of the model is seen (`envs.placed_models.whole_modules`).
    Raises InputError for devices that are not those of the plan, for a model that the problem's graph is not of, for
    one that is run by a plan already, and if PyTorch lacks what is needed.
    """
    check_names(PARALLELIZE)
    if isinstance(vars(model).get("forward"), PlacedForward):
        raise InputError("this model is run by a plan already; make it again to run it by another")
    _check_model(model, problem.graph)
    places = Places(given_devices(devices, problem.cluster))
    placement = CallPlacement.of(problem.graph, plan)
    _move(model, placement, places)
    hide_from_compilers(PlacedForward)
    waiting = _deferred(problem) if len({*placement.devices.values()}) > 1 else np.zeros(0, np.int64)
    deferred = frozenset(call for op in waiting.tolist() if (call := problem.graph.calls[op]) is not None)
    side = SideStreams(places.devices) if problem.runtime.copies == "side" else None
    forward = model.forward = PlacedForward(model, placement, Copier(places, side), deferred)
    seen = waiting if whole_modules else np.flatnonzero(problem.graph.phase == Phase.FORWARD)
    add_hooks(model, problem.graph, plan.placement, seen)
    if replayed is not None:
        replayed.begin(model, placement.homes, forward.copier)
        forward.replayed = replayed
    return model


@contextmanager
def counted_copies(model: nn.Module) -> Iterator[list[Copy]]:
    """The copies that a model which is run by a plan makes inside: its forward pass, and the backward pass after it.

    Gradients of a forward pass that was outside are copied by autograd, and not counted.
    """
    forward = vars(model).get("forward")
    if not isinstance(forward, PlacedForward):
        raise InputError("this model is not run by a plan, so that it makes no copies; give what parallelize returned")
    copier = forward.copier
    before, copier.made = copier.made, []
    try:
        yield copier.made
    finally:
        copier.made = before


class PlacedForward:
    """The forward function of a model that is run by a plan."""

    runs_by_plan = True  # by which a capture, which is below, knows it

    def __init__(self, model: nn.Module, placement: CallPlacement, copier: Copier, deferred: frozenset[Call]) -> None:
        """To be put in place of the model's own, which may itself have been put in place of its class's."""
        self.copier = copier
        self.replayed: ReplayedForward | None = None
        self._model, self._placement, self._deferred = model, placement, deferred
        self._own: Callable[..., Any] | None = vars(model).get("forward")
        self._homes, self._decisions = WeightHomes(model, placement.homes), Decisions()
        self._named: set[Call] = set()  # the unknown calls that a warning has named

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns. Raises InputError within `torch.export`, or `torch.compile` with `fullgraph=True`."""
        check_compiler()
        if self in passes.models and self._is_seen():  # the model calls itself
            return self._forward(*args, **kwargs)
        if self.replayed is not None and self.replayed.runs():
            return self.replayed(args, kwargs)
        with self._running("", self._decisions.start) as calls:
            returned = self._forward(*args, **kwargs)
        returned = calls.outputs(returned)
        self.copier.settle_all()
        self._name(calls.unknown)
        return returned

    def _is_seen(self) -> bool:
        """Whether the plan runs what is called; not within a call: of autograd that computes the model again."""
        calls = passes.calls[-1]
        if calls is None or calls.modules.is_left:
            return True
        modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        return any(isinstance(mode, PlacedCalls) for mode in modes)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._forward)

    @property
    def __code__(self) -> CodeType:
        return self._forward.__code__  # torch.export reads its name

    @property
    def __globals__(self) -> dict[str, Any]:
        raise NotScriptedError(
            "a model that is run by a plan is not scripted, for TorchScript does not see what the plan does; script "
            "another one, with the `state_dict` of this one"
        )

    @property
    def _forward(self) -> Callable[..., Any]:
        return self._own or type(self._model).forward.__get__(self._model)

    def __deepcopy__(self, memo: dict[int, Any]) -> PlacedForward:
        """For a copy of the model, on the same devices."""
        copier = Copier(self.copier.places, self.copier.side)
        copied = PlacedForward.__new__(PlacedForward)
        memo[id(self)] = copied
        copied.__init__(deepcopy(self._model, memo), self._placement, copier, self._deferred)  # type: ignore[misc]
        copied._own = deepcopy(self._own, memo)
        if self.replayed is not None:
            copied.replayed = self.replayed.of_copy(copied._model, self._placement.homes, copier)
        return copied

    @contextmanager
    def _running(self, begun: str, start: Callable[[], Decision]) -> Iterator[PlacedCalls]:
        """Inside, the model's calls run by the plan, from a path and a decision in its code on."""
        path, decisions = ModulePath(self._model, begun), self._decisions
        calls = PlacedCalls(path, self._placement, self.copier, self._homes, decisions, start(), self._deferred)

        def resume() -> Resume:
            if calls.modules.is_left:
                return self._unseen
            here, last = path(), calls.last
            return lambda: self._running(here, partial(decisions.start_again, here, last))

        try:
            with self._known(calls), remembered_regions(resume, self.copier.places.devices), calls:
                yield calls
        finally:
            self.copier.settle_all()

    def _unseen(self) -> AbstractContextManager[None]:
        """Inside, a part of the model that runs whole is computed again."""
        return self._known(None)

    @contextmanager
    def _known(self, calls: PlacedCalls | None) -> Iterator[None]:
        """Inside, parts of the model know that it runs."""
        passes.models.append(self)
        passes.calls.append(calls)
        try:
            yield
        finally:
            passes.calls.pop()
            passes.models.pop()

    def _name(self, unknown: Mapping[Call, int]) -> None:
        """Warn of unknown calls, each once."""
        new = {call: place for call, place in unknown.items() if call not in self._named}
        if not new:
            return
        self._named.update(new)
        place, calls = next(iter(new.values())), [f"({each.module!r}, {each.function!r}, {each.index})" for each in new]
        read = "it reads is" if len(new) == 1 else "they read is"
        warnings.warn(
            f"the plan does not know the call {listed(calls, 1)}; it runs where the first tensor that {read}, "
            f"on {self.copier.places.devices[place]}: plan the model as it runs now",
            UnknownCallWarning,
            stacklevel=3,
        )


def _deferred(problem: Problem) -> Ints:
    """The ops whose gradients of weights wait, as they do where the problem's plans are simulated."""
    timed = replace(problem, op_seconds=costs_of(problem).op_seconds)
    return problem.graph.mirror[np.flatnonzero(timed.deferred)]


def _check_model(model: nn.Module, graph: OpGraph) -> None:
    """Raise InputError for a model that has not the weights, or not the modules, that a graph has, or is compiled."""
    if hasattr(model, "_orig_mod"):
        raise InputError(
            "the model was compiled by torch.compile, and runs as one piece; give the module itself, which is its "
            "`_orig_mod`, or was there before"
        )
    weights = dict(model.named_parameters(remove_duplicate=False))
    ratio: float | None = None  # of the bytes of a weight in the graph and here, which may be of another type
    for name, size in zip(graph.weight_names, graph.weights.tolist(), strict=True):
        if name not in weights:
            raise InputError(
                f"this plan is for another model: {graph.name!r} has a weight {name!r}, the given has none; "
                "plan this model"
            )
        weight = weights[name]
        here = size / max(weight.numel() * weight.element_size(), 1)
        ratio = here if ratio is None else ratio
        if here != ratio or here not in (0.25, 0.5, 1, 2, 4):
            raise InputError(
                f"this plan is for another model: in {graph.name!r} the weight {name!r} has {size:.0f} bytes, and the "
                f"given one is of shape {tuple(weight.shape)}; plan this model"
            )
    paths = {path for path, _ in model.named_modules()}
    for call in graph.calls:
        if call is not None and call.module not in paths:
            raise InputError(
                f"this plan is for another model: {graph.name!r} has a module {call.module!r}, and the given has "
                "none; plan this model"
            )


def _move(model: nn.Module, placement: CallPlacement, places: Places) -> None:
    """Put each weight where the plan updates it, and each buffer where its module makes its first call."""
    first: dict[str, int] = {}
    for call, place in placement.devices.items():
        first.setdefault(call.module, place)
    for name, weight in model.named_parameters():
        if name in placement.homes:
            _put(weight, places.devices[placement.homes[name]], name)
    for name, buffer in model.named_buffers():
        path = name.rpartition(".")[0]
        if path in first:
            _put(buffer, places.devices[first[path]], name)


def _put(tensor: torch.Tensor, device: torch.device, name: str) -> None:
    if tensor.is_meta and device.type != "meta":
        raise InputError(
            f"{name!r} is on the meta device, which holds no data; give a model with data, such as made by "
            "`model.to_empty(device='cpu')` and a checkpoint"
        )
    if tensor.device != device:
        tensor.data = tensor.data.to(device)
