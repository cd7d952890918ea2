"""Stretches as graphs: what is done again in the same memory is what the model makes, in the order of the plan."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import placelab
from envs.replay import graphed_step, replayed_step
from envs.replay.graphed_step import FIRST_STEPS
from graphs.foundation.errors import InputError
from tests.envs.placed_models import test_side_streams
from tests.envs.replay.recorded_graphs import RecordedGraphs
from tests.envs.replay.replays import replayed
from tests.envs.replay.test_replayed_forward import STEPS, faults_of, steps_of_adam
from tests.envs.running.trained_models import EXAMPLES, batch_of, called


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> RecordedGraphs:
    """All steps that are replayed have them."""
    found = RecordedGraphs()
    monkeypatch.setattr(replayed_step, "graphs_for", lambda _: found)
    return found


@pytest.mark.parametrize("seed", [1, pytest.param(0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", EXAMPLES)
def test_steps_of_graphs_make_what_the_model_makes(name: str, seed: int, graphs: RecordedGraphs) -> None:
    made = replayed(name, seed)
    losses = [[*steps_of_adam(made, module)] for module in (made.placed, made.example.module)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5, abs=1e-6)
    torch.testing.assert_close(made.placed.state_dict(), made.example.module.state_dict(), rtol=1e-4, atol=1e-5)
    count = len(graphs.captured)
    assert graphs.launched == [*range(count)] * (STEPS - FIRST_STEPS)  # each once, in the same order


@pytest.mark.parametrize("name", ["gpt", "twice"])
def test_a_device_without_graphs_takes_its_turns_between_them(name: str, graphs: RecordedGraphs) -> None:
    """Such as a processor next to GPUs."""
    graphs.others = (1,)
    made = replayed(name, 0)
    losses = [[*steps_of_adam(made, module)] for module in (made.placed, made.example.module)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5, abs=1e-6)
    assert set(graphs.captured) == {0, 2}


class Scaled(nn.Module):
    """Reads a buffer, and changes none."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(8, 8), nn.Buffer(torch.arange(8.0))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.linear(x) * self.scale)


def test_what_is_no_graph_reads_buffers_in_all_steps(graphs: RecordedGraphs) -> None:
    graphs.others = (0, 1)
    model, x = Scaled(), torch.linspace(-1, 1, 32).reshape(4, 8)
    placed = placelab.place((model, (x,)), cluster="p100x2", placer="round_robin", runtime="replay")
    made = placelab.parallelize(deepcopy(model), placed, devices=["cpu", "cpu"], replay=(x,))
    for _ in range(FIRST_STEPS + 2):
        for each in (made, model):
            each(x).square().sum().backward()
    torch.testing.assert_close(*([weight.grad for weight in each.parameters()] for each in (made, model)))


def after_first_steps(name: str, seed: int = 0) -> Any:
    """A model whose next step is captured."""
    made = replayed(name, seed)
    for _ in range(FIRST_STEPS):
        made.loss(made.placed, 0).backward()  # type: ignore[no-untyped-call]
    made.placed.zero_grad()
    return made


# ---- the user's loop -------------------------------------------------------------------------------------------------


def test_gradients_are_added_and_what_earlier_steps_have_given_stays(graphs: RecordedGraphs) -> None:
    made, found = after_first_steps("mlp"), list[Any]()
    for module in (made.placed, made.example.module):
        [returned] = called(made.example, module, batch_of(made.example, 0))
        gradients = torch.autograd.grad(returned.sum(), [*module.parameters()])
        for _ in range(2):
            made.loss(module, 1).backward()
        found.append((returned, gradients, [weight.grad for weight in module.parameters()]))
    torch.testing.assert_close(*found)
    assert len(graphs.launched) == 3 * len(graphs.captured)


def test_weights_that_move_are_captured_anew_once_they_stay(graphs: RecordedGraphs) -> None:
    made = after_first_steps("mlp")
    made.loss(made.placed, 0).backward()
    assert graphs.launched
    for weight in made.placed.parameters():
        weight.data = weight.data.clone()
    for module in (made.placed, made.example.module):
        module.zero_grad()
        for step in range(3):
            made.loss(module, step).backward()
    found, expected = ([weight.grad for weight in each.parameters()] for each in (made.placed, made.example.module))
    torch.testing.assert_close(found, expected)
    assert len(graphs.launched) == 2 * len(graphs.captured)  # the first one was called op by op


def test_a_pass_that_waits_for_its_backward_pass_keeps_its_memory(graphs: RecordedGraphs) -> None:
    """The others are called op by op; what the model has returned stays."""
    made = after_first_steps("mlp")
    made.loss(made.placed, 0).backward()
    count = len(graphs.launched)
    for module in (made.placed, made.example.module):
        module.zero_grad()
    losses = [[made.loss(module, step) for step in range(3)] for module in (made.placed, made.example.module)]
    assert count < len(graphs.launched) < 2 * count  # one forward pass
    torch.testing.assert_close(*losses)
    for each in losses:
        (each[0] * each[1] + each[2]).backward()
    found, expected = ([weight.grad for weight in each.parameters()] for each in (made.placed, made.example.module))
    torch.testing.assert_close(found, expected)
    assert len(graphs.launched) == 2 * count


def test_passes_without_a_backward_pass_are_captured_until_one_has_it(graphs: RecordedGraphs) -> None:
    made = after_first_steps("conv")
    buffers = deepcopy([*made.placed.buffers()])
    losses = [[float(made.loss(module, step).detach()) for step in (3, 4, 5)] for module in (made.placed,)]
    made.example.module.load_state_dict({**made.placed.state_dict()})
    for one, other in zip(made.example.module.buffers(), buffers, strict=True):
        one.copy_(other)
    assert losses[0] == pytest.approx([float(made.loss(made.example.module, step).detach()) for step in (3, 4, 5)])
    for step in range(2):
        for module in (made.placed, made.example.module):
            module.zero_grad()
            made.loss(module, step).backward()
        found, expected = ([weight.grad for weight in each.parameters()] for each in (made.placed, made.example.module))
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close([*made.placed.buffers()], [*made.example.module.buffers()])


class Dropping(nn.Module):
    """Draws at random."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.linear(x), 0.5)


def test_numbers_are_drawn_anew_and_the_backward_pass_has_those_of_its_forward_pass(graphs: RecordedGraphs) -> None:
    model, x = Dropping(), torch.ones(4, 8)
    placed = placelab.place((model, (x,)), cluster="p100x2", placer="round_robin", runtime="replay")
    made, seen = placelab.parallelize(deepcopy(model), placed, devices=["cpu", "cpu"], replay=(x,)), set[Any]()
    for _ in range(5):
        made.zero_grad()
        y = made(x)
        y.sum().backward()
        assert made.linear.bias.grad is not None
        torch.testing.assert_close(made.linear.bias.grad, 2.0 * (y != 0).sum(0))
        seen.add(tuple(made.linear.bias.grad.tolist()))
    assert graphs.launched
    assert len(seen) > 3


# ---- what is refused -------------------------------------------------------------------------------------------------


def of_other_outputs(made: Any) -> None:
    called(made.example, made.placed, batch_of(made.example, 0))[0].sum().backward()  # type: ignore[no-untyped-call]


def of_changed_weights(made: Any) -> None:
    loss = made.loss(made.placed, 0)
    with torch.no_grad():
        next(made.placed.parameters()).add_(1)
    loss.backward()


@pytest.mark.parametrize(
    ("does", "sentence"),
    [(of_other_outputs, "the loss is made of other outputs"), (of_changed_weights, "a weight was changed in place")],
)
def test_what_graphs_would_not_see_is_refused(
    does: Callable[[Any], None], sentence: str, graphs: RecordedGraphs
) -> None:
    made = after_first_steps("views" if does is of_changed_weights else "twice")
    made.loss(made.placed, 0).backward()
    assert graphs.launched
    with pytest.raises((InputError, RuntimeError), match=sentence):
        does(made)


def test_what_cannot_be_captured_is_named_with_what_to_do_and_what_was_captured_is_forgotten(
    graphs: RecordedGraphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = after_first_steps("mlp")
    capture = graphs.capture

    def fail(place: int, run: Callable[[], None]) -> Callable[[], None]:
        if len(graphs.captured) == 3:
            run()
            raise RuntimeError("operation not permitted when stream is capturing")
        return capture(place, run)

    monkeypatch.setattr(graphs, "capture", fail)
    with pytest.raises(InputError, match=r"the ops from '.*' to '.*' cannot be captured .* \(operation not .*=False`"):
        made.loss(made.placed, 0).backward()
    monkeypatch.undo()
    monkeypatch.setattr(graphs, "capture", capture)
    made.loss(made.placed, 0).backward()
    made.loss(made.example.module, 0).backward()
    found, expected = ([weight.grad for weight in each.parameters()] for each in (made.placed, made.example.module))
    torch.testing.assert_close(found, expected)


def test_graphs_are_left_out_where_they_are_not_wanted(graphs: RecordedGraphs) -> None:
    """By an argument, or by what the plan was made for."""
    x = torch.randn(3, 4)
    for asked, runtime in ((None, "replay"), (False, "replay"), (None, "replay:graphs=false"), (True, "run")):
        model = nn.Linear(4, 4)
        placed = placelab.place((model, (x,)), cluster="p100x2", placer="round_robin", runtime=runtime)
        made = placelab.parallelize(model, placed, devices=["cpu", "cpu"], replay=(x,), cuda_graphs=asked)
        for _ in range(FIRST_STEPS + 1):
            made(x).sum().backward()
        assert bool(graphs.launched) is (asked is not False and "false" not in runtime)
        graphs.forget()
    with pytest.raises(InputError, match="CUDA graphs are of a replayed step; give example inputs as `replay`"):
        placelab.parallelize(nn.Linear(4, 4), placed, devices=["cpu", "cpu"], cuda_graphs=True)


# ---- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt", "conv"])
def test_what_graphs_read_and_write_is_in_order(
    name: str, graphs: RecordedGraphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphed_step, "FIRST_STEPS", 0)
    with test_side_streams.recorded(monkeypatch) as recorder:
        assert faults_of(replayed(name, 0), recorder, steps=4) == []
    assert len(graphs.launched) > len(graphs.captured)
