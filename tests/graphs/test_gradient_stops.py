"""The backward pass that is captured is the one that PyTorch's autograd runs, where a model stops gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

from envs.costs.costs import timed
from envs.orders.program import ProgramOrder
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from graphs.capture import tracing
from graphs.capture.examples import Example
from graphs.capture.exporting import export
from graphs.capture.forward import Builder, capture
from graphs.capture.training_step import training_step
from graphs.files.load import load_cluster
from graphs.formats.graph_file import load_graph_file, save_graph
from graphs.foundation.errors import InputError
from graphs.op_graph import RECOMPUTED, OpGraph, Phase
from graphs.op_graph.autograd import Autograd
from graphs.op_graph.subgraph import subgraph
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from tests.graphs import gradient_stops
from tests.graphs.custom_functions import InPlace
from tests.graphs.gradient_stops import ASKED, CHECKPOINTS, OWN, STOPS, Make, Three, three
from tests.oracle.fake_step import held_by_step

EXACT = {
    "detach, in a product", "data", "weight.detach", "no_grad", "inference_mode", "gan", "mean teacher", "detach_",
    "first two frozen", "last frozen", "frozen in the middle", "an output without a gradient", "adapter",
    "not reentrant", "not stopped early", "of inputs", "reentrant, of inputs", "of what is not trained",
    "without gradients",
}  # fmt: skip


def real_step(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[set[str], int]:
    """The parameters that a real step gives a gradient, and its FLOPs."""
    with FlopCounterMode(display=False) as counter:
        returned = module(*args)
        loss = returned["loss"] if isinstance(returned, dict) and "loss" in returned else None
        outputs = [leaf for leaf in tree_leaves(returned) if isinstance(leaf, Tensor) and leaf.requires_grad]
        (loss if loss is not None else torch.stack([output.sum() for output in outputs]).sum()).backward()
    return {name for name, each in module.named_parameters() if each.grad is not None}, counter.get_total_flops()


def trained(step: OpGraph) -> set[str]:
    """The weights that ops of an update belong to, each once, by the names of the model."""
    updated = step.mirror[step.phase == Phase.UPDATE]
    users = {weight for op, weight in step.weight_uses.tolist() if op in updated}
    frozen = set(np.flatnonzero(step.frozen).tolist())
    assert {step.weight_names[weight] for weight in range(len(step.weights)) if weight not in frozen} <= {
        step.weight_names[weight] for weight in users
    }
    return {step.weight_names[weight] for weight in users - frozen}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")  # of a reentrant checkpoint
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=f"{kind}: {name}")
        for kind, makes in {"stops": STOPS, "checkpoints": CHECKPOINTS, "own": OWN, "asked": ASKED}.items()
        for name, make in makes.items()
    ],
)
def test_what_autograd_trains_is_trained_and_costs_what_it_costs(make: Make) -> None:
    step = training_step(capture(*make(), name="test"))
    names, flops = real_step(*make())
    assert trained(step) == names
    assert step.flops.sum() == flops


@pytest.mark.parametrize("name", ["detach, with another reader", "no_grad", "first frozen", "a loss by name"])
def test_it_is_so_for_what_has_to_be_exported(name: str) -> None:
    module, args = STOPS[name]()
    with tracing.quiet():
        exported = Builder(export(module, args, {}), "test").build()
    recorded = capture(*STOPS[name](), name="test")
    assert replace(exported, names=recorded.names).fingerprint == recorded.fingerprint  # it forgets some modules


@pytest.mark.parametrize("name", ["gan", "weight.detach", "a loss by name", "first frozen", "a part of an input"])
def test_where_gradients_stop_is_kept_in_files_and_parts(name: str, tmp_path: Path) -> None:
    graph = capture(*(STOPS | ASKED)[name](), name="test")
    save_graph(graph, tmp_path / "stops.graph.json")
    again = load_graph_file(tmp_path / "stops.graph.json")
    assert (again.autograd, again.fingerprint) == (graph.autograd, graph.fingerprint)
    assert training_step(subgraph(graph, np.ones(len(graph), np.bool_))).fingerprint == training_step(graph).fingerprint


def test_autograd_names_ops_and_weights_of_its_graph() -> None:
    graph = capture(*STOPS["first frozen"](), name="test")
    with pytest.raises(InputError, match="autograd names op 9, which does not exist; there are 3"):
        replace(graph, autograd=Autograd(stops=((0, 9),)))
    with pytest.raises(InputError, match="autograd names weight 3, which does not exist; there are 3"):
        replace(graph, autograd=Autograd(constant_uses=((0, 3),)))
    with pytest.raises(InputError, match="autograd names held tensor 1, which does not exist; there are 1"):
        replace(graph, autograd=Autograd(inputs=((0, 1),)))


def test_hooks_on_gradients_do_not_vanish_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    def hooked(m: Three, x: Tensor) -> Tensor:
        h: Tensor = m.a(x)
        h.register_hook(lambda gradient: gradient * 2)  # type: ignore[no-untyped-call]
        return h

    step = training_step(capture(*three(hooked)(), name="test"))
    assert trained(step) == {"a.weight"}
    module, args = STOPS["adapter"]()
    module.c.register_full_backward_hook(lambda *given: None)  # type: ignore[union-attr]  # a submodule
    assert (
        training_step(capture(module, args, name="test")).names
        == training_step(capture(*STOPS["adapter"](), name="test")).names
    )
    module, args = STOPS["adapter"]()
    module.c.weight.register_post_accumulate_grad_hook(lambda _: None)  # type: ignore[union-attr, operator]
    capture(module, args, name="test")
    first, second, third = (record.getMessage() for record in caplog.records if record.name == "placelab")
    assert "a hook on gradients at tests/graphs/test_gradient_stops.py:" in first
    assert "a hook on gradients is not captured" in second
    assert "a hook on gradients of 'c.weight' is not captured" in third


def test_own_functions_whose_gradients_are_not_known_are_refused() -> None:
    class Draws(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return torch.ones_like(x[:0])

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient if float(gradient.sum()) > 0 else -gradient

    draws: Callable[..., Tensor] = Draws.apply
    drawn = three(lambda m, x: m.b(draws(m.a(x))))
    with pytest.raises(
        InputError, match=r"test: the backward pass of Draws at tests/.*stops\.py:\d+ fails on tensors without data"
    ):
        training_step(capture(*drawn(), name="test"))


def test_own_functions_that_compute_gradients_or_change_arguments_are_refused_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Again(torch.autograd.Function):
        """A checkpoint, as frameworks have their own."""

        @staticmethod
        def forward(ctx: Any, x: Tensor, part: nn.Module) -> Tensor:
            ctx.x, ctx.part = x, part
            out: Tensor = part(x)
            return out

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None]:
            x = ctx.x.detach().requires_grad_()
            with torch.enable_grad():
                out = ctx.part(x)
            torch.autograd.backward(out, gradient)
            return x.grad, None

    again: Callable[..., Tensor] = Again.apply
    with pytest.raises(
        InputError, match=r"backward pass of Again at tests/.*stops\.py:\d+ computes gradients by .* let torch"
    ):
        training_step(capture(*three(lambda m, x: m.c(again(m.a(x), m.b)))(), name="test"))
    changes: Callable[..., Tensor] = InPlace.apply
    with pytest.raises(InputError, match=r"calls InPlace\.apply .* change what the warning names"):
        training_step(capture(*three(lambda m, x: m.c(changes(m.a(x))))(), name="test"))
    assert "InPlace at tests/graphs/test_gradient_stops.py" in caplog.messages[-1]
    assert "changes an argument in place" in caplog.messages[-1]


def test_a_step_trains_something() -> None:
    module, args = STOPS["first frozen"]()
    with pytest.raises(InputError, match="has no weight to train; capture its forward pass alone"):
        training_step(capture(module.requires_grad_(requires_grad=False), args, name="test"))


def test_a_checkpoint_keeps_what_it_reads_and_runs_again_when_its_gradient_arrives() -> None:
    """Three products a part: of each all but the last run again, right before the gradients that read them."""
    step = training_step(capture(*CHECKPOINTS["not reentrant"](), name="test"))
    again = [op for op, kind in enumerate(step.kinds) if kind.endswith(RECOMPUTED)]
    assert [step.kinds[op] for op in again] == 2 * [f"aten.{kind}.recompute" for kind in ("mm", "tanh", "mm", "relu")]
    assert all(
        step.phase[op] == Phase.BACKWARD and step.kinds[op].startswith(step.kinds[step.mirror[op]]) for op in again
    )
    forward = step.mirror[again].tolist()
    late = step.edges[np.isin(step.edges[:, 0], forward) & (step.phase[step.edges[:, 1]] == Phase.BACKWARD)]
    assert not len(late)  # what runs again is not kept
    order = np.argsort(ProgramOrder().priorities(Problem(step, load_cluster("p100x2")), np.zeros(0))).tolist()
    names = [step.names[op] for op in order]
    last = names.index("c/mm_6.grad")
    assert names[last - 4 : last] == [f"{op}.recompute" for op in ("a/mm_4", "tanh_1", "b/mm_5", "relu_1")]
    assert names.index("add_1.grad") < last - 4


def test_what_is_tied_to_an_op_of_a_checkpoint_shares_the_device_of_all_of_it() -> None:
    forward = capture(*CHECKPOINTS["not reentrant"](), name="test")
    checkpointed = training_step(forward).mirror[[kind.endswith(RECOMPUTED) for kind in training_step(forward).kinds]]
    outside, inside = len(forward) - 1, int(checkpointed.min())
    tied = training_step(replace(forward, group=np.where(np.isin(np.arange(len(forward)), [inside, outside]), 0, -1)))
    part = tied.units == tied.units[inside]
    assert part[outside]
    assert part[inside + 1]
    assert not part[0]


def test_checkpoints_are_captured_in_files_and_choices_are_refused(tmp_path: Path) -> None:
    graph = capture(*CHECKPOINTS["reentrant"](), name="test")
    save_graph(graph, tmp_path / "checkpoints.graph.json")
    assert load_graph_file(tmp_path / "checkpoints.graph.json").autograd == graph.autograd
    nested = three(lambda m, x: checkpoint(lambda y: checkpoint(m.a, y, use_reentrant=False), x, use_reentrant=False))
    with pytest.raises(
        InputError, match=r"checkpoints a part of a checkpoint at tests/.*stops\.py:\d+, which is not captured; che"
    ):
        training_step(capture(*nested(), name="test"))
    contexts = partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    chooses = three(lambda m, x: checkpoint(m.a, x, use_reentrant=False, context_fn=contexts))
    with pytest.raises(InputError, match=r"chooses what a checkpoint at tests/.*stops\.py:\d+ keeps"):
        training_step(capture(*chooses(), name="test"))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")  # of a reentrant checkpoint
@pytest.mark.parametrize("name", sorted(set(STOPS | CHECKPOINTS) - {"a loss by name"}))
def test_a_step_holds_what_a_real_step_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, gradients and the optimizer's state of what is trained, exactly; the peak, where no variable of the
    module's code, and no output, holds a tensor any longer than autograd does."""
    monkeypatch.setattr(gradient_stops, "WIDTH", 128)
    monkeypatch.setattr(gradient_stops, "ROWS", 1024)
    module, args = (STOPS | CHECKPOINTS)[name]()
    step = training_step(capture(module, args, name="test"))
    problem = Problem(step, load_cluster("v100:devices=1"), "adam")
    timeline = simulate(timed(problem), replace(Plan.of([0] * len(step)), order=PROGRAM))
    held = held_by_step(Example(module, args, {}, "test"), "adam")
    assert timeline.held_bytes[0] == held.static - 4 * len(trained(step))  # Adam counts its steps, weight by weight
    if name in EXACT:
        assert timeline.peak_bytes[0] == pytest.approx(held.peak, rel=0.05)
