"""What exists before a step is held by the devices that read it: buffers, inputs, parameters that no op reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from envs.costs.costs import timed
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from envs.simulation.held_memory import HeldMemory
from envs.simulation.simulator import simulate
from graphs.capture.examples import Example
from graphs.capture.forward import traced_example
from graphs.capture.training_step import training_step
from graphs.descriptions.another_batch import with_batch
from graphs.files.load import load_cluster, load_graph
from graphs.formats.graph_file import load_graph_file, save_graph
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.op_graph.held_tensors import HeldTensors
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from tests.oracle.fake_step import held_by_step


class Quantised(nn.Module):
    """Weights of a byte each, as buffers, with scales that are parameters."""

    qweight: Tensor

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("qweight", torch.zeros(64, 64).to(dtype))
        self.scale = nn.Parameter(torch.ones(64))

    def forward(self, x: Tensor) -> Tensor:
        product: Tensor = (x @ self.qweight.to(x.dtype).t()) * self.scale
        return product


class Probe(nn.Module):
    """Reads one of its two parts, a buffer in one of two ops, and counts its calls."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(16, 16), nn.Linear(16, 1000)
        self.register_buffer("mask", torch.ones(16, 16))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.used(x) @ self.mask, labels)


class Decode(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        query = self.query(x).view(len(x), 1, 4, 16).transpose(1, 2)
        read = F.scaled_dot_product_attention(query, keys, values).transpose(1, 2)
        decoded: Tensor = self.out(read.reshape(len(x), 1, 64))
        return decoded


def quantised(dtype: torch.dtype = torch.int8) -> Example:
    with torch.device("meta"):
        return Example(nn.Sequential(*(Quantised(dtype) for _ in range(4))), (torch.zeros(8, 64),), {}, "quantised", 8)


def probe() -> Example:
    with torch.device("meta"):
        return Example(Probe(), (torch.zeros(8, 16), torch.zeros(8, dtype=torch.long)), {}, "probe", 8)


def decode(samples: int = 2) -> Example:
    with torch.device("meta"):
        cache = (torch.zeros(samples, 4, 1000, 16) for _ in range(2))
        return Example(Decode(), (torch.zeros(samples, 1, 64), *cache), {}, "decode", samples)


def captured(example: Example, *, training: bool = True) -> OpGraph:
    forward = traced_example(example).build()
    return training_step(forward) if training else forward


def static(graph: OpGraph, plan: Plan | None = None, devices: int = 1, optimizer: str = "sgd") -> list[float]:
    problem = timed(Problem(graph, load_cluster(f"v100:devices={devices}"), optimizer))
    held: list[float] = simulate(problem, plan or Plan.of([0] * len(graph))).held_bytes.tolist()
    return held


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn, torch.float32])
def test_buffers_of_every_type_are_held_for_the_whole_step(dtype: torch.dtype) -> None:
    graph = captured(quantised(dtype), training=False)
    buffers = 4 * 64 * 64 * dtype.itemsize
    assert static(graph) == [buffers + 4 * 64 * 4 + 8 * 64 * 4]
    assert [name for name in graph.held_tensors.names if name] == [f"{i}.qweight" for i in range(4)]
    halves = Plan.of([int(name.startswith(("2/", "3/"))) for name in graph.names])
    assert static(graph, halves, 2) == [buffers / 2 + 2 * 64 * 4 + 8 * 64 * 4, buffers / 2 + 2 * 64 * 4]


@pytest.mark.parametrize("example", [quantised, probe])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_what_is_held_for_the_whole_step_is_what_a_real_one_holds(example: object, optimizer: str) -> None:
    made = example()  # type: ignore[operator]
    graph = captured(made)
    counters = 4 * 4 if optimizer == "adam" else 0  # of fused Adam, one for each weight
    held = held_by_step(made, optimizer)
    assert held.static - counters <= static(graph, optimizer=optimizer)[0] <= held.static


def test_parameters_that_no_op_reads_have_neither_gradient_nor_state() -> None:
    graph = captured(probe())
    held = dict(zip(graph.held_tensors.names, graph.held_tensors.bytes.tolist(), strict=True))
    assert held["unused.weight"] == 1000 * 16 * 4
    assert {"unused.bias", "mask", "calls"} < held.keys()
    assert not any("unused" in name for name in graph.weight_names)


def test_buffers_that_are_only_written_are_held_too() -> None:
    """Of a batch norm the number of batches, which nothing that is returned depends on."""
    with torch.device("meta"):
        made = Example(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), (torch.zeros(4, 8),), {}, "norm", 4)
    graph = captured(made)
    held = dict(zip(graph.held_tensors.names, graph.held_tensors.bytes.tolist(), strict=True))
    assert held["1.num_batches_tracked"] == 8
    assert static(graph) == [held_by_step(made, "sgd").static]


def test_caches_that_are_inputs_grow_with_the_batch() -> None:
    graph = captured(decode(), training=False)
    cache = 2 * 2 * 4 * 1000 * 16 * 4
    weights = 2 * (64 * 64 + 64) * 4
    assert static(graph) == [weights + cache + 2 * 64 * 4]
    assert static(with_batch(graph, 8)) == [weights + 4 * (cache + 2 * 64 * 4)]
    assert (
        HeldMemory.of(Problem(graph, load_cluster("v100:devices=1"))).on_devices(np.zeros(graph.num_units, np.int64))[0]
        == weights + cache + 2 * 64 * 4
    )


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_replicas_hold_their_share_of_the_inputs_and_all_buffers(micro_batches: int) -> None:
    graph = captured(probe())
    alone, buffers = static(graph)[0], float(graph.held_tensors.bytes[~graph.held_tensors.grows].sum())
    inputs = 8 * 16 * 4 + 8 * 8
    assert alone == 16 * 17 * 4 + buffers + inputs
    schedule = Schedule(micro_batches, order="early_backward_a")
    both = static(graph, Plan(((0, 1),) * len(graph), schedule=schedule), 2)
    assert both == [16 * 17 * 4 + buffers + inputs / 2] * 2


def test_a_file_keeps_what_is_held(tmp_path: Path) -> None:
    graph = captured(probe())
    save_graph(graph, tmp_path / "probe.graph.json")
    again = load_graph_file(tmp_path / "probe.graph.json")
    assert again.fingerprint == graph.fingerprint == replace(graph, held=None).fingerprint
    assert again.held is not None
    for key in ("bytes", "uses", "grows", "names"):
        assert np.array_equal(getattr(again.held, key), getattr(graph.held_tensors, key))


def test_what_cannot_be_held_is_refused() -> None:
    graph = captured(probe(), training=False)
    for held, said in (
        (HeldTensors(np.array([-1.0]), np.array([[0, 0]])), "has -1.0 bytes"),
        (HeldTensors(np.array([1.0]), np.array([[99, 0]])), "op 99 of what is held does not exist"),
        (HeldTensors(np.array([1.0]), np.array([[0, 1]])), "tensor 1 of what is held does not exist"),
        (HeldTensors(np.array([1.0]), np.array([[0, 0]]), names=("a", "b")), "not as many names"),
    ):
        with pytest.raises(InputError, match=said):
            replace(graph, held=held)


@pytest.mark.parametrize(
    ("spec", "optimizer"),
    [
        ("transformer:layers=2,width=64,heads=2,sequence=16,batch=4", "sgd"),
        ("bert:layers=1,width=64,heads=2,sequence=16,batch=4", "adam"),
        ("vit:layers=2,width=64,heads=2,image=32,batch=4", "adam"),
        ("cifar10", "sgd"),  # pools without striding
    ],
)
def test_families_hold_what_a_real_step_holds(spec: str, optimizer: str) -> None:
    """In PyTorch's order: for the whole step exactly, but for Adam's counters, and at the peak within 2%."""

    graph = load_graph(spec)
    problem = timed(Problem(graph, load_cluster("v100:devices=1"), optimizer))
    timeline = simulate(problem, replace(Plan.of([0] * len(graph)), order=PROGRAM))
    held = held_by_step(spec, optimizer)
    counters = 4 * len(graph.weights) if optimizer == "adam" else 0
    assert held.static - counters - 64 <= timeline.held_bytes[0] <= held.static
    assert timeline.peak_bytes[0] == pytest.approx(held.peak, rel=0.02)
