"""Running the ops of a captured program one after another, or stage by stage, is running the model."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from envs.running.captured_program import CapturedProgram
from envs.running.op_by_op.gradient_ops import GradientOps
from envs.running.program_part import ProgramPart
from graphs.capture.examples import Example
from graphs.capture.training_step import training_step
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase
from tests.envs.placed_models.models import BATCH, MODELS
from tests.envs.running.trained_models import EXAMPLES, called, program_of
from tests.graphs.gradient_stops import OWN

CPU = torch.device("cpu")


def run(program: CapturedProgram, parts: list[ProgramPart]) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss, and the buffers that have changed, of parts that are run in order."""
    leaves = tree_leaves((program.example.args, program.example.kwargs))
    results, updates, loss = dict[Node, Tensor](), dict[str, Tensor](), None
    for part in parts:
        given = [
            *(results[node] for node in part.reads),
            *(program.weights[name] for name in part.weights.values()),
            *(leaves[leaf] for leaf in part.inputs.values()),
            *(program.buffers[name] for name in part.buffers.values()),
            *part.constants.values(),
        ]
        made = part.module(CPU)(*given)
        results.update(zip(part.results, made, strict=False))
        updates.update(zip(part.updates, made[len(part.results) :], strict=False))
        if part.outputs:
            loss = made[-1]
    assert loss is not None
    return loss, updates


def in_stages(program: CapturedProgram, stages: int) -> list[ProgramPart]:
    """Ops in a row, by number: each op comes after those that it reads."""
    return [program.part(ops.tolist()) for ops in np.array_split(np.arange(program.loss + 1), stages)]


@pytest.mark.parametrize("stages", [0, 1, 3])
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_parts_of_a_program_are_the_model(name: str, stages: int) -> None:
    program = program_of(name)
    model = deepcopy(program.example.module)
    loss, updates = run(program, in_stages(program, stages) if stages else list(program.parts))
    returned = called(program.example, model, tree_leaves((program.example.args, program.example.kwargs)))
    expected = torch.stack([returned[position].sum() for position in program.loss_outputs]).sum()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-4)
    trained = [program.step.weight_names[weight] for weight in sorted(set(program.step.weight_uses[:, 1].tolist()))]
    weights = dict(model.named_parameters())
    trained = [name for name in trained if weights[name].requires_grad]
    own = torch.autograd.grad(loss, [program.weights[each] for each in trained], allow_unused=True)
    theirs = torch.autograd.grad(expected, [weights[each] for each in trained], allow_unused=True)
    for each, ours, wanted in zip(trained, own, theirs, strict=True):
        assert (ours is None) == (wanted is None), each
        if ours is not None:
            torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-5)
    for buffer, wanted in model.named_buffers():
        ours = updates.get(buffer, program.buffers[buffer])
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-6)
        assert (buffer in updates) == (not torch.equal(wanted, program.buffers[buffer]))


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_ops_read_of_each_other_is_what_the_graph_says(name: str) -> None:
    program = program_of(name)
    edges = {tuple(edge) for edge in program.step.edges.tolist() if edge[1] <= program.loss}
    read = {(program.op_of(node), op) for op, part in enumerate(program.parts) for node in part.reads}
    assert read == edges
    uses = {(op, weight) for op, part in enumerate(program.parts) for weight in part.weights.values()}
    assert uses == {(op, program.step.weight_names[weight]) for op, weight in program.step.weight_uses.tolist()}
    assert all(op in program.readers[node] for op, part in enumerate(program.parts) for node in part.reads)


def test_the_loss_is_what_a_model_returns_or_the_sum_of_its_outputs() -> None:
    assert program_of("recurrent").returns_loss
    model, make = MODELS["bert"]()
    bert = CapturedProgram.of(Example(model, (), make(BATCH, torch.Generator()), "bert"))
    assert not bert.returns_loss
    assert bert.loss_outputs == (1,)  # the first is read by the op that makes the second
    assert program_of("twice").loss_outputs == (0, 2)  # neither the integers, nor what another one is computed from


def test_a_batch_norm_is_read_where_it_is_changed_last() -> None:
    program = program_of("twice")
    homes = {name: op for op, part in enumerate(program.parts) for name in part.updates}
    assert set(homes) == {"latest", "seen", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    norms = [op for op, kind in enumerate(program.step.kinds) if "batch_norm" in kind and op < program.loss]
    assert homes["norm.running_mean"] == norms[1]
    assert homes["seen"] == norms[1], "where the latest result is made that it is computed from"
    assert [op for op, part in enumerate(program.parts) if "norm.running_mean" in part.buffers.values()] == norms[:1]


def test_inputs_are_known_by_their_leaves() -> None:
    words = torch.randint(0, 40, (2, 8))
    model, _ = MODELS["gpt"]()
    program = CapturedProgram.of(Example(Labelled(model), (), {"words": words, "labels": words, "scale": 2.0}, "gpt"))
    assert program.leaves == (0,)
    assert program.repeated == {1: 0}
    assert {leaf for part in program.parts for leaf in part.inputs.values()} == {0}


class Labelled(nn.Module):
    """The cross-entropy of a model's outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, words: Tensor, labels: Tensor, scale: float) -> Tensor:
        return nn.functional.cross_entropy(self.model(words).flatten(0, 1), labels.flatten()) * scale


class Odd(nn.Module):
    """Changes a buffer through a view, or a parameter."""

    def __init__(self, *, through_a_view: bool) -> None:
        super().__init__()
        self.rows: Tensor
        self.linear, self.through_a_view = nn.Linear(4, 4), through_a_view
        self.register_buffer("rows", torch.zeros(2, 4))

    def forward(self, x: Tensor) -> Tensor:
        if self.through_a_view:
            self.rows[0] = x[0]
        else:
            with torch.no_grad():
                self.linear.weight.mul_(0.5)
        y: Tensor = self.linear(x)
        return y


@pytest.mark.parametrize(
    ("through_a_view", "sentence"),
    [(True, "'rows' is changed through a view of it"), (False, "'linear.weight' is changed by its forward pass")],
)
def test_what_cannot_be_run_apart_is_refused(through_a_view: bool, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        CapturedProgram.of(Example(Odd(through_a_view=through_a_view), (torch.ones(2, 4),), {}, "odd"))


@pytest.mark.parametrize("name", ["several operations", "several results", "straight-through"])
def test_a_function_in_several_parts_is_refused_with_the_line_that_calls_it(name: str) -> None:
    model, inputs = OWN[name]()
    program = CapturedProgram.of(Example(model, inputs, {}, name))
    sentence = (
        rf"{name}: \w+ at tests/graphs/gradient_stops.py:\d+ has a backward pass of its own, and the plan runs its "
        "forward pass, or what reads that, in several parts; run it by data parallelism or"
    )
    with pytest.raises(InputError, match=sentence):
        GradientOps(program, program.step)
    program.check_parts([program.part(range(program.loss + 1))])


class Changed(nn.Module):
    """Doubles a tensor with a gradient where autograd does not see it, or where it does."""

    def __init__(self, *, seen: bool) -> None:
        super().__init__()
        self.first, self.second, self.seen = nn.Linear(4, 4), nn.Linear(4, 4), seen

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        with torch.set_grad_enabled(self.seen):
            h.mul_(2)
        loss: Tensor = (self.second(h) * h).square().sum()
        return loss


def test_a_change_that_autograd_does_not_see_is_refused_where_operations_are_run() -> None:
    unseen, seen = (
        CapturedProgram.of(Example(Changed(seen=which), (torch.ones(2, 4),), {}, "net")) for which in (False, True)
    )
    with pytest.raises(InputError, match=r"net: tests/.*/test_captured_program.py:\d+ changes a tensor in"):
        unseen.check_parts(unseen.parts)
    seen.check_parts(seen.parts)
    module = seen.example.module
    loss, _ = run(seen, list(seen.parts))
    gradients = [torch.autograd.grad(each, list(module.parameters())) for each in (loss, module(torch.ones(2, 4)))]
    torch.testing.assert_close(*gradients)


def test_a_graph_of_another_model_or_batch_is_refused() -> None:
    program, other = program_of("mlp"), program_of("experts")
    program.check(training_step(program_of("mlp").builder.draft.built("mlp")))
    with pytest.raises(InputError, match=r"'experts' is not of this model: it has 'model\.into/"):
        program.check(other.step)
    larger = CapturedProgram.of(program_of("mlp").example.resized(2 * BATCH))
    with pytest.raises(InputError, match="has 512 bytes in graph 'mlp', and 256 in the model; give both"):
        program.check(larger.step)
    odd = replace(program.step, names=(*program.step.names[:-1], "more"))
    with pytest.raises(InputError, match="has an op 'more' that the training step of this model does not have"):
        program.check(odd)
    with pytest.raises(InputError, match="is a forward pass"):
        program.check(program.builder.draft.built("mlp"))
    assert (program.step.phase[: program.loss + 1] == Phase.FORWARD).all()
