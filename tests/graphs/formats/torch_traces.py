"""Recordings of PyTorch by hand: the nodes of an ExecutionTraceObserver's trace, and the events of a timeline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Tensors = Sequence[tuple[tuple[Any, ...], list[int]]]  # each as the observer writes it, and its shape


def _values(tensors: Tensors) -> dict[str, Any]:
    values, shapes = [list(each) for each, _ in tensors], [shape for _, shape in tensors]
    return {"values": values, "shapes": shapes, "types": ["Tensor(float)"] * len(tensors)}


def node(
    number: int, name: str, parent: int, inputs: Tensors = (), outputs: Tensors = (), schema: str = "", *,
    sequence: int = -1, backend: str = "",
) -> dict[str, Any]:  # fmt: skip
    """A node of an observer's trace, whose rf_id is its id."""
    attributes = {"rf_id": number, "seq_id": sequence, "op_schema": schema, "kernel_backend": backend}
    return {
        "id": number, "name": name, "ctrl_deps": parent, "inputs": _values(inputs), "outputs": _values(outputs),
        "attrs": [{"name": key, "type": "any", "value": value} for key, value in attributes.items()],
    }  # fmt: skip


def event(
    kind: str, name: str, start: float, taken: float, *, tid: int = 1, rf: int = 0, external: int = 0, **more: Any
) -> dict[str, Any]:
    """An event of a timeline, in microseconds."""
    given = {"Record function id": rf, "External id": external}
    about = {key: value for key, value in given.items() if value} | more
    return {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": taken, "args": about}


def trace(path: Path, *nodes: dict[str, Any]) -> Path:
    """Write an observer's trace."""
    path.write_text(
        json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 7, "time": "now", "start_ts": 1, "nodes": nodes})
    )
    return path


def timeline(path: Path, *events: dict[str, Any]) -> Path:
    """Write a timeline."""
    path.write_text(json.dumps({"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": events}))
    return path


# ---- a step of a layer on a GPU: linear, relu_, view, exp, their backward pass, a sum over replicas, an update ------

X, W, Y, Z, G = (
    (number, number + 50, 0, elements, 4, "cuda:0") for number, elements in enumerate((6, 12, 8, 8, 12), start=10)
)
W_T, Y_FLAT, X_T = ((99, 61, *W[2:]), [3, 4]), ((98, 62, *Y[2:]), [8]), ((97, 60, *X[2:]), [3, 2])
MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
ADD = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
REDUCE = "c10d::allreduce_(Tensor[] tensors) -> Tensor[]"
NODES = [
    node(1, "[pytorch|profiler|execution_trace|thread]", 0),
    node(2, "aten::linear", 1, [(X, [2, 3]), (W, [4, 3])], [(Y, [2, 4])], "aten::linear(Tensor i, Tensor w) -> Tensor"),
    node(3, "aten::t", 2, [(W, [4, 3])], [W_T], "aten::t(Tensor(a) self) -> Tensor(a)"),
    node(4, "aten::mm", 2, [(X, [2, 3]), W_T], [(Y, [2, 4])], MM, sequence=1),
    node(5, "aten::relu_", 1, [(Y, [2, 4])], [(Y, [2, 4])], "aten::relu_(Tensor(a!) self) -> Tensor(a!)", sequence=2),
    node(6, "aten::view", 1, [(Y, [2, 4])], [Y_FLAT], "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)"),
    node(7, "aten::exp", 1, [Y_FLAT], [(Z, [8])], "aten::exp(Tensor self) -> Tensor", sequence=3),
    node(8, "autograd::engine::evaluate_function: MmBackward0", 1),
    node(9, "MmBackward0", 8, sequence=1),
    node(10, "aten::mm", 9, [X_T, (Z, [2, 4])], [(G, [3, 4])], MM),
    node(11, "c10d::allreduce_", 8, [(G, [12])], [(G, [12])], REDUCE),
    node(12, "record_param_comms", 11, [(G, [12])]),
    node(13, "Optimizer.step#SGD.step", 1),
    node(14, "aten::add_", 13, [(W, [4, 3]), (G, [3, 4])], [(W, [4, 3])], ADD),
]
CALLS = [
    event("cpu_op", "aten::linear", 0, 30, rf=2, external=102), event("cpu_op", "aten::t", 1, 3, rf=3, external=103),
    event("cpu_op", "aten::mm", 5, 20, rf=4, external=104), event("cpu_op", "aten::relu_", 40, 9, rf=5, external=105),
    event("cpu_op", "aten::view", 50, 4, rf=6, external=106), event("cpu_op", "aten::exp", 60, 9, rf=7, external=107),
    event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 70, 90, rf=8, external=108),
    event("cpu_op", "MmBackward0", 71, 40, rf=9, external=109),
    event("cpu_op", "aten::mm", 72, 20, rf=10, external=110),
    event("cpu_op", "c10d::allreduce_", 120, 30, rf=11, external=111),
    event("cpu_op", "record_param_comms", 121, 20, rf=12, external=112, dtype="Float", **{"In msg nelems": 12}),
    event("user_annotation", "Optimizer.step#SGD.step", 170, 30, rf=13, external=113),
    event("cpu_op", "aten::add_", 175, 9, rf=14, external=114),
]  # fmt: skip
KERNELS = [
    event("kernel", "sgemm", 100, 40, tid=7, external=104, correlation=1),
    event("kernel", "splitk", 140, 2, tid=7, external=104, correlation=2),
    event("cuda_runtime", "cudaLaunchKernel", 45, 3, external=105, correlation=3),
    event("kernel", "relu", 142, 5, tid=7, correlation=3),  # which does not say itself for what it runs
    event("kernel", "exp", 147, 6, tid=7, external=107, correlation=4),
    event("kernel", "sgemm", 153, 41, tid=7, external=110, correlation=5),
    event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 194, 70, tid=9, external=112, correlation=6),
    event("kernel", "add", 264, 4, tid=7, external=114, correlation=7),
    event("gpu_memset", "Memset (Device)", 400, 4, tid=7, external=999, correlation=8),  # of nothing that was recorded
]  # fmt: skip
