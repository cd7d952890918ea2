"""HDP: a grouper and a sequence-to-sequence LSTM, trained together (Mirhoseini et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from placers.learned.hdp.policy import NAME, new_hdp
from placers.learned.recurrent_placer import HIDDEN, RecurrentPlacer

LEARNED = True  # means nothing before it is trained


@dataclass(frozen=True, eq=False)
class Hdp(RecurrentPlacer):
    """An HDP policy as a placer."""

    kind = NAME
    new = staticmethod(new_hdp)

    name: str = NAME


def build(*, checkpoint: str = "", samples: int = 0, hidden: int = HIDDEN, untrained: bool = False) -> Hdp:
    """HDP with the policy in a checkpoint folder, for one number of devices; an untrained one only if asked for."""
    return Hdp.built(checkpoint, samples, hidden, untrained)
