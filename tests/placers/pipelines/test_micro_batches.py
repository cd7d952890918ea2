"""Numbers of micro-batches divide the samples, and are few where all that is asked is how many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placers.pipelines.micro_batches import doubled, numbers_of


@given(samples=st.integers(1, 3000), replicas=st.integers(1, 9))
def test_they_are_all_that_divide(samples: int, replicas: int) -> None:
    expected = tuple(count for count in range(1, samples + 1) if samples % (count * replicas) == 0)
    assert numbers_of(samples, replicas) == expected


def test_powers_of_two_where_samples_are_not_known() -> None:
    assert numbers_of(0, 3) == (1, 2, 4, 8, 16, 32, 64)


@pytest.mark.parametrize(
    ("samples", "above", "expected"),
    [(1024, 64, [128, 256, 512, 1024]), (96, 16, [32, 48, 96]), (101, 1, [101]), (8, 8, []), (8, 64, [])],
)
def test_each_is_about_twice_the_one_before(samples: int, above: int, expected: list[int]) -> None:
    assert list(doubled(numbers_of(samples), above)) == expected
