"""What a decider is told."""

from itertools import pairwise

import numpy as np
import pytest

from envs.rewards import Penalty, load_reward, penalised_seconds
from envs.simulation.simulator import Outcome
from graphs.cluster import GIB
from graphs.foundation.errors import InputError

PENALTY = Penalty(8 * GIB)


def outcome(seconds: float, peak_gib: float = 0.0, fits: bool = True) -> Outcome:
    return Outcome(seconds, np.array([0.0, peak_gib * GIB]), fits)


def test_memory_above_the_threshold_costs_two_seconds_a_gib_up_to_ten_in_all() -> None:
    assert penalised_seconds(outcome(1.0, 8.0), PENALTY) == 1.0
    assert penalised_seconds(outcome(1.0, 9.5), PENALTY) == 4.0
    assert penalised_seconds(outcome(1.0, 20.0), PENALTY) == 10.0


def test_improvements_are_paid_at_once_and_add_up() -> None:
    reward = load_reward("improvement")
    trail = [outcome(5.0), outcome(3.0, 9.0), outcome(4.0), outcome(1.5)]
    steps = [reward(before, after, False, PENALTY) for before, after in pairwise(trail)]
    assert steps == [0.0, 1.0, 2.5]
    assert sum(steps) == 5.0 - 1.5


def test_the_terminal_reward_comes_last() -> None:
    reward = load_reward("terminal")
    assert reward(outcome(5.0), outcome(3.0), False, PENALTY) == 0.0
    assert reward(outcome(5.0), outcome(3.0, 9.0), True, PENALTY) == -5.0


def test_gdp_takes_the_root_and_refuses_what_does_not_fit() -> None:
    reward = load_reward("square_root")
    assert reward(outcome(9.0), outcome(4.0), True, PENALTY) == -2.0
    assert reward(outcome(9.0), outcome(4.0, fits=False), True, PENALTY) == -10.0
    assert reward(outcome(9.0), outcome(4.0), False, PENALTY) == 0.0


def test_speedups_add_up_to_that_of_the_episode_whatever_the_scale() -> None:
    reward = load_reward("speedup")
    trail = [8.0, 16.0, 2.0]
    for scale in (1.0, 1e-6):
        steps = [reward(outcome(a * scale), outcome(b * scale), False, PENALTY) for a, b in pairwise(trail)]
        assert steps == pytest.approx([-np.log(2), np.log(8)])
    assert reward(outcome(9.0), outcome(3.0), True, PENALTY) == pytest.approx(np.log(3))
    assert reward(outcome(9.0), outcome(3.0, fits=False), True, PENALTY) == -10.0
    assert reward(outcome(0.0), outcome(0.0), True, PENALTY) == 0.0


def test_an_unknown_reward_gets_the_list() -> None:
    with pytest.raises(
        InputError, match=r"did you mean 'terminal'.*there are: improvement, speedup, square_root, terminal"
    ):
        load_reward("terminals")
