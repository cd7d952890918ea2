"""GDP: a GraphSAGE and Transformer policy places all ops at once (Zhou et al. 2019)."""

from __future__ import annotations

from placers.learned.gdp.policy import new_gdp
from placers.learned.learned_placer import LearnedPlacer

TRAINER = "ppo"
new_policy = new_gdp


def build(
    *, checkpoint: str = "", network: str = "graphsage_transformer", samples: int = 0, untrained: bool = False
) -> LearnedPlacer:
    """GDP with the policy in a checkpoint folder; an untrained one, over a network, only if that is asked for."""
    return LearnedPlacer.of("gdp", new_gdp, network, checkpoint=checkpoint, samples=samples, untrained=untrained)
