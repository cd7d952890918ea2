"""ColocRL: a sequence-to-sequence LSTM places op groups one by one (Mirhoseini et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass

from placers.learned.colocrl.policy import NAME, new_colocrl
from placers.learned.recurrent_placer import HIDDEN, RecurrentPlacer

LEARNED = True  # means nothing before it is trained


@dataclass(frozen=True, eq=False)
class ColocRl(RecurrentPlacer):
    """A ColocRL policy as a placer."""

    kind = NAME
    new = staticmethod(new_colocrl)

    name: str = NAME


def build(*, checkpoint: str = "", samples: int = 0, hidden: int = HIDDEN, untrained: bool = False) -> ColocRl:
    """ColocRL with the policy in a checkpoint folder, for one number of devices; an untrained one only if asked for."""
    return ColocRl.built(checkpoint, samples, hidden, untrained)
