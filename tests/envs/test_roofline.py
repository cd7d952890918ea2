"""What ops cost."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from envs.costs.cost_models.roofline import build
from graphs.capture.forward import capture
from graphs.cluster import Cluster, Device
from graphs.op_graph import OpGraph
from graphs.problem import Problem


def graph(flops: list[float], bytes_accessed: list[float]) -> OpGraph:
    ops = len(flops)
    names = tuple(f"op{i}" for i in range(ops))
    no_edges = np.zeros((0, 2), np.int64)
    return OpGraph("g", names, ("k",) * ops, np.array(flops), np.array(bytes_accessed), np.zeros(ops), no_edges)


def test_an_op_takes_the_longer_of_arithmetic_and_traffic() -> None:
    fast, slow = Device("fast", "gpu", 4.0, 2.0, 1.0), Device("slow", "cpu", 1.0, 2.0, 1.0)
    flat = np.ones((2, 2))
    cluster = Cluster("pair", (fast, slow), flat, flat, np.zeros((2, 2), np.int64))
    costs = build().costs(Problem(graph([8.0, 2.0, 0.0], [2.0, 8.0, 0.0]), cluster))
    assert costs.op_seconds.tolist() == [[2.0, 8.0], [4.0, 4.0], [0.0, 0.0]]


def in_precisions(*precisions: str) -> OpGraph:
    return replace(graph([8.0] * len(precisions), [2.0] * len(precisions)), precisions=precisions)


def test_products_run_at_the_peak_of_their_precision() -> None:
    both = Device("both", "gpu", 1.0, 100.0, 1.0, flops_by_precision={"bf16": 8.0, "tf32": 4.0})
    cluster = Cluster.uniform("two", both, 1, latency=0, bandwidth=1, shared_out=True)
    costs = build().costs(Problem(in_precisions("", "bf16", "tf32"), cluster))
    assert costs.op_seconds.ravel().tolist() == [8.0, 1.0, 2.0]


@pytest.mark.parametrize("precisions", [("bf16", ""), ("bf16", "bf16")])
def test_a_device_without_a_peak_in_a_precision_says_so_once_and_takes_that_of_fp32(
    precisions: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    devices = [Device(f"{precisions}{i}", "gpu", 2.0, 100.0, 1.0, flops_by_precision={"fp16": 8.0}) for i in range(2)]
    flat = np.ones((2, 2))
    problem = Problem(
        in_precisions(*precisions), Cluster("pair", tuple(devices), flat, flat, np.zeros((2, 2), np.int64))
    )
    for _ in range(2):
        assert build().costs(problem).op_seconds.tolist() == [[4.0, 4.0]] * 2
    named = ", ".join(device.name for device in devices)
    assert caplog.messages == [
        f"the FLOP/s of {named} in bf16 are not known: products in bf16 are timed there at the peak in single "
        "precision; give them as flops_by_precision of the device in a cluster file"
    ]


def test_a_captured_chain_in_half_precision_takes_its_flops_at_that_peak_and_half_of_the_bytes() -> None:
    """Closed form: three layers of 256 by 256 on 64 rows, at 1e3 FLOP/s in half precision, where traffic is free."""
    device = Device("gpu", "gpu", 1e2, 1e9, 1e9, flops_by_precision={"bf16": 1e3})
    cluster = Cluster.uniform("one", device, 1, latency=0, bandwidth=1, shared_out=True)
    seconds, moved = [], []
    for dtype in (torch.float32, torch.bfloat16):
        layers = nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(3))).to("meta", dtype)
        captured = capture(layers, [torch.zeros(64, 256, device="meta", dtype=dtype)], name="chain")
        seconds.append(build().costs(Problem(captured, cluster)).op_seconds.sum())
        moved.append(captured.bytes_accessed.sum())
    flops = 3 * 2 * 64 * 256 * 256
    assert seconds == [pytest.approx(flops / 1e2), pytest.approx(flops / 1e3)]
    assert moved == [3 * 4 * (2 * 64 * 256 + 256**2), 3 * 2 * (2 * 64 * 256 + 256**2)]
