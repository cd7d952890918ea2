"""The frame of the studies: means and wins on made-up records; a plan that does not fit has no ratio."""

import math

import numpy as np
import pytest

from evaluation.records.record import Failure, Record
from evaluation.studies.frame import Frame
from tests.evaluation.some_records import record

ONE, OTHER, THIRD = "a:x@two", "b:x@two", "b:y@two"


def frame(*records: Record | Failure) -> Frame:
    return Frame.of(((each.placer, each) for each in records), best_of={"cheap": ("heft", "metis")})


def test_an_interval_is_over_problems() -> None:
    seconds = {"heft": (1.0, 4.0), "metis": (2.0, 2.0)}  # of two seeds
    found = frame(
        *(
            record(f"{graph}:x@two", placer, each, seed=seed)
            for graph in "abcde" for placer, several in seconds.items() for seed, each in enumerate(several)
        )
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
    assert (found.unfit("heft"), found.unfit("heft", [ONE])) == (2, 0)
    assert np.isnan(found.means["nobody"]).all()
    assert found.apart(lambda problem: problem[0]) == {"a": [ONE], "b": [OTHER, THIRD]}
    assert found.num_seeds == 2


def test_an_empty_frame_has_no_problems() -> None:
    assert Frame.of([]).against("heft", "metis").problems == 0
