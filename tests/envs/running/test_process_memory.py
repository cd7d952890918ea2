"""What steps take is what a process had at most while they ran, and no more than that."""

import math

import numpy as np
import pytest
import torch

from envs.running.process_memory import MemoryGrowth

LARGE = 1 << 25  # numbers, 256 MiB


def test_what_was_freed_before_does_not_count_and_what_is_freed_meanwhile_does() -> None:
    assert np.ones(LARGE).nbytes == 8 * LARGE
    growth = MemoryGrowth(torch.device("cpu"))
    if math.isnan(growth.bytes()):
        pytest.skip("the system does not say it")
    assert growth.bytes() < 4 * LARGE
    assert np.ones(LARGE).sum() == LARGE
    assert 7.5 * LARGE < growth.bytes() < 12 * LARGE
