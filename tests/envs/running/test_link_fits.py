"""Lines through samples with known answers, and clusters that predict what was measured."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.running.measuring.link_fits import ALONE, WHILE_COMPUTED, WHILE_WAITED, Line, calibrated, fitted
from envs.simulation.simulator import Simulator
from graphs.problem import Problem
from tests.oracle.toys import toy_cluster, toy_graph

SIZES = (256, 4096, 65536, 2**19, 2**22)
SECONDS = st.floats(1e-6, 1e-3)
PER_BYTE = st.floats(1e-11, 1e-8)
NO_MESSAGES = [Line(0.0, 0.0, 0.0)] * 2


@given(SECONDS, PER_BYTE)
def test_a_line_is_found_through_samples_that_lie_on_it(fixed: float, per_byte: float) -> None:
    samples = np.tile(fixed + per_byte * np.array(SIZES)[:, None], 8)
    found = fitted(SIZES, samples, WHILE_WAITED)
    assert found.fixed == pytest.approx(fixed, rel=1e-6)
    assert found.per_byte == pytest.approx(per_byte, rel=1e-6)
    assert found.spread == pytest.approx(0, abs=1e-9)


@given(SECONDS, PER_BYTE, st.integers(0, 9))
def test_some_samples_that_were_disturbed_move_it_little(fixed: float, per_byte: float, seed: int) -> None:
    """Of 40 samples ten took up to a hundred times as long; the others vary by a per cent."""
    rng = np.random.default_rng(seed)
    samples = (fixed + per_byte * np.array(SIZES)[:, None]) * rng.uniform(1, 1.01, (len(SIZES), 40))
    samples[:, :10] *= rng.uniform(2, 100, (len(SIZES), 10))
    found = fitted(SIZES, rng.permuted(samples, axis=1), WHILE_WAITED)
    assert found.seconds(0) == pytest.approx(fixed, rel=0.05)
    assert found.seconds(2**22) == pytest.approx(fixed + per_byte * 2**22, rel=0.05)


def test_differences_are_disturbed_in_both_directions() -> None:
    truth = 50e-6 + 3e-10 * np.array(SIZES)[:, None]
    noise = np.random.default_rng(0).normal(0, 20e-6, (len(SIZES), 101))
    found = fitted(SIZES, truth + noise, WHILE_COMPUTED)
    assert found.fixed == pytest.approx(50e-6, abs=10e-6)
    assert found.per_byte == pytest.approx(3e-10, rel=0.05)


def test_nothing_is_negative_and_no_size_costs_less_than_a_smaller_one() -> None:
    falling = np.array([[5e-3], [4e-3], [3e-3], [2e-3], [1e-3]])
    assert fitted(SIZES, falling, 50.0).per_byte == 0
    none = fitted(SIZES, np.full((5, 3), -1e-6), 50.0)
    assert (none.fixed, none.per_byte) == (0, 0)


def test_the_same_samples_give_the_same_line() -> None:
    samples = np.random.default_rng(1).random((5, 7))
    assert fitted(SIZES, samples, 25.0) == fitted(SIZES, samples, 25.0)


@given(SECONDS, PER_BYTE, st.floats(0, 0.9), st.floats(0, 0.8))
def test_the_simulator_says_of_a_message_between_idle_devices_what_was_measured(
    fixed: float, per_byte: float, share: float, share_of_bytes: float
) -> None:
    messages = [Line(share * fixed, share_of_bytes * per_byte, 0.1), Line(0.0, 0.0, 0.1)]
    cluster = calibrated(toy_cluster(2), {(0, 1): Line(fixed, per_byte, 0.1)}, messages[::-1])
    assert cluster.devices[1].message_seconds == pytest.approx(share * fixed, rel=1e-3)
    for source, target in ((0, 1), (1, 0)):
        graph = toy_graph([1, 1], [(0, 1)], output_bytes=[1e6, 0])
        timeline = Simulator(Problem(graph, cluster)).timeline([source, target])
        assert timeline.start[1] - timeline.finish[0] == pytest.approx(fixed + 1e6 * per_byte, rel=2e-3)


def test_a_link_keeps_a_part_of_what_a_message_takes_where_processors_take_it_all() -> None:
    messages = [Line(2e-4, 2e-9, 0.0)] * 2
    cluster = calibrated(toy_cluster(2), {(0, 1): Line(1e-4, 1e-9, 0.0)}, messages)
    assert cluster.latency[0, 1] == 0
    assert 1 / cluster.bandwidth[1, 0] == pytest.approx(ALONE * 1e-9)


def test_what_was_not_measured_stays_as_it_was() -> None:
    given = toy_cluster(3, launch=0.25, latency=2.0, shared_out=True)
    lines = [Line(0.5, 0.0, 0.0)] * 3
    found = calibrated(given, {(0, 2): Line(3.0, 2.0, 0.0)}, lines)
    assert (found.latency[0, 1], found.latency[0, 2], found.latency[2, 0]) == (2.0, 2.5, 2.5)
    assert (found.channel == given.channel).all()
    expected = [replace(device, message_seconds=0.5) for device in given.devices]
    assert list(found.devices) == expected
    runner = calibrated(given, {}, lines, [0.1, 0.2, 0.3])
    assert [device.runner_seconds for device in runner.devices] == [0.1, 0.2, 0.3]
    assert [device.launch_seconds for device in runner.devices] == [0.25] * 3


def test_a_link_that_takes_no_time_has_a_finite_bandwidth() -> None:
    cluster = calibrated(toy_cluster(2), {(0, 1): Line(0.0, 0.0, 0.0)}, NO_MESSAGES)
    assert np.isfinite(cluster.bandwidth[0, 1])
