"""PyTorch's recordings: real ones of a step on the CPU, ones by hand as GPUs give them, and what is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

import placelab
from envs.expansion.nccl import all_reduce_seconds
from graphs.files.load import load_cluster, load_graph
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase
from tests.graphs.formats.torch_traces import CALLS, KERNELS, MM, NODES, X, Y, Z, event, node, timeline, trace

# ---- real ones -------------------------------------------------------------------------------------------------------


class Recorded(NamedTuple):
    trace: Path
    timeline: Path
    parameters: list[int]  # bytes
    flops: float


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Two steps of a small model, trained with momentum."""
    folder = tmp_path_factory.mktemp("recorded")
    net = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.LayerNorm(96), nn.Linear(96, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=False)
    inputs, labels = torch.randn(32, 64), torch.randint(0, 10, (32,))

    def step() -> None:
        optimizer.zero_grad()
        with record_function("body"):
            outputs = net(inputs)
        nn.functional.cross_entropy(outputs, labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    step()
    with FlopCounterMode(display=False) as counter:
        step()
    observer = ExecutionTraceObserver().register_callback(str(folder / "step.json"))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, execution_trace_observer=observer) as found:
        step()
        step()
    found.export_chrome_trace(str(folder / "times.json"))
    parameters = [each.numel() * each.element_size() for each in net.parameters()]
    return Recorded(folder / "step.json", folder / "times.json", parameters, counter.get_total_flops())


def test_a_recorded_step_is_a_training_step(recorded: Recorded, caplog: pytest.LogCaptureFixture) -> None:
    graph = load_graph(str(recorded.trace))
    assert any("ops follow the first optimizer step; they are left out" in each.message for each in caplog.records)
    assert sorted(graph.weights.tolist()) == sorted(recorded.parameters)
    assert graph.flops.sum() == recorded.flops
    forward = graph.phase == Phase.FORWARD
    assert [kind for kind, is_first in zip(graph.kinds, forward, strict=True) if is_first] == [
        "aten.linear", "aten.relu", "aten.layer_norm", "aten.linear", "aten.cross_entropy_loss", "aten.ones_like",
    ]  # fmt: skip
    assert graph.names[0].startswith("body/linear#")
    edges = graph.edges.tolist()
    assert all([op, op + 1] in edges for op in range(5))
    assert graph.output_bytes[:5].tolist() == [32 * 96 * 4] * 3 + [32 * 10 * 4, 4]
    (relu,) = (op for op, kind in enumerate(graph.kinds) if kind == "aten.threshold_backward")
    assert graph.mirror[relu] == 1
    products = [op for op, kind in enumerate(graph.kinds) if kind == "aten.mm"]
    assert graph.mirror[products].tolist() == [3, 3, 0]
    assert (graph.mirror[~forward] >= 0).all()
    readers = {
        int(weight): {int(op) for op, each in graph.weight_uses if each == weight} for _, weight in graph.weight_uses
    }
    for weight, ops in readers.items():
        user = {op for op in ops if forward[op]}
        assert {int(graph.mirror[op]) for op in ops if graph.phase[op] == Phase.UPDATE} == user, weight
    assert 32 * 64 * 4 in graph.held_tensors.bytes.tolist()  # the inputs


@pytest.mark.parametrize("kind", ["foreach", "fused"])
def test_an_update_of_all_weights_at_once_is_shared_among_their_users(kind: str, tmp_path: Path) -> None:
    net, inputs = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 8)), torch.randn(4, 8)
    optimizer = torch.optim.AdamW(net.parameters(), foreach=kind == "foreach", fused=kind == "fused")
    for last in (False, True):
        optimizer.zero_grad()
        observer = ExecutionTraceObserver().register_callback(str(tmp_path / f"{kind}.json")) if last else None
        with profile(activities=[ProfilerActivity.CPU], execution_trace_observer=observer):
            net(inputs).sum().backward()
            optimizer.step()
    graph = load_graph(str(tmp_path / f"{kind}.json"))
    first, second = np.flatnonzero(graph.phase == Phase.UPDATE).tolist()
    users = [op for op, each in enumerate(graph.kinds) if each == "aten.linear"]
    assert graph.mirror[[first, second]].tolist() == users
    share = graph.bytes_accessed[[first, second]] / graph.bytes_accessed[[first, second]].sum()
    assert share.tolist() == pytest.approx([216 / 416, 200 / 416])
    for update, user in ((first, users[0]), (second, users[1])):
        gradients = graph.edges[graph.edges[:, 1] == update, 0]
        assert graph.output_bytes[gradients].tolist() == [8 * 24 * 4, 4 * (24 if update == first else 8)]
        assert (graph.mirror[gradients] == user).all()
    assert 4 * 8 * 4 in graph.held_tensors.bytes.tolist()
    assert graph.held_tensors.bytes.sum() < 8 * 24 * 4  # no moments


def span(path: Path, until: str) -> float:
    """Seconds from the start of the first operator on a timeline to the end of the last one in a part of it."""
    events = [each for each in json.loads(path.read_text())["traceEvents"] if each.get("ph") == "X"]
    parts = sorted((each for each in events if each["name"].startswith(until)), key=lambda each: each["ts"])
    end = parts[0]["ts"] + parts[0]["dur"]
    inside = [each for each in events if each.get("cat") == "cpu_op" and each["ts"] <= end]
    return float(max(each["ts"] + each["dur"] for each in inside) - min(each["ts"] for each in inside)) / 1e6


@pytest.mark.parametrize("alone", [False, True])
def test_a_recorded_step_takes_what_was_measured(recorded: Recorded, alone: bool, tmp_path: Path) -> None:
    cluster = tmp_path / "host.cluster.toml"
    cluster.write_text(
        'schema = "placelab.cluster"\nversion = 1\nname = "host"\n[[devices]]\nname = "cpu:0"\nkind = "cpu"\n'
        'flops_per_second = "1TFLOP/s"\nbytes_per_second = "1GB/s"\nmemory = "1GiB"\n'
    )
    text = str(recorded.timeline) if alone else f"{recorded.trace}:times={recorded.timeline}"
    placed = placelab.place(text, cluster=str(cluster), placer="single_device", groups=None)
    assert placed.timeline.step_seconds == pytest.approx(span(recorded.timeline, "Optimizer.step#"), rel=1e-6)
    plan = tmp_path / "one.plan.json"
    plan.write_text('{"schema": "placelab.plan", "version": 4, "plan": {"placement": {"": "cpu:0"}}}')
    again = placelab.simulate(text, plan, cluster=str(cluster))
    assert again.timeline.step_seconds == pytest.approx(placed.timeline.step_seconds)


# ---- as GPUs give them -----------------------------------------------------------------------------------------------

KINDS = ("aten.linear", "aten.relu_", "aten.exp", "aten.mm", "ALL_REDUCE", "update")
SECONDS = [42e-6, 5e-6, 6e-6, 41e-6, 70e-6, 4e-6]


def test_kernels_are_those_of_the_op_that_launched_them(tmp_path: Path) -> None:
    times = timeline(tmp_path / "times.json", *CALLS, *KERNELS)
    graph = load_graph(f"{trace(tmp_path / 'step.json', *NODES)}:times={times}")
    assert graph.kinds == KINDS
    assert graph.measured_seconds.tolist() == pytest.approx(SECONDS)
    assert graph.edges.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]]
    assert not graph.control.any()
    assert graph.phase.tolist() == [0, 0, 0, 1, 1, 2]
    assert graph.mirror.tolist() == [-1, -1, -1, 0, 0, 0]
    assert graph.output_bytes.tolist() == [32, 32, 32, 48, 48, 0]
    assert (graph.weights.tolist(), graph.weight_uses.tolist()) == ([48], [[0, 0], [5, 0]])
    assert graph.held_tensors.bytes.tolist() == [24]
    alone = load_graph(str(times))
    assert alone.kinds == (*KINDS[:-1], "aten.add_")
    assert alone.measured_seconds.tolist() == pytest.approx(SECONDS)
    assert alone.edges.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]]
    assert alone.control.all()
    assert alone.output_bytes[4] == 48  # twelve floats


def test_without_an_optimizer_step_weights_are_held_as_inputs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    graph = load_graph(str(trace(tmp_path / "step.json", *NODES[:-2])))
    assert [each.getMessage() for each in caplog.records] == [
        "step has no optimizer step: its weights are not known, and held as inputs are"
    ]
    assert (len(graph.weights), sorted(graph.held_tensors.bytes.tolist())) == (0, [24, 48])


def test_a_trace_that_kernels_were_linked_to_has_their_times(tmp_path: Path) -> None:
    """As MLCommons' chakra_trace_link writes it: kernels are nodes, below those that launched them."""
    launched = {104: 4, 105: 5, 107: 7, 110: 10, 112: 12, 114: 14}
    kernels = [each for each in KERNELS if each["cat"] == "kernel"]
    by = [launched[each["args"].get("External id", 105)] for each in kernels]
    linked = [
        {**node(100 + index, each["name"], op), "cat": "kernel", "ts": each["ts"], "inclusive_dur": each["dur"]}
        for index, (op, each) in enumerate(zip(by, kernels, strict=True))
    ]
    graph = load_graph(str(trace(tmp_path / "step.json", *NODES, *linked)))
    assert graph.kinds == KINDS
    assert graph.measured_seconds.tolist() == pytest.approx(SECONDS)


def test_a_trace_without_times_has_operations_and_bytes(tmp_path: Path) -> None:
    path = trace(tmp_path / "step.json", *NODES)
    graph = load_graph(str(path))
    assert graph.flops.tolist() == [2 * 2 * 3 * 4, 0, 0, 2 * 3 * 2 * 4, 0, 0]
    assert graph.bytes_accessed.tolist() == [24 + 48 + 32, 64, 64, 24 + 32 + 48, 48, 48 + 48 + 48]
    assert np.isnan(graph.measured_seconds).all()
    cluster = load_cluster("p100x2")
    took = placelab.place(path, cluster="p100x2", placer="single_device", groups=None).timeline
    assert (took.finish - took.start)[4] == pytest.approx(all_reduce_seconds(cluster, (0, 1), 48))


def test_a_compiled_kernel_orders_what_shares_memory_with_it(tmp_path: Path) -> None:
    """Triton's say no schema: whatever they are given they may write."""
    fused = node(5, "triton_poi_fused_relu_exp_0", 1, [(Y, [2, 4]), (Z, [8])], backend="triton")
    nodes = [*NODES[:4], fused, *NODES[7:]]
    graph = load_graph(str(trace(tmp_path / "step.json", *nodes)))
    assert graph.kinds == ("aten.linear", "triton_poi_fused_relu_exp_0", *KINDS[3:])
    assert graph.edges.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert graph.output_bytes.tolist() == [32, 32, 48, 48, 0]


def test_flops_of_several_results_and_those_that_are_not_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Gradients of input and weights take a product each: 2 * 2 * 4 * 3 FLOP at 5 * 5 and 5 * 5 places, by 3 * 3."""
    image, kernel, out, *made = ((number, number, 0, 1, 4, "cpu") for number in (1, 2, 3, 4, 5))
    shapes = [[2, 3, 5, 5], [4, 3, 3, 3]]
    back = node(
        2, "aten::convolution_backward", 1, [(out, [2, 4, 5, 5]), (image, shapes[0]), (kernel, shapes[1])],
        list(zip(made, shapes, strict=True)),
        "aten::convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, "
        "SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, "
        "SymInt groups, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    )  # fmt: skip
    others: list[Any] = ["<None>", [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]]
    back["inputs"]["values"] += others
    back["inputs"]["shapes"] += [[]] * len(others)
    back["inputs"]["types"] += ["None"] + ["Any"] * (len(others) - 1)
    recurrent = node(3, "aten::lstm", 1, [(out, [2])], [(kernel, [2])], "aten::lstm(Tensor input) -> Tensor")
    graph = load_graph(str(trace(tmp_path / "step.json", NODES[0], back, recurrent)))
    assert graph.flops.tolist() == [2 * 2 * (2 * 4 * 3) * 5 * 5 * 9, 0]
    assert "how many FLOP ['aten::lstm'] take is not known" in caplog.messages[-1]


def test_kernels_of_no_call_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load_graph(str(timeline(tmp_path / "times.json", *CALLS, *KERNELS)))
    assert any("kernels of 4e-06 of 0.000172 s were launched by no call" in each for each in caplog.messages)
    captured = event("kernel", "graph", 500, 400, tid=7, correlation=77)
    with pytest.raises(
        InputError, match=r"kernels of 0\.000404 of 0\.000572 s were launched by no call .* CUDA graphs"
    ):
        load_graph(str(timeline(tmp_path / "times.json", *CALLS, *KERNELS, captured)))


# ---- what is none ----------------------------------------------------------------------------------------------------


def test_recordings_of_two_runs_are_refused(tmp_path: Path) -> None:
    others = [{**each, "name": "aten::cos"} for each in CALLS]
    step, times = trace(tmp_path / "step.json", *NODES), timeline(tmp_path / "times.json", *others)
    with pytest.raises(InputError, match=r"step\.json and .*times\.json are of two runs: .* record both at once"):
        load_graph(f"{step}:times={times}")
    with pytest.raises(InputError, match="is a timeline, with times of its own; give the trace of an Execution"):
        load_graph(f"{times}:times={times}")
    with pytest.raises(InputError, match=r"none\.json does not exist; torch\.profiler\.profile\(record_shapes=True\)"):
        load_graph(f"{step}:times={tmp_path / 'none.json'}")


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        ([node(1, "aten::mm", 0), node(1, "aten::mm", 0)], "expected nodes, each with an id of its own"),
        ([], "expected nodes, each with an id of its own"),
        ([node(1, "[pytorch|profiler|execution_trace|thread]", 0)], "no operator is called that computes anything"),
        ([NODES[1] | {"outputs": {"values": [[1]], "shapes": [[]], "types": ["Tensor(float)"]}}],
         "'aten::linear' has inputs or outputs that are no lists of tensors"),
        ([NODES[1] | {"outputs": {"values": [[1, 2, 0, -6, 4]], "shapes": [[]], "types": ["Tensor(float)"]}}],
         "a tensor whose size makes no sense"),
        ([node(1, "aten::mm", 0, [(X, [2, 3])], [(Y, [2, 4])], MM)], "aten::mm is called with arguments that it"),
        ([{"id": 1, "name": "aten::mm", "parent": 0}], "inputs"),
        ([NODES[1] | {"ts": 0, "inclusive_dur": -1}], "begins at 0.0 and takes -1.0; expected microseconds"),
    ],
)  # fmt: skip
def test_a_trace_that_makes_no_sense_gets_one_sentence(
    tmp_path: Path, nodes: list[dict[str, Any]], sentence: str
) -> None:
    with pytest.raises(InputError, match=rf"step\.json: .*{sentence}"):
        load_graph(str(trace(tmp_path / "step.json", *nodes)))


def test_a_timeline_without_operators_gets_one_sentence(tmp_path: Path) -> None:
    path = timeline(tmp_path / "times.json", event("python_function", "main.py(1): main", 0, 5))
    with pytest.raises(InputError, match=r"times\.json: no operator is called in this timeline; torch\.profiler"):
        load_graph(str(path))
