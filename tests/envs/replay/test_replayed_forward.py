"""A replayed step makes what the model makes, in the user's loop; what would be something else is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import placelab
from envs.placed_models.copies import CopyOf
from envs.placed_models.parallel import counted_copies
from envs.replay.replayed_step import ReplayedStep
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase
from tests.envs.placed_models import test_side_streams
from tests.envs.placed_models.streams_recorder import RecordedStreams
from tests.envs.placed_models.test_side_streams import IsNotWaitedFor, TellsNobody, WaitsForNobody
from tests.envs.replay.replays import DEVICES, Replayed, replayed
from tests.envs.running.trained_models import EXAMPLES, batch_of, called
from tests.graphs.masked import Masked

STEPS = 5


@pytest.mark.parametrize("seed", [pytest.param(0), pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", EXAMPLES)
def test_five_steps_of_adam_make_what_the_model_makes(name: str, seed: int) -> None:
    made = replayed(name, seed)
    losses = [[*steps_of_adam(made, module)] for module in (made.placed, made.example.module)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5, abs=1e-6)
    torch.testing.assert_close(made.placed.state_dict(), made.example.module.state_dict(), rtol=1e-4, atol=1e-5)


def steps_of_adam(made: Replayed, module: nn.Module) -> Iterator[float]:
    """Their losses."""
    optimizer = torch.optim.Adam(module.parameters(), 1e-2, eps=1e-3)
    for step in range(STEPS):
        loss = made.loss(module, step)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        yield float(loss.detach())


@pytest.mark.parametrize("name", ["gpt", "conv", "bert"])
def test_steps_run_in_the_order_of_the_plan_and_copies_are_the_simulated_transfers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for weights, which are sent before the step and not after it."""
    made, ran = replayed(name, 1), list[int]()
    call = ReplayedStep._call

    def noted(self: ReplayedStep, turns: Any, run: Any) -> None:
        ran.extend(turn.op for turn in turns)
        call(self, turns, run)

    monkeypatch.setattr(ReplayedStep, "_call", noted)
    with counted_copies(made.placed) as copies:
        made.loss(made.placed, 0).backward()  # type: ignore[no-untyped-call]
    timeline, phase = made.laid.simulator().timeline(made.laid.placement), made.laid.problem.graph.phase
    moved = timeline.transfers
    simulated = set(zip(moved.source.tolist(), moved.destination.tolist(), strict=True))
    found = [(each.source, each.destination) for each in copies if each.of in (CopyOf.OUTPUT, CopyOf.GRADIENT)]
    assert len(found) >= DEVICES
    assert set(found) <= simulated
    of_phase = [[op for op in ran if phase[op] == each] for each in (Phase.FORWARD, Phase.BACKWARD)]
    assert ran == [op for ops in of_phase for op in ops]
    for ops in of_phase:
        assert [*timeline.start[ops]] == sorted(timeline.start[ops])
        assert set(ops) == {op for op in range(len(phase)) if phase[op] == phase[ops[0]]}


# ---- the user's loop -------------------------------------------------------------------------------------------------


def test_losses_of_ones_own_accumulated_gradients_and_two_passes_at_once() -> None:
    made = replayed("mlp", 0)
    found = []
    for module in (made.placed, made.example.module):
        first, second, third = (called(made.example, module, batch_of(made.example, step))[0] for step in range(3))
        torch.autograd.backward(first.pow(3).mean() * second.mean())
        torch.autograd.backward(third.exp().sum())  # added
        found.append([weight.grad for weight in module.parameters()])
    torch.testing.assert_close(*found)


def test_a_copy_has_weights_of_its_own() -> None:
    made = replayed("mlp", 0)
    copied = deepcopy(made.placed)
    with torch.no_grad():
        for weight in copied.parameters():
            weight.mul_(2)
    apart = deepcopy(made.example.module)
    with torch.no_grad():
        for weight in apart.parameters():
            weight.mul_(2)
    for found, expected in ((copied, apart), (made.placed, made.example.module)):
        loss, other = (made.loss(module, 0) for module in (found, expected))
        torch.testing.assert_close(loss, other)
        loss.backward()  # type: ignore[no-untyped-call]
        other.backward()  # type: ignore[no-untyped-call]
        grads = ([weight.grad for weight in module.parameters()] for module in (found, expected))
        torch.testing.assert_close(*grads)


def test_in_eval_and_without_gradients_the_models_own_code_runs() -> None:
    made = replayed("conv", 0)
    both = made.placed, made.example.module
    short = [each[:2] for each in batch_of(made.example, 0)]  # of other sizes
    with torch.no_grad():
        torch.testing.assert_close(*(called(made.example, module, short) for module in both))
    for module in both:
        module.eval()
    torch.testing.assert_close(*(called(made.example, module, short) for module in both))
    made.placed.train()
    with pytest.raises(InputError, match=r"of shape \(2, 3, 8, 8\), and the plan is for .* of shape \(4, 3, 8, 8\)"):
        called(made.example, made.placed, short)


# ---- what is refused -------------------------------------------------------------------------------------------------


def once(made: Replayed) -> Any:
    return called(made.example, made.placed, batch_of(made.example, 0))


def in_other_mode(made: Replayed) -> None:
    next(made.placed.children()).eval()
    once(made)


def with_a_hook(made: Replayed) -> None:
    next(made.placed.children()).register_forward_hook(lambda *_: None)
    once(made)


def under_autocast(made: Replayed) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        once(made)


def under_a_checkpoint(made: Replayed) -> None:
    checkpoint(lambda: once(made), use_reentrant=False)


def frozen(made: Replayed) -> None:
    next(made.placed.parameters()).requires_grad = False
    once(made)


def for_its_input(made: Replayed) -> None:
    called(made.example, made.placed, [each.requires_grad_() for each in batch_of(made.example, 0)])


def by_keyword(made: Replayed) -> None:
    made.placed(input=batch_of(made.example, 0)[0])


def twice(made: Replayed) -> None:
    loss = made.loss(made.placed, 0)
    loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    loss.backward()  # type: ignore[no-untyped-call]


def of_gradients(made: Replayed) -> None:
    loss = made.loss(made.placed, 0)
    gradients = torch.autograd.grad(loss, list(made.placed.parameters()), create_graph=True)
    gradients[0].sum().backward()  # type: ignore[no-untyped-call]


def saved(made: Replayed) -> None:
    torch.save(made.placed, BytesIO())


@pytest.mark.parametrize(
    ("does", "sentence"),
    [
        (in_other_mode, r"a Linear is in eval\(\) mode, and was not"),
        (with_a_hook, "module '0' has a hook, which a replayed step does not call"),
        (under_autocast, "captured without autocast around it"),
        (under_a_checkpoint, "what autograd saves has hooks"),
        (frozen, "the weight '0.weight' is not what it was"),
        (for_its_input, "an input requires a gradient"),
        (by_keyword, "called with other arguments than those"),
        (twice, "has one backward pass"),
        (of_gradients, "leave out `create_graph=True`"),
        (saved, "save its `state_dict`"),
    ],
)
def test_what_would_not_be_what_was_captured_is_refused(does: Callable[[Replayed], None], sentence: str) -> None:
    with pytest.raises((InputError, RuntimeError), match=sentence):
        does(replayed("mlp", 0))


class WithLogits(nn.Module):
    """A loss and what it is made of, as models of transformers return them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> dict[str, Any]:
        logits = self.linear(x)
        return {"loss": logits.pow(2).mean(), "logits": logits.t(), "input": x, "rows": len(x)}


def test_what_is_returned_besides_the_loss_is_there_and_gives_no_gradient() -> None:
    model, x = WithLogits(), torch.randn(3, 4)
    placed = placelab.place((model, (x,)), cluster="p100x2", placer="round_robin", runtime="replay")
    made = placelab.parallelize(deepcopy(model), placed, devices=["cpu", "cpu"], replay=(x,))
    found, expected = made(x), model(x)
    assert found.keys() == expected.keys()
    torch.testing.assert_close(found, expected)
    with pytest.raises(InputError, match="output 1 has a gradient, and in the plan the loss is made of 0 alone"):
        (found["loss"] + found["logits"].sum()).backward()


def test_a_batch_for_which_the_model_would_do_something_else_is_refused() -> None:
    model, x, mask = Masked(), torch.randn(3, 4), torch.ones(3, dtype=torch.bool)
    placed = placelab.place((model, (x, mask)), cluster="p100x2", placer="round_robin", runtime="replay")
    made = placelab.parallelize(deepcopy(model), placed, devices=["cpu", "cpu"], replay=(x, mask))
    torch.testing.assert_close(made(x, mask), model(x, mask))
    with pytest.raises(InputError, match=r"depends on data at .*masked.py:\d+, and a batch differs there"):
        made(x, mask & torch.tensor([True, True, False]))


class Boxed(nn.Module):
    """Returns an object that holds a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        return SimpleNamespace(y=self.linear(x))


def test_models_that_cannot_be_replayed_are_refused_before_the_first_step() -> None:
    x = torch.randn(3, 4)
    hooked = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    hooked[1].register_forward_hook(lambda *_: None)
    for model, sentence in ((Boxed(), "returns an object of type SimpleNamespace"), (hooked, "module '1' has a hook")):
        placed = placelab.place((model, (x,)), cluster="p100x2", placer="round_robin", runtime="replay")
        with pytest.raises(InputError, match=sentence):
            placelab.parallelize(model, placed, devices=["cpu", "cpu"], replay=(x,))
    plain = nn.Linear(4, 4)
    placed = placelab.place((plain, (x,)), cluster="p100x2", placer="round_robin", runtime="replay")
    with pytest.raises(InputError, match="give both the same batch"):
        placelab.parallelize(plain, placed, devices=["cpu", "cpu"], replay=(x[:2],))
    with pytest.raises(InputError, match="leave out `defer_weight_gradients` and `side_streams`"):
        placelab.parallelize(plain, placed, devices=["cpu", "cpu"], replay=(x,), side_streams=True)


# ---- streams ---------------------------------------------------------------------------------------------------------


def faults_of(made: Replayed, recorder: Any, *, steps: int = 2) -> list[str]:
    """What is out of order in some steps."""
    for name, weight in made.placed.named_parameters():
        recorder.lies(weight, made.homes[name])
    optimizer = torch.optim.SGD(made.placed.parameters(), 0.1, foreach=False)
    for step in range(steps):
        with recorder:
            loss = made.loss(made.placed, step)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        del loss
    assert recorder.copies > DEVICES
    faults: list[str] = recorder.faults
    return faults


@pytest.mark.parametrize("name", ["mlp", "gpt", "conv", "recurrent"])
def test_all_that_is_given_to_streams_is_in_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with test_side_streams.recorded(monkeypatch) as recorder:
        assert faults_of(replayed(name, 0), recorder) == []


@pytest.mark.parametrize(
    ("streams", "fault"),
    [
        (WaitsForNobody, "may not have written"),
        (IsNotWaitedFor, "may not have written"),
        (TellsNobody, "may not have used it"),
    ],
)
def test_whatever_is_left_out_is_noticed(
    streams: type[RecordedStreams], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with test_side_streams.recorded(monkeypatch, streams) as recorder:
        assert any(fault in each for each in faults_of(replayed("gpt", 0), recorder))
