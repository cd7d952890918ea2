"""ColocRL: a sequence-to-sequence LSTM places op groups one by one (Mirhoseini et al. 2017)."""

from __future__ import annotations

from placers.learned.colocrl.policy import NAME, new_colocrl
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.recurrent import HIDDEN

TRAINER = "ppo"
new_policy = new_colocrl


def build(*, checkpoint: str = "", samples: int = 0, hidden: int = HIDDEN, untrained: bool = False) -> LearnedPlacer:
    """ColocRL with the policy in a checkpoint folder, for one number of devices; an untrained one only if asked for."""
    return LearnedPlacer.of(
        NAME, new_colocrl, f"{NAME}:hidden={hidden}", checkpoint=checkpoint, samples=samples, untrained=untrained,
        per_cluster=True, hidden=hidden if hidden != HIDDEN else 0,
    )  # fmt: skip
