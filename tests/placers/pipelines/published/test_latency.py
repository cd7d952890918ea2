"""Equations 1 to 3: closed forms, and cases worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placers.pipelines.published.latency import latency, pivot


def step(
    forward: Sequence[float], backward: Sequence[float], micro_batches: int, *, corrected: bool = False,
    all_reduce: Sequence[float] = (),
) -> float:  # fmt: skip
    sums = np.array(all_reduce or [0.0] * len(forward), np.float64)
    forwards, backwards = np.array(forward, np.float64), np.array(backward, np.float64)
    return latency(forwards, backwards, sums, len(forward), micro_batches, corrected)


@given(st.integers(1, 8), st.integers(1, 64), st.floats(0.1, 9), st.floats(0.1, 9), st.booleans())
def test_equal_stages_without_transfers(
    stages: int, micro_batches: int, forward: float, backward: float, corrected: bool
) -> None:
    """GPipe's closed form. The last stage is the pivot; as printed, a single one lacks its last backward pass twice."""
    count = 2 * stages - 1
    forwards, backwards = ([value if i % 2 == 0 else 0.0 for i in range(count)] for value in (forward, backward))
    expected = (micro_batches + stages - 1) * (forward + backward)
    lacking = 2 * backward if stages == 1 and not corrected else 0.0
    assert step(forwards, backwards, micro_batches, corrected=corrected) == pytest.approx(expected - lacking)


def test_the_pivot_is_the_first_stage_that_outweighs_what_follows_it() -> None:
    forward, backward = np.array([4.0, 1.0, 3.0]), np.array([4.0, 1.0, 3.0])
    assert pivot(forward, backward, 3, 2) == 2  # 8 is no more than 6, and the 2 between them
    assert pivot(forward, backward, 3, 9) == 0  # 64 is more than 48, and the 2
    assert pivot(forward, backward, 2, 2) == 0


def test_by_hand() -> None:
    """Stages of 1 and 3 seconds forward, twice that backward, half a second each way between them."""
    forward, backward = [1.0, 0.5, 3.0], [2.0, 0.5, 6.0]
    assert step(forward, backward, 4) == 4.5 + 27.0 + 8.5
    assert step(forward, backward, 4, all_reduce=[10.0, 0.0, 1.0]) == 4.5 + 27.0 + 18.5
    assert step(forward, backward, 4, all_reduce=[1.0, 0.0, 99.0]) == 4.5 + 27.0 + 93.0  # B_Q taken off, as printed
    assert step(forward, backward, 4, all_reduce=[1.0, 0.0, 99.0], corrected=True) == 4.5 + 27.0 + 105.0


def test_a_pivot_that_is_the_first_stage_lacks_its_last_backward_pass() -> None:
    forward, backward = [3.0, 0.0, 1.0], [6.0, 0.0, 2.0]
    assert step(forward, backward, 4) == 3.0 + 27.0 - 6.0
    assert step(forward, backward, 4, corrected=True) == 3.0 + 27.0 + 6.0
