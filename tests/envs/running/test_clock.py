"""A GPU is not waited for when it marks the time, but once, when its marks are read."""

from __future__ import annotations

import math
import time

import pytest
import torch

from envs.running.clock import mark, read

GPU = torch.device("cuda:0")


class Event:
    """One of a GPU that gets to a mark every 250 ms."""

    count = 0

    def __init__(self, device: torch.device, *, enable_timing: bool) -> None:
        assert device == GPU
        assert enable_timing

    def record(self, stream: str) -> None:
        assert stream == "stream of cuda:0"
        Event.count += 1
        self.number = Event.count

    def elapsed_time(self, later: Event) -> float:
        return 250.0 * (later.number - self.number)  # ms


def test_marks_of_a_gpu_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = list[torch.device]()
    monkeypatch.setattr(torch, "Event", Event)
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    monkeypatch.setattr(time, "perf_counter", lambda: 100.0)
    first, second, third = (mark(GPU) for _ in range(3))
    assert not waited
    found = read([("op", first, second), ("sent", third, math.nan)], GPU)
    assert found[0] == ("op", 99.25, 99.5)
    assert found[1][:2] == ("sent", 99.75)
    assert math.isnan(found[1][2])
    assert waited == [GPU]


def test_marks_of_a_processor_are_the_time() -> None:
    cpu = torch.device("cpu")
    before, noted, after = time.perf_counter(), mark(cpu), time.perf_counter()
    assert isinstance(noted, float)
    assert before <= noted <= after
    assert read([(1, noted, after)], cpu) == [(1, noted, after)]
