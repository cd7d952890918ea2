"""What steps take is what a process had at most while they ran, and no more than that."""

import gc
import math

import numpy as np
import pytest
import torch

from envs.running.process_memory import Growth, MemoryGrowth

LARGE = 1 << 25  # numbers, 256 MiB


def test_what_was_freed_before_does_not_count_and_what_is_freed_meanwhile_does() -> None:
    gc.collect()  # what other tests have left is not freed meanwhile
    assert np.ones(LARGE).nbytes == 8 * LARGE
    growth = MemoryGrowth(torch.device("cpu"))
    if math.isnan(growth.growth().held):
        pytest.skip("the system does not say it")
    assert growth.growth().held < 4 * LARGE
    assert np.ones(LARGE).sum() == LARGE
    assert 7.5 * LARGE < growth.growth().held < 12 * LARGE


def test_a_gpu_has_what_was_given_out_and_what_pytorch_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"memory_allocated": 100, "memory_reserved": 256, "max_memory_allocated": 0, "max_memory_reserved": 0}
    resets = list[torch.device]()
    monkeypatch.setattr("torch.accelerator.reset_peak_memory_stats", resets.append)
    for name in now:
        monkeypatch.setattr(f"torch.accelerator.{name}", lambda device, name=name: now[name])
    gpu = torch.device("cuda", 1)
    growth = MemoryGrowth(gpu)
    assert resets == [gpu]
    now |= {"max_memory_allocated": 700, "max_memory_reserved": 1024}
    assert growth.growth() == Growth(600, 768)
    assert math.isnan(MemoryGrowth(torch.device("cpu")).growth().reserved)
