"""The planner that was released with DAPPLE, by hand where its profiles are not needed."""

import numpy as np
import pytest

from envs.pipelines.layers import Layers
from placers.pipelines.published.dapple_program import RATES, DappleProgram


def test_a_straight_pipeline_may_go_to_a_fresh_server_and_back() -> None:
    """What the third layer sends takes 4 s between servers, there and back, and a layer takes 1 s, so that no cut
    between servers is there. Weights are so large that replicas do not pay."""
    sent, none, ones = np.array([0.0, 0.0, 2e9, 0.0, 0.0, 0.0]), np.zeros(6), np.ones(6)
    seconds = 0.25 * ones, 0.75 * ones, none, none, none
    layers = Layers(np.arange(6), *seconds, sent, returned=none, weights=1e12 * ones, held=none, kept=none)
    found = DappleProgram(layers, (3, 3), 6, 0).planned()
    assert [stage.end for stage in found.stages] == [1, 2, 3, 4, 5, 6]
    assert found.stages[2].counts == found.stages[3].counts
    assert np.sum([stage.counts for stage in found.stages], axis=0).tolist() == [3, 3]
    within = 2e9 / RATES.within
    assert found.seconds == pytest.approx(5 / 6 * 1 + 6 / 6 + within / 6)  # of 6 micro-batches
