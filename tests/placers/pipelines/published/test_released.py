"""The planner that was released with DAPPLE, by hand where its profiles are not needed."""

import numpy as np
import pytest

from envs.pipelines.layers import Layers
from placers.pipelines.published.dapple_program import RATES, DappleProgram, send_seconds, sum_seconds


def test_a_straight_pipeline_may_go_to_a_fresh_server_and_back() -> None:
    """What the third layer sends takes 4 s between servers, there and back, and a layer takes 1 s, so that no cut
    between servers is there. Weights are so large that replicas do not pay."""
    sent, none, ones = np.array([0.0, 0.0, 2e9, 0.0, 0.0, 0.0]), np.zeros(6), np.ones(6)
    seconds = 0.25 * ones, 0.75 * ones, none, none, none
    layers = Layers(
        np.arange(6),
        *seconds,
        sent,
        returned=none,
        weights=1e12 * ones,
        held=none,
        kept=none,
        on_devices=np.zeros((2, 7, 1)),
        block=np.full(6, -1),
    )
    found = DappleProgram(layers, (3, 3), 6, 0).planned()
    assert [stage.end for stage in found.stages] == [1, 2, 3, 4, 5, 6]
    assert found.stages[2].counts == found.stages[3].counts
    assert np.sum([stage.counts for stage in found.stages], axis=0).tolist() == [3, 3]
    within = 2e9 / RATES.within
    assert found.seconds == pytest.approx(5 / 6 * 1 + 6 / 6 + within / 6)  # of 6 micro-batches


def test_seconds_between_devices_by_hand() -> None:
    """Two servers of eight: 1 GB/s from one to the other, 3 GB/s to devices of both, and 25 GB/s inside of one."""
    assert send_seconds((8, 0), (4, 4), 6e9) == 2  # to both
    assert send_seconds((2, 6), (4, 0), 6e9) == 6 * 6 / 8  # of the eight senders six are elsewhere
    assert send_seconds((8, 0), (0, 8), 6e9) == 6
    assert send_seconds((4, 0), (4, 0), 5e9) == 0.2
    assert sum_seconds((1, 0), 6e9) == 0
    assert sum_seconds((8, 8), 8e9) == 2 * 8 * 15 / 16 / 3
    assert sum_seconds((1, 1), 3e9) == 2 * 3 / 2 / 3
    assert sum_seconds((8, 0), 50e9) == 2 * 50 * 7 / 8 / 25 / 4  # each pair of devices at once
