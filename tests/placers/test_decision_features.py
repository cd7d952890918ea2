"""What a policy of whole plans sees, by hand: three layers, two fast devices close to each other and a slow one apart.

layers     work .2 .4 .4   launches .1 0 .1   held 1 1 2 bytes   kept 4 4 8 bytes   sent on 2, 6 bytes
devices    speed 1 1 .5    memory 8 8 4 bytes
links      0 - 1: 1/2 s and 1/4 s/byte        to 2: 1 s and 3/4 s/byte
"""

from __future__ import annotations

from math import log
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from envs.pipelines.construction import Actions, Construction, Decision
from placers.learned.whole_plans.chain_view import MICRO_BATCHES, PASS_ORDERS
from placers.learned.whole_plans.decision_features import FAR, ProblemContext
from placers.learned.whole_plans.outlook import HOPELESS

ACTIONS = Actions(MICRO_BATCHES, PASS_ORDERS, 3, 3)
TWO = MICRO_BATCHES.index(2)
FIRST_ORDER = [1.0] + [0.0] * (len(PASS_ORDERS) - 1)


def context() -> ProblemContext:
    """With two micro-batches one device takes 1, two replicas 0.5 and two stages 0.8; nothing else is possible."""
    near, far = (0.5, 0.25), (1.0, 0.75)
    latency, per_byte = (np.array([[0, n, f], [n, 0, f], [f, f, 0]]) for n, f in zip(near, far, strict=True))
    view: Any = SimpleNamespace(
        row=np.arange(3),
        used=np.ones(3, np.bool_),
        alike=np.array([0, 0, 1]),
        speed=np.array([1.0, 1.0, 0.5]),
        memory=np.array([8.0, 8.0, 4.0]),
        work=np.array([0.0, 0.2, 0.6, 1.0]),
        fixed=np.array([0.0, 0.1, 0.1, 0.2]),
        held=np.array([0.0, 1.0, 2.0, 4.0]),
        kept=np.array([0.0, 4.0, 8.0, 16.0]),
        weights=np.array([0.0, 1.0, 2.0, 4.0]),
        crossing=np.array([0.0, 2.0, 6.0, 0.0]),
        latency=latency,
        per_byte=per_byte,
        problem=SimpleNamespace(graph=SimpleNamespace(samples=16, is_training=True)),
    )
    seconds = np.full((len(MICRO_BATCHES), 4, 4), HOPELESS)
    seconds[TWO, 1, 1], seconds[TWO, 2, 1], seconds[TWO, 1, 2] = 1.0, 0.5, 0.8
    outlook: Any = SimpleNamespace(seconds=seconds, best=0.5, of_replicas=lambda number: seconds[number].min(axis=1))
    return ProblemContext(view, outlook)


def begun(*further: int) -> Construction:
    """Two micro-batches in the first order, and what is decided then."""
    construction = Construction(ACTIONS, 3, 3, samples=16)
    for action in (TWO, ACTIONS.first_order, *further):
        construction.take(action)
    return construction


FIRST = ACTIONS.first_device, ACTIONS.enough
SECOND = *FIRST, ACTIONS.first_end, ACTIONS.keep  # after a first stage of one layer on device 0


def test_the_problem_in_numbers() -> None:
    links = [log(4 / 4), log(4 * 3 / 4)]  # the weights over the fastest and the slowest; the median output is as large
    expected = [
        log(3) - 1.5,
        log(3) - 3,
        log(16, 2) / 4 - 1.5,
        1.0,
        0.5,
        2.5 / 3,
        log(20 / 4),
        log(4 / 4),
        log(20 / 20),
        *links,
        *links,
        log(1.0),
        log(0.2),
        log(0.4),
        log(0.5 / 0.5),
        log(0.8 / 0.5),
    ]
    assert context().context == pytest.approx(np.array(expected))


def test_micro_batches_are_seen_with_what_is_likely_of_them() -> None:
    one, two = context()._micro_batch_rows(Construction(ACTIONS, 3, 3, samples=16), np.array([0, TWO]))
    assert one == pytest.approx(np.array([-1, FAR, FAR, FAR, FAR, 0]))
    assert two == pytest.approx(np.array([TWO / 3 - 1, 0, 0, log(1.6), log(1.6), 1 / 4]))


def test_ends_of_a_stage_are_seen_with_its_time_its_memory_and_the_rest() -> None:
    """Of stages of one, two and all three layers on device 0, with devices 1 and 2 left."""
    construction = begun(*FIRST)
    assert construction.decision == Decision.END
    rows = context()._end_rows(construction, ACTIONS.first_end + np.arange(3))
    once, rest, sending = (0.2, 0.4, 0.7), (1.0 / 3, 0.6 / 3, 0.0), (0.75, 1.25, 0.0)
    worst = (0.75, 1.25, 0.7)
    total = tuple(sum(each) for each in zip(worst, once, rest, sending, sending, strict=True))
    for number, row in enumerate(rows):
        last, held, kept = number == 2, (1, 2, 4)[number], (2, 4, 8)[number]
        expected = [
            FAR if last else log(once[number] / rest[number]),
            log(worst[number] / 0.7),
            log(total[number] / total[2]),
            last,
            2 / 3 * last,
            -FAR if last else log(sending[number] / once[number]),
            log((held + kept) / 8),
            log((held + 2 * kept) / 8),
            0 if last else log((4 - held) / 12),
            (0, log(6 / 2), 0)[number],
            (number + 1) / 3,
            log((0.2, 0.6, 1.0)[number] * 2.5),
            0,
            log(total[number] / total[2]),
            last,
            last,
        ]
        assert row == pytest.approx(np.array(expected, float)), number


def test_devices_are_seen_beside_the_stage_before() -> None:
    rows = context()._device_rows(begun(*SECOND), ACTIONS.first_device + np.array([1, 2]))
    alone = log(2) - 1  # of its kind among those that are free
    near = [1, 0, 0, 0, -1, 0, 1.0, 0, 0, log(0.5 + 0.25), 0, 0, 0, alone, log(3 / 8), 1]
    far = [1, 0, 0, 0, -1, 0, 0.5, log(4 / 8), -0.5, log(1 + 0.75), 1, 0, 0, alone, log(3 / 4), 0.5]
    assert rows == pytest.approx(np.array([near, far]))


def test_devices_are_seen_beside_those_of_their_stage_and_so_is_their_end() -> None:
    """Replicas sum up four bytes of weights; one, in two stages, takes 0.8 and two take 0.5."""
    construction = begun(*SECOND, ACTIONS.first_device + 1)
    rows = context()._device_rows(construction, np.array([ACTIONS.first_device + 2, ACTIONS.enough]))
    several = [log(2) - 1, log(0.8 / 0.5)]
    another = [1, 0, 0, 0, *several, 0.5, log(4 / 8), -0.5, log(1.75), 1, log(1 + 3), 1, log(2) - 1, log(3 / 4), 1]
    enough = [0, 1, 0, log(0.8 / 0.5), *several, *[0] * 10]
    assert rows == pytest.approx(np.array([another, enough]))


def test_what_is_decided_is_seen() -> None:
    """One stage of 0.2 seconds a micro-batch; 0.8 are left, for devices 1 and 2."""
    seen = context()._progress(begun(*SECOND, ACTIONS.first_device + 1))
    expected = [1 / 3 - 1, *FIRST_ORDER, 1 / 4, 0.8, 0.5 / 2.5, 1 / 2.5, 0, log(0.2 * 2 * 1.5 / 0.8), 0]
    assert seen == pytest.approx(np.array(expected))


def test_keeping_outputs_is_seen_with_two_micro_batches_in_flight_and_computing_again_with_one() -> None:
    """A stage of layer 0, with one byte of weights and two of each micro-batch, on a device with eight."""
    rows = context()._recompute_rows(begun(*SECOND[:-1]), np.array([ACTIONS.keep, ACTIONS.recompute]))
    kept, again = [0, 0, log(5 / 8), 0, 0], [1, log(5 / 8), 0, log(3 / 8), 0]
    assert rows == pytest.approx(np.array([kept, again]))


def test_orders_are_seen_by_name_with_what_one_stage_takes() -> None:
    construction = Construction(ACTIONS, 3, 3, samples=16)
    construction.take(TWO)
    rows = context()._order_rows(construction, ACTIONS.first_order + np.arange(2))
    assert rows[:, :-1].tolist() == np.eye(len(PASS_ORDERS))[:2].tolist()
    assert rows[:, -1] == pytest.approx(np.array([log(0.5 / 0.5)] * 2))
