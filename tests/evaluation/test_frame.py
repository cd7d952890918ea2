"""The frame of the studies: ratios, means and wins on made-up records; a plan that does not fit has no ratio."""

import math

import numpy as np
import pytest

from evaluation.records.record import Failure, Record
from evaluation.studies.frame import Frame
from tests.evaluation.some_records import record

ONE, OTHER, THIRD = "a:x@two", "b:x@two", "b:y@two"


def frame(*records: Record | Failure) -> Frame:
    return Frame.of(((each.placer, each) for each in records), best_of={"cheap": ("heft", "metis")})


def test_a_ratio_is_over_the_seeds_that_both_have_and_where_both_fit() -> None:
    found = frame(
        record(ONE, "heft", 4.0), record(ONE, "heft", 8.0, seed=1), record(ONE, "heft", 1.0, seed=2),
        record(ONE, "metis", 2.0), record(ONE, "metis", 2.0, seed=1),
        record(OTHER, "heft", 1.0), record(OTHER, "metis", 5.0, fits=False),
    )  # fmt: skip
    np.testing.assert_array_equal(found.ratios("heft", "metis"), [[2.0, np.nan], [4.0, np.nan]])
    assert found.ratio("heft", "metis").value == pytest.approx(math.sqrt(8))
    assert found.ratio("heft", "metis", [OTHER]).count == found.ratio("heft", "nobody").count == 0
    assert found.ratio("heft", np.array([1.0, 1.0]), [OTHER]).value == 1.0, "over seconds by problem"


def test_an_interval_is_over_problems() -> None:
    found = frame(
        *(record(ONE, "heft", seconds, seed=seed) for seed, seconds in enumerate((1.0, 4.0))),
        *(record(OTHER, "heft", seconds, seed=seed) for seed, seconds in enumerate((1.0, 4.0))),
        *(record(problem, "metis", 2.0, seed=seed) for problem in (ONE, OTHER) for seed in (0, 1)),
    )  # fmt: skip
    over_problems = found.against("heft", "metis").ratio
    assert (over_problems.value, over_problems.low, over_problems.high) == pytest.approx((1.0, 1.0, 1.0))


def test_means_over_seeds_are_infinite_where_a_seed_has_no_plan_that_fits() -> None:
    failed = Failure(problem=THIRD, placer="heft", seed=0, reason="it could not")
    found = frame(
        record(ONE, "heft", 2.0), record(ONE, "heft", 8.0, seed=1), record(OTHER, "heft", 1.0, fits=False), failed,
        record(ONE, "metis", 3.0), record(OTHER, "metis", 3.0),
    )  # fmt: skip
    assert found.means["heft"].tolist() == pytest.approx([4.0, math.inf, math.inf])
    assert found.means["cheap"].tolist() == pytest.approx([3.0, 3.0, math.inf]), "the best of both"
    assert found.best().tolist() == pytest.approx([2.0, 3.0, math.nan], nan_ok=True), "of any seed"
    assert (found.unfit("heft"), found.unfit("heft", [ONE]), found.fitting("heft")) == (2, 0, 0.5)
    assert np.isnan(found.means["nobody"]).all()
    assert found.placed("metis") == {ONE, OTHER}
    assert found.placed("heft", 1) == {ONE}
    assert found.apart(lambda problem: problem[0]) == {"a": [ONE], "b": [OTHER, THIRD]}
    assert found.num_seeds == 2


def test_rows_and_columns_can_be_given() -> None:
    found = Frame.of([("heft", record(OTHER, "heft", 2.0))], problems=[ONE, OTHER], seeds=range(2))
    np.testing.assert_array_equal(found.table("heft"), [[np.nan, 2.0], [np.nan, np.nan]])
    assert Frame.of([]).best().tolist() == []
    assert Frame.of([]).against("heft", "metis").problems == 0
