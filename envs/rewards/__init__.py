"""Rewards: what a decider is given after each step of an environment. An extension folder: one file, one reward.

The `build` of each file returns a function (before, after, last, penalty) -> float: of the outcomes of the placement
before and after the step, whether the step is the episode's last, and what memory above a threshold costs. A file whose
reward is 0 before the last step says `LAST_ONLY = True`; then no placement before that has to be simulated.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

from envs.simulation.simulator import Outcome
from graphs.cluster import GIB
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.user_code import user_code

FOLDER = "envs.rewards"
PENALTY_PER_GB = 2.0  # seconds; Placeto, the authors' code (a GB is taken for a GiB)
LONGEST_SECONDS = 10.0  # Placeto, the authors' code


@dataclass(frozen=True)
class Penalty:
    """What memory above a threshold costs in Placeto's rewards, as in the authors' code unless it is given."""

    memory_bytes: float  # threshold M, of the fullest device
    per_gb: float = PENALTY_PER_GB  # seconds for each GiB above it
    longest_seconds: float = LONGEST_SECONDS  # penalised seconds are clipped there


RewardFunction = Callable[[Outcome, Outcome, bool, Penalty], float]


def penalised_seconds(outcome: Outcome, penalty: Penalty) -> float:
    """Placeto's rho = min(step seconds + 2 max(0, peak GB - M), 10), with the fullest device's peak."""
    excess = max(0.0, float(outcome.peak_bytes.max()) - penalty.memory_bytes)
    return min(outcome.step_seconds + penalty.per_gb * excess / GIB, penalty.longest_seconds)


def load_reward(spec: str) -> RewardFunction:
    """The reward that a spec names, such as "improvement" or "my.py:build". Raises InputError for an unknown one."""
    function: RewardFunction = by_name.build(FOLDER, spec)
    return function


@dataclass(frozen=True)
class CheckedReward:
    """A reward that is not placelab's; another process, which may lack its file's module, builds it again."""

    spec: str
    built: RewardFunction

    def __call__(self, before: Outcome, after: Outcome, last: bool, penalty: Penalty) -> float:
        """What it pays. Raises InputError for what is no finite number, UserCodeError for what a user's code raises."""
        mine = by_name.own(self.spec)
        with user_code(mine.file) if mine else nullcontext():
            paid = self.built(before, after, last, penalty)
        try:
            value = float(paid)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise InputError(f"reward {self.spec!r} paid {paid!r}; expected a finite number")
        return value

    def __reduce__(self) -> tuple[Callable[[str], RewardFunction], tuple[str]]:
        return load_reward, (self.spec,)


@cache
def pays_at_the_end(spec: str) -> bool:
    """Whether a reward says that it is 0 before the last step of an episode; a user's own file never does."""
    return by_name.own(spec) is None and bool(by_name.constants(FOLDER, spec.partition(":")[0]).get("LAST_ONLY"))


def checked(spec: str, built: Any) -> RewardFunction:
    """What `build` of a user's file or of another package returned, as a reward whose values are checked.

    Raises InputError for what is no function; the reward raises it for values that are no finite numbers.
    """
    if not callable(built):
        raise InputError(
            f"{spec!r}: expected a function (before, after, last, penalty) -> float, got {type(built).__name__}"
        )
    return CheckedReward(spec, built)
