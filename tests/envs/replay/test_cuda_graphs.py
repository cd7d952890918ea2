"""How PyTorch is asked for CUDA graphs, whose part something else plays."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from envs.replay.cuda_graphs import CudaGraphs, graphs_for

GPUS = [torch.device("cuda", 0), torch.device("cpu"), torch.device("cuda", 1)]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is said to PyTorch's part."""
    told = list[Any]()

    class Graph:
        def capture_begin(self, **how: object) -> None:
            told.append(("begin", how["pool"], how["capture_error_mode"]))

        def capture_end(self) -> None:
            told.append("end")
            warnings.warn("The CUDA Graph is empty. This usually means ...", stacklevel=1)
            if "failed" in told:
                raise RuntimeError("the capture was invalidated")

        def replay(self) -> None:
            told.append("replay")

    @contextmanager
    def entered(stream: object) -> Any:
        told.append(stream)
        yield
        told.append("left")

    pools = iter(range(9))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch.cuda, "stream", entered)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: told.append(f"synchronize {device}"))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(pools))
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: told.append(mode))
    return told


@pytest.mark.filterwarnings("error")
def test_graphs_of_a_gpu_share_a_stream_and_a_pool_until_they_are_forgotten(said: list[Any]) -> None:
    graphs = CudaGraphs(GPUS)
    launch = graphs.capture(2, lambda: said.append("run"))
    assert said == [
        "synchronize cuda:1", "stream of cuda:1", ("begin", 0, "thread_local"), "run", "end", "left"
    ]  # fmt: skip
    launch()
    assert said[-1] == "replay"
    for place in (2, 0):
        graphs.capture(place, lambda: None)
    graphs.forget()
    graphs.capture(2, lambda: None)
    assert [each[1] for each in said if isinstance(each, tuple)] == [0, 0, 1, 2]


@pytest.mark.filterwarnings("error")
def test_a_capture_that_fails_is_ended_and_says_why(said: list[Any]) -> None:
    def fail() -> None:
        said.append("failed")
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="operation not permitted"):
        CudaGraphs(GPUS).capture(0, fail)
    assert said[-2:] == ["failed", "end"]


def test_what_waits_for_its_device_is_noticed_and_other_warnings_stay(said: list[Any]) -> None:
    def waits() -> None:
        warnings.warn("called a synchronizing CUDA operation (Triggered internally at ...)", stacklevel=1)
        warnings.warn("Synchronization debug mode is a prototype feature and does ...", stacklevel=1)
        warnings.warn("something else", stacklevel=1)

    graphs = CudaGraphs(GPUS)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert graphs.waits(0, waits)
    assert [str(each.message) for each in seen] == ["something else"]
    assert said == ["warn", 0]
    assert not graphs.waits(0, lambda: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not graphs.waits(1, waits)  # a processor


def test_only_gpus_of_cuda_have_graphs() -> None:
    assert [CudaGraphs(GPUS).takes(place) for place in range(3)] == [True, False, True]
    assert graphs_for(GPUS) is not None
    assert graphs_for([torch.device("cpu"), torch.device("xpu", 0)]) is None
