"""Gradients that are not those of the calls: of autograd functions, of hooks, and of gradients."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from envs.placed_models.call_placement import CallPlacement, on_calls
from envs.placed_models.called_parts import UnknownCallWarning
from envs.placed_models.copies import Copier
from envs.placed_models.parallel import counted_copies, run_by_plan
from envs.plans.plan import Plan
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.files.load import load_cluster
from graphs.problem import Problem
from graphs.runtime import IDEAL
from tests.drawn import examples
from tests.envs.placed_models.models import WAITING, loss_of, random_run
from tests.graphs.custom_functions import Doubled, Flat, InPlace, Reversal, Rounded, Swish

WIDTH = 4


class Doing(nn.Module):
    """Steps, each with a linear layer of its own."""

    def __init__(self, *steps: str) -> None:
        super().__init__()
        self.steps = steps
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in steps)
        for name, layer in zip(steps, self.layers, strict=True):
            if name == "hooked":
                layer.register_full_backward_hook(lambda _, found, given: (2 * found[0],))  # type: ignore[index]
            elif name == "hooked before":
                layer.register_full_backward_pre_hook(lambda _, given: (3 * given[0],))  # type: ignore[index]

    def forward(self, x: Tensor) -> Tensor:
        for name, layer in zip(self.steps, self.layers, strict=True):
            x = STEPS[name](x, layer)
        return x


def _swish(x: Tensor, layer: nn.Module) -> Tensor:
    product, gate = Swish.apply(x, layer(x))  # type: ignore[no-untyped-call]
    return product + gate  # type: ignore[no-any-return]


def _in_place(x: Tensor, layer: nn.Module) -> Tensor:
    y = layer(x) + 1
    return (InPlace.apply(y) + y).tanh()  # type: ignore[no-untyped-call, no-any-return]


Step = Callable[[Tensor, nn.Module], Tensor]
STEPS: dict[str, Step] = {
    "linear": lambda x, layer: layer(x).tanh(),
    "reversed": lambda x, layer: layer(Reversal.apply(x)),  # type: ignore[no-untyped-call]
    "reversed after": lambda x, layer: Reversal.apply(layer(x)),  # type: ignore[no-untyped-call]
    "doubled": lambda x, layer: layer(Doubled.apply(x)),  # type: ignore[no-untyped-call]
    "flat": lambda x, layer: layer(Flat.apply(x).view(-1, WIDTH)),  # type: ignore[no-untyped-call]
    "rounded": lambda x, layer: layer(Rounded.apply(x)),  # type: ignore[no-untyped-call]
    "straight through": lambda x, layer: layer(x + (torch.round(x) - x).detach()),
    "swish": _swish,
    "hooked": lambda x, layer: layer(x).tanh(),
    "hooked before": lambda x, layer: layer(x).tanh(),
}


def apart(model: nn.Module, seed: int, *, devices: Any = ("cpu", "cpu"), defer: bool = False) -> nn.Module:
    """A copy of a model that is run by a random plan."""
    bare = deepcopy(model)
    for part in bare.modules():  # which capture does not take
        part._backward_hooks.clear()
        part._backward_pre_hooks.clear()
    graph = training_step(capture(bare, (torch.ones(2, WIDTH),), name="own"))
    problem = Problem(graph, load_cluster("p100x2"), runtime=WAITING if defer else IDEAL)
    placement = np.random.default_rng(seed).integers(0, 2, problem.graph.num_units)
    problem, plan, _ = on_calls(problem, Plan.of_units(problem, placement), model)
    copy = deepcopy(model)
    for name, home in CallPlacement.of(problem.graph, plan).homes.items():
        copy.get_submodule(name.rpartition(".")[0]).to(devices[home])
    return run_by_plan(copy, problem, plan, list(devices))


def trained(model: nn.Module, steps: int = 5) -> Any:
    """The losses and gradients of some steps of Adam, and the weights after these."""
    optimizer, found = torch.optim.Adam(model.parameters(), 1e-2, eps=1e-4), list[Any]()
    for step in range(steps):
        x = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(step)).requires_grad_()
        optimizer.zero_grad()
        loss = model(x * 1.0).square().mean()
        loss.backward()
        found.append((loss.detach(), x.grad, [None if w.grad is None else w.grad.clone() for w in model.parameters()]))
        optimizer.step()
    return found, model.state_dict()


@settings(max_examples=examples(25, 8), deadline=None)
@given(
    steps=st.lists(st.sampled_from(list(STEPS)), min_size=1, max_size=4), seed=st.integers(0, 99), defer=st.booleans()
)
def test_gradients_are_those_of_the_model_itself_by_any_plan(steps: list[str], seed: int, defer: bool) -> None:
    torch.manual_seed(seed)
    model = Doing(*steps)
    parallel = apart(model, seed, defer=defer)
    torch.testing.assert_close(trained(parallel, 2), trained(model, 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_five_steps_of_a_model_that_does_all_of_it_are_its_own(seed: int) -> None:
    torch.manual_seed(seed)
    model = Doing(*STEPS)
    torch.testing.assert_close(trained(apart(model, seed)), trained(model), rtol=1e-4, atol=1e-5)


def test_hooks_on_all_modules_see_what_they_see_without_a_plan() -> None:
    torch.manual_seed(0)
    model = Doing("linear", "linear", "swish")
    parallel = apart(model, 1)
    seen: list[list[Any]] = [[], []]

    def note(events: list[Any], _: nn.Module, found: tuple[Tensor | None, ...], given: tuple[Tensor, ...]) -> None:
        events.append(([None if each is None else each.clone() for each in found], [each.clone() for each in given]))

    for each, events in zip((model, parallel), seen, strict=True):
        for part in each.modules():
            part.register_full_backward_hook(partial(note, events))
    torch.testing.assert_close(trained(parallel), trained(model))
    assert len(seen[0]) == 5 * 4  # steps, and modules that are called
    torch.testing.assert_close(seen[1], seen[0])


# ---- on one device -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_an_autograd_function_runs_on_one_device_in_both_directions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch refuses to compute with tensors of two devices; the values of those on the meta device do not matter."""

    def moved(self: Copier, tensor: Tensor, source: int, destination: int, *_: object) -> Tensor:
        return torch.zeros_like(tensor, device=self.places.devices[destination])

    monkeypatch.setattr(Copier, "moved", moved)
    model = Doing("linear", "swish", "flat", "hooked", "swish", "rounded", "linear")
    parallel = apart(model, seed, devices=("cpu", "meta"))
    assert {weight.device.type for weight in parallel.parameters()} == {"cpu", "meta"}
    with counted_copies(parallel):  # otherwise gradients are copied back by autograd, whose copies are not `moved`
        parallel(torch.ones(2, WIDTH)).sum().backward()
    assert all(weight.grad is not None and weight.grad.device == weight.device for weight in parallel.parameters())


def test_the_calls_of_an_autograd_function_are_one_call_of_its_name() -> None:
    graph = capture(Doing("swish", "rounded"), (torch.ones(2, WIDTH),), name="own")
    calls = {call.function for call in graph.calls if call is not None}
    assert calls == {"linear", "Swish.apply", "add", "Rounded.apply"}


def test_a_function_that_the_plan_does_not_know_is_named_and_one_that_computes_nothing_is_not(
    recwarn: pytest.WarningsRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = apart(Doing("linear", "reversed", "linear"), 0)
    model(torch.ones(2, WIDTH)).sum().backward()
    assert not recwarn
    monkeypatch.setitem(STEPS, "reversed", STEPS["rounded"])
    with pytest.warns(UnknownCallWarning, match=r"does not know the call \('', 'Rounded.apply', 0\); it runs where"):
        model(torch.ones(2, WIDTH)).sum().backward()


def test_a_view_that_is_made_a_leaf_has_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A force: the gradient by the place, computed in the forward pass and differentiated after it."""

    def force(x: Tensor, layer: nn.Module) -> Tensor:
        place = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(layer(place).tanh().square().sum(), place, create_graph=True)
        return x + gradient

    model = Doing("linear", "linear", "linear")
    copies = [apart(model, seed) for seed in range(4)]
    monkeypatch.setitem(STEPS, "linear", force)
    expected = trained(model, 2)
    for each in copies:
        with pytest.warns(UnknownCallWarning):
            torch.testing.assert_close(trained(each, 2), expected)


def test_a_function_that_changes_its_input_has_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Doing("linear", "linear", "linear")
    copies = [apart(model, seed) for seed in range(4)]
    monkeypatch.setitem(STEPS, "linear", _in_place)
    expected = trained(model, 2)
    for each in copies:
        with pytest.warns(UnknownCallWarning):
            torch.testing.assert_close(trained(each, 2), expected)


# ---- gradients of gradients --------------------------------------------------------------------------------------


def _penalty(model: nn.Module, inputs: list[Tensor]) -> Tensor:
    """As of a Wasserstein GAN."""
    (gradient,) = torch.autograd.grad(model(*inputs).sum(), inputs[:1], create_graph=True)
    penalty: Tensor = (gradient.flatten(1).norm(dim=1) - 1).square().mean()
    return penalty


def _equation(model: nn.Module, inputs: list[Tensor]) -> Tensor:
    """As of a net that solves a differential equation: second derivatives by its input."""
    u = model(*inputs)
    (first,) = torch.autograd.grad(u.sum(), inputs[:1], create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), inputs[:1], create_graph=True)
    residual: Tensor = (second + u.sum()).square().mean()
    return residual


def _meta(model: nn.Module, inputs: list[Tensor]) -> Tensor:
    """As of learning to learn: a step of gradient descent is differentiated."""
    weights = dict(model.named_parameters())
    gradients = torch.autograd.grad(model(*inputs).square().sum(), list(weights.values()), create_graph=True)
    return torch.stack([g.square().sum() for g in gradients]).sum()


class Convolved(nn.Module):
    """A convolution, a table, and a layer without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.conv, self.last = (
            nn.Embedding(8, 6),
            nn.Conv1d(1, 2, 3, padding=1),
            nn.Linear(12, 6, bias=False),
        )

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        y: Tensor = self.last(torch.tanh(self.conv((x * self.table(words))[:, None])).flatten(1)).sin()
        return y


@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("loss", [_penalty, _equation, _meta])
def test_deferred_gradients_can_be_differentiated(loss: Callable[..., Tensor], amp: bool) -> None:
    torch.manual_seed(0)
    model = Convolved()
    words = torch.tensor([1, 5, 1])
    graph = training_step(capture(model, (torch.ones(3, 6), words), name="conv"))
    problem = Problem(graph, load_cluster("p100x2"), runtime=WAITING)
    problem, plan, _ = on_calls(problem, Plan.of(problem.graph.units % 2), model)
    parallel = run_by_plan(deepcopy(model), problem, plan, ["cpu", "cpu"])
    found = []
    for each in (parallel, model):
        x = torch.linspace(-1, 1, 18).reshape(3, 6).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, amp):
            loss(each, [x, words]).backward()  # type: ignore[no-untyped-call]
        found.append([x.grad, *(weight.grad for weight in each.parameters())])
    assert all(gradient is not None for gradient in found[1])
    torch.testing.assert_close(*found, rtol=2e-2 if amp else 1e-5, atol=1e-2 if amp else 1e-6)


@pytest.mark.filterwarnings("ignore::envs.placed_models.parallel.UnknownCallWarning")
def test_what_autograd_computes_again_within_the_forward_pass_is_run_by_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That of the whole model, of which a checkpoint around it keeps nothing for `torch.autograd.grad` in it."""

    def descending(x: Tensor, layer: nn.Module) -> Tensor:
        energy = layer(x).tanh().square().sum()
        return x - torch.autograd.grad(energy, [x], create_graph=True)[0]

    model, found = Doing("linear", "linear"), list[Any]()
    parallel = apart(model, 0, defer=True)
    monkeypatch.setitem(STEPS, "linear", descending)
    for each in (parallel, model):
        x = torch.linspace(-1, 1, 2 * WIDTH).reshape(2, WIDTH).requires_grad_()
        checkpoint(each, x, use_reentrant=False).square().sum().backward()
        found.append([x.grad, *(weight.grad for weight in each.parameters())])
    torch.testing.assert_close(*found)


# ---- what stays --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt", "conv"])
def test_no_copy_is_alive_after_a_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, own = list[weakref.ref[Tensor]](), Copier.moved

    def noted(self: Copier, *args: Any) -> Tensor:
        copy = own(self, *args)
        made.append(weakref.ref(copy))
        return copy

    run = random_run(name, 0)
    loss_of(run.parallel(**run.batch())).backward()  # type: ignore[no-untyped-call]  # what PyTorch makes once
    monkeypatch.setattr(Copier, "moved", noted)
    gc.collect()
    gc.disable()
    try:
        loss = loss_of(run.parallel(**run.batch()))
        loss.backward()  # type: ignore[no-untyped-call]
        del loss
        run.parallel.zero_grad()
        alive = [copy for copy in made if copy() is not None]
    finally:
        gc.enable()
    assert made
    assert not alive
