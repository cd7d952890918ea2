"""Models are given and return tensors in objects of any class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from graphs.capture.examples import Example
from graphs.capture.forward import capture
from graphs.capture.nested import results_and_states, tensors_in, with_tensors
from graphs.capture.training_step import training_step
from tests.graphs.small_modules import Small

X = torch.randn(3, 4)


@dataclass
class Both:
    """Two tensors, one of them further inside."""

    first: Tensor
    more: dict[str, object]
    name: str = "both"


class Cache:
    """Tensors of no class that PyTorch knows."""

    def __init__(self, *tensors: Tensor) -> None:
        self.layers, self.last = list(tensors), tensors[-1]


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: Tensor) -> None:
        self.x = x


def _double(value: object) -> Any:
    return with_tensors(value, lambda tensor: tensor * 2)


def test_tensors_are_found_and_replaced_in_any_object() -> None:
    one, two = torch.ones(2), torch.ones(3, requires_grad=True) * 2
    given = Both(one, {"cache": Cache(one, two), "slot": (Slotted(two), None, 3)})
    assert [len(tensor) for tensor in tensors_in(given)] == [2, 2, 3, 3, 3]
    made = _double(given)
    assert torch.equal(made.first, one * 2)
    assert torch.equal(made.more["cache"].layers[1], two * 2)
    assert made.more["cache"].last is made.more["cache"].layers[1]
    assert torch.equal(made.more["slot"][0].x, two * 2)
    assert torch.equal(given.more["cache"].last, two)  # type: ignore[attr-defined]


def test_what_is_in_a_dataclass_is_a_result_and_what_is_in_other_objects_a_state() -> None:
    a, b, c = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    results, states = results_and_states({"out": Both(a, {"b": b}), "cache": Cache(c), "name": "x"})
    assert [len(each) for each in results] == [1, 2]
    assert [len(each) for each in states] == [3, 3]  # once in its list
    assert [len(each) for each in results_and_states(Cache(c))[0]] == [3, 3]


GIVEN: dict[str, tuple[Any, tuple[object, ...]]] = {
    "a dataclass": (lambda m, given: m.linear(given.first) + given.more["x"], (Both(X, {"x": X}),)),
    "an object": (lambda m, given: m.linear(given.layers[0]) * given.last, (Cache(X, X.clone()),)),
    "a tuple in a dict": (lambda m, given: m.linear(given["pair"][1]), ({"pair": (None, X, 3, "x")},)),
    "none and numbers": (lambda m, x, mask, scale: m.linear(x) * scale if mask is None else x, (X, None, 2.0)),
}


@pytest.mark.parametrize("name", GIVEN)
def test_inputs_may_be_in_objects(name: str) -> None:
    function, args = GIVEN[name]
    module = Small(function)
    graph = capture(module, args, name="test")
    with FlopCounterMode(display=False) as counted:
        module(*args)
    assert graph.flops.sum() == counted.get_total_flops() == 2 * 3 * 4 * 4
    assert graph.weight_uses.tolist() == [[0, 0], [0, 1]]


def test_keywords_alone_are_enough() -> None:
    class Keywords(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, *, x: Tensor, scale: float = 1.0) -> dict[str, Both]:
            y = self.linear(x)
            return {"out": Both(y, {"scaled": y * scale})}

    assert capture(Keywords(), (), {"x": X, "scale": 2.0}, name="test").kinds == ("aten.addmm", "aten.mul")


def test_a_cache_that_is_returned_is_computed_but_is_no_part_of_the_loss() -> None:
    module = Small(lambda m, x: {"logits": m.linear(x), "cache": Cache(m.linear(x).exp())})
    graph = capture(module, (X,), name="test")
    assert graph.kinds == ("aten.addmm", "aten.addmm", "aten.exp")
    step = training_step(graph)
    assert "aten.exp.grad" not in step.kinds
    assert step.kinds.count("aten.addmm.grad_weight") == 1


def test_all_samples_of_an_object_are_taken_twice() -> None:
    example = Example(Small(lambda m, given: given.first), (Both(X, {"x": X}),), {}, "test", 3).resized(6)
    assert [tuple(tensor.shape) for tensor in tensors_in(example.args)] == [(6, 4), (6, 4)]


def test_graphs_of_pytorch_geometric_are_inputs() -> None:
    data = pytest.importorskip("torch_geometric.data")
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    batch = data.Batch.from_data_list([data.Data(x=X, edge_index=edges), data.Data(x=X, edge_index=edges)])

    def forward(m: Small, given: Any) -> Tensor:
        h: Tensor = m.linear(given.x)
        source, target = given.edge_index
        return h.index_add(0, target, h[source])

    graph = capture(Small(forward), (batch,), name="test")
    assert graph.flops.sum() == 2 * 6 * 4 * 4
    assert len(training_step(graph))
    assert batch.x.shape == (6, 4)
