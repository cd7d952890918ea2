"""A model that is run by a plan computes what it computes without: in any training loop."""

import io
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from envs.placed_models.decisions import Decision
from envs.placed_models.placed_calls import PlacedCalls
from envs.placed_models.recomputation import remembered_regions
from graphs.op_graph import Call
from tests.envs.placed_models.models import GPT, MODELS, Run, loss_of, random_run

CLOSE: Any = {"rtol": 1e-5, "atol": 3e-6}  # float32, whose sums are taken in another order
EPSILON = 1e-5  # of Adam: larger than the rounding of gradients, by which it would divide where these are zero
Trained = tuple[list[float], list[list[Tensor]]]


def trained(model: nn.Module, run: Run, *, steps: int = 5, clip: bool = False, amp: bool = False) -> Trained:
    """The losses and gradients of some steps of Adam, with batches of other sizes among them."""
    torch.manual_seed(0)  # of dropout
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, eps=EPSILON)
    losses, gradients = list[float](), list[list[Tensor]]()
    for step in range(steps):
        with torch.autocast("cpu", torch.bfloat16) if amp else nullcontext():
            loss = loss_of(model(**run.batch((4, 2, 7, 4, 1)[step] + 1, seed=step)))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        gradients.append([weight.grad.clone() for weight in model.parameters() if weight.grad is not None])
        losses.append(loss.item())
        optimizer.step()
    return losses, gradients


def assert_equal(run: Run, one: Trained, other: Trained, close: Any) -> None:
    torch.testing.assert_close(one[0], other[0], **close)
    torch.testing.assert_close(one[1], other[1], **close)
    torch.testing.assert_close(run.model.state_dict(), run.parallel.state_dict(), **close)


@pytest.mark.parametrize(("seed", "defer"), [(0, False), (1, False), (2, False), (3, True), (4, True)])
@pytest.mark.parametrize("name", MODELS)
def test_five_steps_of_adam_are_those_of_the_model_itself(name: str, seed: int, defer: bool) -> None:
    run = random_run(name, seed, defer=defer)
    assert_equal(run, trained(run.model, run), trained(run.parallel, run), CLOSE)


@pytest.mark.parametrize("name", MODELS)
def test_clipped_gradients_are_the_same(name: str) -> None:
    run = random_run(name, 7)
    assert_equal(run, trained(run.model, run, clip=True), trained(run.parallel, run, clip=True), CLOSE)


@pytest.mark.parametrize("defer", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_with_autocast_steps_are_the_same_within_the_rounding_of_bfloat16(name: str, defer: bool) -> None:
    run = random_run(name, 8, defer=defer)
    ours, theirs = trained(run.parallel, run, amp=True, steps=2), trained(run.model, run, amp=True, steps=2)
    torch.testing.assert_close(ours[0], theirs[0], rtol=2e-2, atol=1e-3)
    for one, other in zip(ours[1][0], theirs[1][0], strict=True):
        assert (one - other).abs().max() <= 2e-2 * max(float(other.abs().max()), 1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_evaluated_it_returns_the_same_for_other_batches(name: str) -> None:
    run = random_run(name, 9)
    run.model.eval()
    run.parallel.eval()
    with torch.no_grad():
        for size in (1, 3, 9):
            torch.testing.assert_close(run.parallel(**run.batch(size)), run.model(**run.batch(size)), **CLOSE)
    with torch.inference_mode():
        torch.testing.assert_close(run.parallel(**run.batch()), run.model(**run.batch()), **CLOSE)


@contextmanager
def checkpointed(model: nn.Module, *, use_reentrant: bool) -> Iterator[None]:
    """The blocks of a GPT are computed again in the backward pass, two at a time within one function."""

    def forward(self: GPT, words: Tensor) -> Tensor:
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))

        def two(y: Tensor) -> Tensor:
            y = torch.tanh(self.blocks[0](y)) * 2.0  # calls of functions between modules
            return torch.tanh(self.blocks[1](y))

        x = self.blocks[2](checkpoint(two, x, use_reentrant=use_reentrant))
        logits: Tensor = self.head(self.norm(x))
        return logits

    own = GPT.forward
    GPT.forward = forward  # type: ignore[method-assign]
    try:
        yield
    finally:
        GPT.forward = own  # type: ignore[method-assign]


@pytest.mark.filterwarnings("ignore::envs.placed_models.parallel.UnknownCallWarning")  # it is captured otherwise
@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_what_is_computed_again_runs_where_it_ran_at_first(
    seed: int, use_reentrant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[Call, int]] = []
    own = PlacedCalls._decide

    def decide(self: PlacedCalls, decision: Decision, *call: Any) -> Tensor | None:
        changed = own(self, decision, *call)
        ran.append((decision.call, decision.place))
        return changed

    run = random_run("gpt", seed)
    with checkpointed(run.model, use_reentrant=use_reentrant):
        with monkeypatch.context() as noted:
            noted.setattr(PlacedCalls, "_decide", decide)
            loss = loss_of(run.parallel(**run.batch()))
            first = list(ran)
            ran.clear()
            loss.backward()  # type: ignore[no-untyped-call]
        run.parallel.zero_grad()
        assert_equal(run, trained(run.model, run), trained(run.parallel, run), CLOSE)
    again = [call for call, _ in ran]
    assert any(str(call).count("blocks.1") for call in again)
    planned = {call: place for call, place in first if call in run.problem.graph.calls}
    for call, place in ran:
        assert planned.get(call, place) == place


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("keeps_random", [True, False])
def test_what_is_computed_again_draws_the_numbers_of_all_devices_that_it_drew_at_first(
    use_reentrant: bool, keeps_random: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a device of the plan on which none of the region's arguments are; its generator is one of the processor's."""
    own, card = torch.Generator().manual_seed(1), torch.device("xpu", 0)
    monkeypatch.setattr(torch.xpu, "get_rng_state", lambda device: own.get_state() if device == card else None)
    monkeypatch.setattr(torch.xpu, "set_rng_state", lambda state, device: own.set_state(state))
    drawn = list[Tensor]()

    def region(x: Tensor) -> Tensor:
        drawn.append(torch.rand(4, generator=own))
        return (x * drawn[-1]).exp()

    x = torch.ones(4, requires_grad=True)
    with remembered_regions(lambda: nullcontext, [torch.device("cpu"), card]):
        y = checkpoint(region, x, use_reentrant=use_reentrant, preserve_rng_state=keeps_random)
        y = y.sum() + torch.rand(4, generator=own).sum()
    before = own.get_state()
    y.backward()
    assert len(drawn) == 2
    assert torch.equal(*drawn) == keeps_random
    assert torch.equal(own.get_state(), before) == keeps_random


def copied(model: nn.Module) -> nn.Module:
    copy: nn.Module = deepcopy(model)
    return copy


def pickled(model: nn.Module) -> nn.Module:
    loaded: nn.Module = pickle.loads(pickle.dumps(model))
    return loaded


def saved(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded: nn.Module = torch.load(file, weights_only=False)
    return loaded


@pytest.mark.parametrize("through", [copied, pickled, saved])
@pytest.mark.parametrize("name", ["gpt", "conv"])
def test_a_copy_is_run_by_the_plan_too(name: str, through: Callable[[nn.Module], nn.Module]) -> None:
    run = random_run(name, 3)
    copy = through(run.parallel)
    assert copy.forward is not run.parallel.forward
    assert {id(weight) for weight in copy.parameters()}.isdisjoint(map(id, run.parallel.parameters()))
    own = Run(run.model, copy, run.inputs, run.problem, run.plan)
    assert_equal(own, trained(run.model, own), trained(copy, own), CLOSE)
    if name == "gpt":
        assert copy.get_parameter("head.weight") is copy.get_parameter("words.weight")


@pytest.mark.parametrize("name", MODELS)
def test_the_state_is_that_of_the_model(name: str) -> None:
    run = random_run(name, 5)
    assert list(run.parallel.state_dict()) == list(run.model.state_dict())
    assert type(run.parallel) is type(run.model)
    trained(run.parallel, run, steps=2)
    run.model.load_state_dict(run.parallel.state_dict())
    fresh = random_run(name, 6)
    fresh.parallel.load_state_dict(run.parallel.state_dict())
    for each in (run.model, run.parallel, fresh.parallel):
        each.eval()
    torch.testing.assert_close(run.model(**run.batch()), run.parallel(**run.batch()), **CLOSE)
    torch.testing.assert_close(fresh.parallel(**run.batch()), run.parallel(**run.batch()), **CLOSE)


def test_it_is_called_as_the_model_is() -> None:
    import inspect

    run = random_run("gpt", 0)
    assert inspect.signature(run.parallel.forward) == inspect.signature(run.model.forward)
