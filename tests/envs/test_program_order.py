"""The order of PyTorch's program: what autograd really does, and an example drawn by hand."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from envs.orders import priorities_of
from envs.simulation.simulator import Simulator
from graphs.capture.forward import traced
from graphs.capture.training_step import training_step
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from graphs.runtime import IDEAL, PROGRAM
from tests.oracle.toys import toy_cluster, toy_graph


class Branches(nn.Module):
    """Two branches of different lengths, one called before the other, that meet, and an early and a late residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
        self.norm, self.last = nn.LayerNorm(4), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        late = torch.sigmoid(x)
        right = self.right(x)
        left = torch.relu(self.left(torch.exp(x)))
        both = torch.cat([self.norm(left + x), right * late], dim=-1)
        out: Tensor = self.last(both)
        return out


class Unrolled(nn.Module):
    """A recurrent net: two layers, whose weights are used at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.below, self.above, self.out = nn.Linear(8, 4), nn.Linear(8, 4, bias=False), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        below = above = torch.zeros(3, 4)
        outputs = []
        for step in range(3):
            below = torch.tanh(self.below(torch.cat([x[step], below], dim=1)))
            above = torch.tanh(self.above(torch.cat([below, above], dim=1)))
            outputs.append(self.out(above))
        return torch.cat(outputs)


class Attention(nn.Module):
    """Keys, queries and values of one input, by products of two operands that both need a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(4, 4, bias=bias) for bias in (False, True, True))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.query(x), self.key(x), self.value(x)
        return x + torch.bmm(torch.softmax(torch.bmm(query, key.transpose(1, 2)), dim=-1), value)


MODULES = {
    "branches": (Branches, (5, 4)), "unrolled": (Unrolled, (3, 3, 4)), "attention": (Attention, (2, 3, 4)),
}  # fmt: skip


def in_backward_order(graph: OpGraph) -> list[int]:
    """The backward ops of a graph on one device, in the order of the program, when each takes a second."""
    problem = Problem(
        graph, toy_cluster(1, memory=1e9), runtime=IDEAL.with_knobs(order=PROGRAM), op_seconds=np.ones((len(graph), 1))
    )
    start = Simulator(problem).timeline(np.zeros(graph.num_units, np.int64)).start
    return [op for op in np.argsort(start).tolist() if graph.phase[op] == Phase.BACKWARD]


def executed(module: nn.Module, x: Tensor) -> list[tuple[str, int]]:
    """The nodes that autograd runs, in order, by their name and their number among those of that name."""
    loss = module(x).sum()
    stack, nodes = [loss.grad_fn], dict[Any, None]()
    while stack:
        node = stack.pop()
        if node is not None and node not in nodes:
            nodes[node] = None
            stack += [following for following, _ in node.next_functions]
    number: Counter[str] = Counter()
    ran: list[tuple[str, int]] = []
    own = [node for node in nodes if "AccumulateGrad" not in node.name()]
    for node in sorted(own, key=lambda node: node._sequence_nr()):
        name = node.name().rpartition("Backward")[0].lower()
        node.register_prehook(lambda _, which=(name, number[name]): ran.append(which))
        number[name] += 1
    loss.backward()
    return ran


@pytest.mark.parametrize("name", MODULES)
def test_backward_ops_run_as_autograd_runs_its_nodes(name: str) -> None:
    make, shape = MODULES[name]
    torch.manual_seed(0)
    x = torch.rand(shape)
    graph = training_step(traced(make(), (x,), name=name).build())
    order = in_backward_order(graph)
    which: dict[int, tuple[str, int]] = {}
    number: Counter[str] = Counter()
    for op in sorted(set(graph.mirror[order].tolist())):
        kind = graph.kinds[op].partition(".")[2].replace("_", "")
        which[op] = kind, number[kind]
        number[kind] += 1
    ours = list(dict.fromkeys(which[op] for op in graph.mirror[order].tolist() if op in which))
    theirs = [node for node in executed(make(), x) if node in ours]
    ours = [node for node in ours if node in theirs]
    assert len(ours) >= 7, "the names of most ops and nodes correspond"
    assert ours == theirs


class Products(TorchDispatchMode):
    """Notes the shapes of products of matrices."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.mm.default, torch.ops.aten.bmm.default):
            self.shapes.append(tuple(out.shape))
        return out


@pytest.mark.parametrize("bias", [False, True])
def test_the_gradients_of_one_op_come_in_the_order_of_its_formula(bias: bool) -> None:
    """Of "addmm" the input's first, of "mm" the weight's."""
    module, x = nn.Sequential(*(nn.Linear(size, size + 1, bias=bias) for size in (3, 4, 5))), torch.rand(2, 3)
    graph = training_step(traced(module, (x,), name="chain").build())
    loss = module(x).sum()
    with Products() as products:
        loss.backward()
    theirs = ["grad" if shape[0] == 2 else "grad_weight" for shape in products.shapes]
    ours = [graph.kinds[op].rpartition(".")[2] for op in in_backward_order(graph) if "mm" in graph.kinds[op]]
    assert ours == theirs
    assert ours == (["grad", "grad_weight"] if bias else ["grad_weight", "grad"]) * 2 + ["grad_weight"]


def test_updates_come_last_and_in_the_order_of_the_weights() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    graph = training_step(traced(module, (torch.rand(2, 3),), name="chain").build())
    order = np.argsort(priorities_of(Problem(graph, toy_cluster(1)), "program"))
    assert graph.phase[order].tolist() == sorted(graph.phase.tolist())
    updates = [graph.names[op] for op in order if graph.phase[op] == Phase.UPDATE]
    assert updates == [f"{layer}/{name}.update" for layer, name in (("0", "addmm"), ("1", "addmm_1"), ("2", "addmm_2"))]


def test_two_devices_drawn_by_hand() -> None:
    """Products a, b on one device, c on the other: gradients B, C of inputs, U, V, W of weights, updates u, v, w.

    PyTorch computes the gradient of a product's weight first, so that C, which the other device waits for, comes after
    W; and updates last, that of a before that of b, though V is there before U.
    """
    forward = toy_graph([1, 1, 1], [(0, 1), (1, 2)], weights=[1, 1, 1], weight_uses=[(0, 0), (1, 1), (2, 2)])
    graph = replace(
        forward,
        names=tuple("abcCWBVUwvu"),
        kinds=("aten.mm",) * 3 + tuple(f"aten.mm.{'grad' if name in 'BC' else 'grad_weight'}" for name in "CWBVU")
        + ("update",) * 3,
        flops=np.ones(11), bytes_accessed=np.zeros(11), output_bytes=np.ones(11),
        edges=np.array([(0, 1), (1, 2), (2, 3), (2, 4), (3, 5), (3, 6), (5, 7), (4, 8), (6, 9), (7, 10)]),
        control=np.zeros(10, np.bool_),
        phase=np.array([0] * 3 + [1] * 5 + [2] * 3), mirror=np.array([-1, -1, -1, 2, 2, 1, 1, 0, 2, 1, 0]),
        group=np.full(11, -1), measured_seconds=np.full(11, np.nan),
    )  # fmt: skip
    drawn, letters = {}, str.maketrans("abcdefghijk", "abcCWBVUwvu")
    for order in ("program", "longest_path"):
        timeline = Simulator(Problem(graph, toy_cluster(2)), order=order).timeline([0, 0, 1])
        margin = max(len(row.label) for row in timeline.rows())
        lines = timeline.draw(margin + 3 + round(timeline.step_seconds)).split("\n")
        drawn[order] = [line[line.index("|") :].translate(letters) for line in lines[:2]]
    assert drawn["program"] == ["|ab.....VBUuv|", "|...cWCw.....|"]
    assert drawn["longest_path"] == ["|ab....BVUvu|", "|...cCWw....|"]


def test_a_graph_that_is_no_training_step_runs_as_it_is_numbered() -> None:
    """Op b is numbered before c, but waits for it: of the ops that are ready the lowest number goes first."""
    graph = toy_graph([1, 1, 1, 1], [(2, 1), (0, 3)])
    assert priorities_of(Problem(graph, toy_cluster(1)), "program").tolist() == [0, 2, 1, 3]
