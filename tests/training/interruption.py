"""A training that is stopped by Ctrl-C in the middle of an update, as users stop it."""

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
