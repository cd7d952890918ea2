"""Placeto: a policy visits the ops and moves one at a time, seeing where all are (Addanki et al. 2019)."""

from __future__ import annotations

from placers.learned.learned_placer import LearnedPlacer
from placers.learned.placeto.policy import NAME, new_placeto

TRAINER = "reinforce"
new_policy = new_placeto
UNTRAINED = "placeto:width=8,rounds=4,mean=true,explore=0.05"  # sums make an untrained policy certain of one device


def build(
    *, checkpoint: str = "", network: str = UNTRAINED, samples: int = 0, untrained: bool = False
) -> LearnedPlacer:
    """Placeto with the policy in a checkpoint folder; an untrained one, of a shape, only if that is asked for."""
    return LearnedPlacer.of(NAME, new_placeto, network, checkpoint=checkpoint, samples=samples, untrained=untrained)
