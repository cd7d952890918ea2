import math

import pytest

from evaluation.records import formatting
from evaluation.records.statistics import NOTHING, Estimate


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"), (2.0, "2.00 s"), (123.4, "123 s"), (1234.0, "1234 s"), (0.0123, "12.3 ms"), (4.5e-5, "45.0 µs"),
        (3e-9, "3.00 ns"), (math.nan, "-"),
    ],
)  # fmt: skip
def test_seconds_come_in_the_unit_that_suits(value: float, text: str) -> None:
    assert formatting.seconds(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (16 * 2**30, "16.0 GiB")])
def test_memory_is_in_binary_units(value: float, text: str) -> None:
    assert formatting.memory(value) == text


def test_shares_and_ratios() -> None:
    assert [formatting.share(value) for value in (0, 0.004, 0.57, 1.4)] == ["0%", "0.4%", "57%", "140%"]
    assert [formatting.ratio(value) for value in (1.0, math.nan)] == ["1.00", "-"]


def test_an_interval_is_shown_where_there_is_one() -> None:
    assert formatting.interval(Estimate(1.25, 1.1, 1.43, 5)) == "1.25 [1.10, 1.43]"
    assert formatting.interval(Estimate(1.25, math.nan, math.nan, 4), digits=3) == "1.250"
    assert formatting.interval(NOTHING) == "-"
