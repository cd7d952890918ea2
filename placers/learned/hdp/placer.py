"""HDP: a grouper and a sequence-to-sequence LSTM, trained together (Mirhoseini et al. 2018)."""

from __future__ import annotations

from placers.learned.hdp.policy import NAME, new_hdp
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.recurrent import HIDDEN

TRAINER = "ppo"
new_policy = new_hdp


def build(*, checkpoint: str = "", samples: int = 0, hidden: int = HIDDEN, untrained: bool = False) -> LearnedPlacer:
    """HDP with the policy in a checkpoint folder, for one number of devices; an untrained one only if asked for."""
    return LearnedPlacer.of(
        NAME, new_hdp, f"{NAME}:hidden={hidden}", checkpoint=checkpoint, samples=samples, untrained=untrained,
        per_cluster=True, hidden=hidden if hidden != HIDDEN else 0,
    )  # fmt: skip
