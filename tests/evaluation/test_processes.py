"""Work in several processes: each piece comes when it is done, and all end when one fails."""

import time
from contextlib import closing

import pytest

from evaluation.studies.processes import in_processes

LONG = 600.0  # seconds, which no test waits for


def test_every_work_is_done_and_comes_once() -> None:
    assert sorted(in_processes(time.sleep, [0.2, 0.0, 0.1], 2)) == [0.0, 0.1, 0.2]


def test_one_that_fails_ends_all() -> None:
    found = in_processes(time.sleep, [LONG, 0.0, -1.0], 2)
    assert next(found) == 0.0
    with pytest.raises(ValueError, match="must be non-negative"):
        next(found)


def test_all_end_when_nobody_waits_for_them() -> None:
    with closing(in_processes(time.sleep, [0.0, LONG], 2)) as found:
        assert next(found) == 0.0
