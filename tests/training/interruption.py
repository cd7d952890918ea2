"""Trainings that stop, by Ctrl-C in the middle of an update as users stop them, and that go on from a state."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from training.learning.ppo import PpoMetrics, PpoTrainer


@contextmanager
def stopped_after(update: int, updates: int) -> Iterator[None]:
    """What trains inside by PPO is stopped during that one of its updates, and says so after it."""
    own = PpoTrainer.update

    def interrupted(trainer: PpoTrainer[Any, Any, Any]) -> PpoMetrics:
        if trainer.updates == update - 1:
            signal.raise_signal(signal.SIGINT)
        return own(trainer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PpoTrainer, "update", interrupted)
        with pytest.raises(KeyboardInterrupt, match=f"stopped after update {update} of {updates}"):
            yield


def updated_half_way(first: PpoTrainer[Any, Any, Any], second: PpoTrainer[Any, Any, Any], updates: int) -> None:
    """The first trainer makes half of the updates, and the second, from the state that this leaves, the others."""
    for _ in range(updates // 2):
        first.update()
    second.policy.load_state_dict(first.policy.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.restore(*first.state())
    for _ in range(updates - updates // 2):
        second.update()
