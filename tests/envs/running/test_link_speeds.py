"""Jobs that measure links run in processes, and say as much as was asked for."""

from collections.abc import Callable

import numpy as np
import pytest

from envs.running.measuring.link_speeds import MeasurePair, machine, reference_seconds
from envs.running.processes import Workers


@pytest.fixture(scope="module")
def workers(processes: Callable[[int], Workers]) -> Workers:
    return processes(3)


def test_two_of_the_processes_measure_their_link(workers: Workers) -> None:
    sizes = (64, 2**20)
    idle, lower, higher = workers.run(MeasurePair(1, 2, sizes, samples=2))
    assert idle is None
    for end in (lower, higher):
        assert end is not None
        assert end.one_way.shape == (2, 8)
        assert (end.one_way > 0).all()
        assert end.as_sender.shape == end.as_receiver.shape == (2, 2)
        assert np.isfinite([end.as_sender, end.as_receiver]).all()
    again = workers.run(MeasurePair(0, 2, (64,), samples=1))
    assert again[1] is None
    assert again[0] is not None


def test_each_process_says_how_fast_it_is(workers: Workers) -> None:
    for wall, thread in workers.run(reference_seconds):
        assert 0 < thread < 1.01 * wall
    found = workers.run(machine)
    assert [each.threads for each in found] == [1, 1, 1]
    assert len({each.name for each in found}) == 1
