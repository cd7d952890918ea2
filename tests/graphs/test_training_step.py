"""The ops that a training step adds: which, tied to what, fed by what, at what cost."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from graphs.capture.forward import capture
from graphs.capture.training_step import forward_pass, training_step
from graphs.foundation.by_name import build
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph, Phase
from graphs.op_graph.optimizers import UPDATE_TRAFFIC


def forward_graph(
    kinds: str, edges: list[tuple[int, int]], weight_uses: list[tuple[int, int]], *, group: tuple[int, ...] = ()
) -> OpGraph:
    """Ops a, b, c, ... of the given ATen kinds; op i has flops 10 i + 1, traffic 10 i + 2, output 10 i + 3 bytes."""
    words = kinds.split()
    ops = np.arange(len(words), dtype=np.float64) * 10
    weights = 1 + max((weight for _, weight in weight_uses), default=-1)
    return OpGraph(
        "test", tuple("abcdefgh"[: len(words)]), tuple(f"aten.{word}" for word in words), ops + 1, ops + 2, ops + 3,
        np.array(edges, np.int64).reshape(-1, 2), weights=100 * np.arange(1, weights + 1, dtype=np.float64),
        weight_uses=np.array(weight_uses, np.int64).reshape(-1, 2), group=np.array(group, np.int64),
    )  # fmt: skip


def edges(graph: OpGraph) -> set[str]:
    return {f"{graph.names[u]} -> {graph.names[v]}" for u, v in graph.edges.tolist()}


def cost(graph: OpGraph, name: str) -> tuple[float, float, float]:
    op = graph.names.index(name)
    return float(graph.flops[op]), float(graph.bytes_accessed[op]), float(graph.output_bytes[op])


def unsent(graph: OpGraph, name: str) -> float:
    return float(graph.unsent_bytes[graph.names.index(name)]) if len(graph.unsent_bytes) else 0.0


def working(graph: OpGraph, name: str) -> float:
    return float(graph.working_bytes[graph.names.index(name)]) if len(graph.working_bytes) else 0.0


def test_a_chain_of_two_products() -> None:
    step = training_step(forward_graph("mm mm", [(0, 1)], [(0, 0), (1, 1)]))
    assert edges(step) == {
        "a -> b", "b -> loss", "loss -> loss.grad",
        "loss.grad -> b.grad", "loss.grad -> b.grad_weight", "a -> b.grad_weight",  # b's weight gradient needs a
        "b.grad -> a.grad_weight",  # a read an input: nothing of its own is saved, and no gradient goes further
        "a.grad_weight -> a.update", "b.grad_weight -> b.update",
    }  # fmt: skip
    assert cost(step, "b.grad") == (11, 12, 3)  # costs what b costs, is as large as a's output
    assert cost(step, "b.grad_weight") == (11, 12, 200)
    assert cost(step, "b.update") == (0, UPDATE_TRAFFIC * 200, 0)
    assert cost(step, "loss") == (0, 13, 4)


def test_what_is_added_is_tied_to_its_forward_op() -> None:
    step = training_step(forward_graph("mm mm", [(0, 1)], [(0, 0), (1, 0)]))
    for name, phase, mirror in zip(step.names, step.phase, step.mirror, strict=True):
        if phase != Phase.FORWARD:
            assert name.startswith(f"{step.names[mirror]}.")
            assert step.phase[mirror] == Phase.FORWARD
    assert step.num_units == 3
    assert step.is_training


def test_only_what_depends_on_a_weight_gets_a_gradient() -> None:
    step = training_step(forward_graph("arange add mm", [(0, 1), (1, 2)], [(2, 0)]))
    assert {name for name in step.names if "grad" in name} == {"loss.grad", "c.grad_weight"}
    assert "b -> c.grad_weight" in edges(step)


def test_what_has_no_derivative_stops_the_gradient() -> None:
    step = training_step(forward_graph("mm argmax mm", [(0, 1), (0, 2)], [(0, 0), (2, 1)]))
    assert "b.grad" not in step.names
    assert "b -> loss" not in edges(step)


def test_a_shared_weight_gathers_its_gradient_from_the_last_user_to_the_first() -> None:
    step = training_step(forward_graph("mm mm mm", [(0, 1), (1, 2)], [(0, 0), (1, 0), (2, 0)]))
    assert {
        "c.grad_weight -> b.grad_weight", "b.grad_weight -> a.grad_weight", "a.grad_weight -> a.update",
        "a.update -> b.refresh", "a.update -> c.refresh",
    } <= edges(step)  # fmt: skip
    assert "b.update" not in step.names
    assert cost(step, "a.update")[2] == 100  # its new value is sent to the other users
    assert cost(step, "b.refresh") == (0, 0, 0)


@pytest.mark.parametrize(
    ("kind", "saved"),
    [
        ("tanh", {"b -> b.grad"}),
        ("gelu", {"a -> b.grad"}),
        ("amax", {"a -> b.grad", "b -> b.grad"}),
        ("add", set()),
        ("unheard_of", {"a -> b.grad"}),
    ],
)
def test_what_autograd_saves(kind: str, saved: set[str]) -> None:
    step = training_step(forward_graph(f"mm {kind} mm", [(0, 1), (1, 2)], [(0, 0), (2, 1)]))
    assert {edge for edge in edges(step) if edge.endswith("-> b.grad")} == {"c.grad -> b.grad"} | saved


def test_a_scaled_tensor_is_not_saved_but_a_product_saves_both() -> None:
    assert "a -> b.grad" not in edges(training_step(forward_graph("mm mul", [(0, 1)], [(0, 0)])))
    two = training_step(forward_graph("mm mm mul", [(0, 2), (1, 2)], [(0, 0), (1, 1)]))
    assert {"a -> c.grad", "b -> c.grad"} <= edges(two)


def test_a_factor_is_saved_if_the_other_one_needs_a_gradient() -> None:
    step = training_step(forward_graph("mm ones mul", [(0, 2), (1, 2)], [(0, 0)]))
    assert "b -> c.grad" in edges(step)
    assert "a -> c.grad" not in edges(step)


def test_an_index_is_saved_but_not_what_is_looked_up() -> None:
    step = training_step(forward_graph("mm argmax gather", [(0, 1), (0, 2), (1, 2)], [(0, 0)]))
    assert "b -> c.grad" in edges(step)
    assert "a -> c.grad" not in edges(step)


def test_the_gradient_of_what_is_looked_up_is_dense() -> None:
    step = training_step(forward_graph("embedding gather", [(0, 1)], [(0, 0)]))
    assert cost(step, "a.grad_weight") == (1, 2 + 100 - 3, 100)  # written as a whole, where a read as much as it wrote
    large = training_step(forward_graph("mm gather", [(0, 1)], [(0, 0)]))
    assert cost(large, "b.grad")[1] == 12  # a's output is smaller than what b found there


def test_a_product_of_two_activations_has_two_gradients() -> None:
    both = training_step(forward_graph("mm mm bmm", [(0, 2), (1, 2)], [(0, 0), (1, 1)]))
    assert cost(both, "c.grad") == (42, 44, 8)  # twice c's cost, and as large as its operands on average
    assert unsent(both, "c.grad") == 3 + 13 - 8  # a gradient for each of them
    one = training_step(forward_graph("mm ones bmm", [(0, 2), (1, 2)], [(0, 0)]))
    assert cost(one, "c.grad")[:2] == (21, 22)
    assert unsent(one, "c.grad") == 0


def test_summands_share_the_gradient_that_arrives() -> None:
    step = training_step(forward_graph("mm mm add", [(0, 2), (1, 2)], [(0, 0), (1, 1)]))
    assert cost(step, "c.grad")[2] + unsent(step, "c.grad") == 13  # that of the larger one


def test_what_formulas_of_gradients_make_on_the_way_is_freed() -> None:
    """The sizes are those of steps on fake tensors: grad * x.cos(), grad * (2 * x.pow(1)), -grad * ((x / y) / y)."""
    step = training_step(forward_graph("mm sin pow", [(0, 1), (1, 2)], [(0, 0)]))
    assert working(step, "b.grad") == 3
    assert working(step, "c.grad") == 2 * 13

    class Quotient(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 1)

        def forward(self, x: Tensor) -> Tensor:
            quotient: Tensor = self.one(x) * (self.one(x) / self.other(x))
            return quotient

    with torch.device("meta"):
        step = training_step(capture(Quotient(), (torch.zeros(5, 8),), name="quotient"))
    full, weights = 5 * 8 * 4, (8 * 8 + 8) * 4
    assert working(step, "div.grad") == 3 * full
    assert working(step, "mul.grad") == 0
    assert working(step, "one/addmm.grad_weight") == weights - full  # the sum, when the gradient of 5 rows has gone


def test_the_gradient_of_an_operand_that_is_expanded_is_made_in_full() -> None:
    with torch.device("meta"):
        gate = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 8))
        gate.register_parameter("scale", nn.Parameter(torch.ones(8)))
        gate.forward = lambda x: (h := gate[0](x)) * gate[1](h).mean(1, keepdim=True) * gate.scale  # type: ignore[method-assign]
        step = training_step(capture(gate, (torch.zeros(5, 8),), name="gate"))
    assert working(step, "mul.grad") == working(step, "mul_1.grad") == 5 * 8 * 4


def test_results_that_only_autograd_sees_are_held_until_it_has_read_them() -> None:
    with torch.device("meta"):
        net = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.MaxPool2d(2), nn.Conv2d(8, 8, 1), nn.Dropout(0.5),
            nn.Conv2d(8, 4, 1), nn.Flatten(), nn.Dropout(0.5),
        )  # fmt: skip
        step = training_step(capture(net, (torch.zeros(5, 3, 16, 16),), name="net"))
    held = {name: size for name, size in zip(step.names, step.unsent_bytes.tolist(), strict=True) if size}
    assert held == {
        "1/native_group_norm": 2 * 5 * 2 * 4,  # mean and deviation of two groups
        "2/max_pool2d_with_indices": 5 * 8 * 8 * 8 * 8,  # where each maximum was
        "4/native_dropout": 5 * 8 * 8 * 8,  # a mask of bytes
        "7/native_dropout_1": 5 * 4 * 8 * 8,
    }


def test_a_product_of_two_weights_has_two_gradients() -> None:
    assert cost(training_step(forward_graph("mm", [], [(0, 0), (0, 1)])), "a.grad_weight") == (2, 4, 300)
    with_bias = training_step(forward_graph("addmm", [], [(0, 0), (0, 1)]))  # and an input, say
    assert cost(with_bias, "a.grad_weight") == (1, 2, 300)


def test_fused_attention_computes_its_scores_again() -> None:
    kinds = "mm mm mm scaled_dot_product_attention"
    step = training_step(forward_graph(kinds, [(0, 3), (1, 3), (2, 3)], [(0, 0), (1, 1), (2, 2)]))
    assert cost(step, "d.grad") == (2.5 * 31, 2.5 * 32, 13)
    assert {"a -> d.grad", "b -> d.grad", "c -> d.grad", "d -> d.grad"} <= edges(step)
    assert unsent(step, "d.grad") == 3 + 13 + 23 - 13


def test_the_gradient_of_a_part_is_free_and_as_large_as_the_part() -> None:
    graph = forward_graph("mm slice tanh", [(0, 1), (1, 2)], [(0, 0)], group=(0, 0, -1))
    free = np.array([1.0, 0.0, 1.0])
    step = training_step(replace(graph, flops=graph.flops * free, bytes_accessed=graph.bytes_accessed * free))
    assert cost(step, "b.grad") == (0, 0, 13)
    assert "a -> b.grad" not in edges(step)


def test_control_edges_carry_no_gradient() -> None:
    graph = replace(forward_graph("mm mm", [(0, 1)], [(0, 0), (1, 1)]), control=np.array([True]))
    step = training_step(graph)
    assert {"a -> loss", "b -> loss"} <= edges(step)
    assert "b.grad" not in step.names


def test_what_cannot_be_trained_is_explained() -> None:
    with pytest.raises(InputError, match="'test' has no weight to train"):
        training_step(forward_graph("add", [], []))
    step = training_step(forward_graph("mm", [], [(0, 0)]))
    with pytest.raises(InputError, match="is a training step already"):
        training_step(step)


def mlp() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)), (torch.ones(3, 6),)


def transformer() -> tuple[nn.Module, tuple[Tensor, ...]]:
    module, args = build("graphs.families", "transformer:layers=2,width=8,heads=2,sequence=5,batch=2,vocabulary=11")
    return module, args


def small_inception() -> tuple[nn.Module, tuple[Tensor, ...]]:
    module, args = build("graphs.families", "inception:blocks=4,width=2,image=32,batch=2")
    return module, args


@pytest.mark.parametrize("make", [mlp, transformer, small_inception])
def test_flops_are_those_that_autograd_spends(make: Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]) -> None:
    module, args = make()
    step = training_step(capture(module, args, name="test"))
    with FlopCounterMode(display=False) as counter:
        module(*args).sum().backward()
    assert step.flops.sum() == counter.get_total_flops()


@pytest.mark.parametrize("spec", ["rnnlm:layers=2,steps=3,hidden=4", "transformer:layers=1", "inception:blocks=4"])
def test_nothing_backward_runs_before_the_loss(spec: str) -> None:
    module, args = build("graphs.families", spec)
    step = training_step(capture(module, args, name=spec))
    loss = step.names.index("loss")
    after_loss = {loss}
    for op in step.topological_order.tolist():
        offsets, in_edges = step.predecessors
        producers = step.edges[in_edges[offsets[op] : offsets[op + 1]], 0].tolist()
        if after_loss & set(producers):
            after_loss.add(op)
    assert after_loss == {loss} | set(np.flatnonzero(step.phase != Phase.FORWARD).tolist())
    assert (step.phase[step.edges[:, 0]] <= step.phase[step.edges[:, 1]]).all()


def test_the_forward_pass_of_a_training_step_is_what_it_was_made_of_and_its_loss() -> None:
    forward = forward_graph("mm mm relu", [(0, 1), (1, 2)], [(0, 0), (1, 1)], group=(0, 0, -1))
    again = forward_pass(training_step(forward))
    assert again.names == (*forward.names, "loss")
    assert edges(again) == {*edges(forward), "c -> loss"}
    assert (again.phase == Phase.FORWARD).all()
    assert again.weight_uses.tolist() == forward.weight_uses.tolist()
    assert again.flops[:3].tolist() == forward.flops.tolist()
    assert again.group[:3].tolist() == [0, 0, -1]
    assert not again.is_training
