"""How each op of a captured graph is run alone."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from graphs.capture.op_calls import TensorLike, distinct_ops, load_calls
from graphs.files.load import load_graph
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase

TWO_TOWERS = f"{Path(__file__).parents[1] / 'fixtures' / 'user_module.py'}:two_towers"
RNNLM = "rnnlm:layers=1,steps=3,hidden=4,batch=2,vocabulary=8"


@pytest.mark.parametrize("what", [TWO_TOWERS, RNNLM])
@pytest.mark.parametrize("training", [True, False])
def test_calls_belong_to_the_graph_that_is_captured(what: str, training: bool) -> None:
    captured = load_calls(what, training=training)
    assert captured.graph.fingerprint == load_graph(what, training=training).fingerprint
    assert len(captured.calls) == len(captured.graph)
    for call, kind, flops, traffic in zip(
        captured.calls, captured.graph.kinds, captured.graph.flops, captured.graph.bytes_accessed, strict=True
    ):
        assert (call is None) == (flops == traffic == 0)
        assert call is None or call.kind == kind


def test_the_two_towers_by_hand() -> None:
    signatures = Counter(call.signature for call in load_calls(TWO_TOWERS).calls if call)
    tower = "float32[2, 4], float32[4, 4]/[1, 4]"
    head = "float32[1], float32[2, 4], float32[4, 1]/[1, 4]"
    pair = "float32[2, 4], float32[2, 4]"
    adam = "lr=0.001, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-08, amsgrad=False, maximize=False"
    assert signatures == {
        f"aten.mm({tower})": 2,
        f"aten.mul({pair})": 1,
        "aten.mul(float32[2, 4], 1.0)": 1,
        f"aten.addmm({head})": 1,
        "loss(float32[2])": 1,
        "loss.grad(float32[2]) -> gradients of 0": 1,
        f"aten.addmm.grad({head}) -> gradients of 1": 1,
        f"aten.addmm.grad_weight({head}) -> gradients of 0, 2": 1,
        "aten.mul.grad(float32[2, 4], 1.0) -> gradients of 0": 1,
        f"aten.mul.grad({pair}) -> gradients of 0, 1": 1,
        f"aten.mm.grad_weight({tower}) -> gradients of 1": 2,
        f"update({', '.join(['[float32[16]]'] * 4)}, [], [float32[1]], {adam})": 1,
        f"update({', '.join(['[float32[5]]'] * 4)}, [], [float32[1]], {adam})": 1,
    }


def test_an_unrolled_step_repeats_the_same_distinct_ops() -> None:
    few, many = (load_calls(RNNLM.replace("steps=3", f"steps={steps}")) for steps in (3, 6))
    assert len(many.graph) > 1.8 * len(few.graph)
    distinct = distinct_ops(many)
    assert len(distinct) == pytest.approx(len(distinct_ops(few)), abs=3)
    names = [name for op in distinct for name in op.names]
    assert sorted(names) == sorted(name for name, call in zip(many.graph.names, many.calls, strict=True) if call)


def test_a_backward_op_is_compared_with_its_forward_op_by_flops_or_else_by_bytes() -> None:
    captured = load_calls(TWO_TOWERS)  # whose backward ops cost as much as the forward ops
    graph = captured.graph
    is_back = graph.phase == Phase.BACKWARD
    dearer = replace(
        graph,
        flops=graph.flops * np.where(is_back, 3, 1),
        bytes_accessed=graph.bytes_accessed * np.where(is_back, 5, 1),
    )
    times = {op.call.kind: op.times_forward for op in distinct_ops(replace(captured, graph=dearer))}
    assert {kind: times[kind] for kind in times if kind != "update"} == {
        "aten.mm": 1,
        "aten.mul": 1,
        "aten.addmm": 1,
        "loss": 1,
        "aten.addmm.grad": 3,
        "aten.addmm.grad_weight": 3,
        "aten.mm.grad_weight": 3,
        "loss.grad": 5,
        "aten.mul.grad": 5,
    }


def test_an_index_points_at_a_row_of_its_table() -> None:
    calls = {call.kind: call for call in load_calls(RNNLM).calls if call}
    table, index = calls["aten.embedding"].tensors
    assert (table.shape, index.dtype, index.below) == ((8, 4), torch.int64, 8)


def test_memory_spans_from_the_first_to_the_last_element() -> None:
    assert TensorLike((2, 3), (3, 1), torch.float32).storage_bytes == 24
    assert TensorLike((2, 3), (0, 1), torch.float32).storage_bytes == 12  # expanded
    assert TensorLike((2, 3), (10, 1), torch.float32).elements == 13  # a part of something wider
    assert TensorLike((0, 3), (3, 1), torch.float32).elements == 0
    assert TensorLike((), (), torch.float64).storage_bytes == 8


def test_a_graph_file_cannot_be_run() -> None:
    with pytest.raises(InputError, match="a graph file does not say how its ops are run; give the model"):
        load_calls("some.graph.json")
