"""Sequential decoder: a learned placer that places unit by unit, looking at every device each time. Ours, no paper's.

GraphSAGE and a Transformer layer encode the problem, as in GDP (Zhou et al. 2019); the devices are then chosen one
after another, in HEFT's order (Topcuoglu et al. 2002) unless the policy has another, as a list scheduler with a
learned rule.
"""

from __future__ import annotations

from placers.learned.learned_placer import LearnedPlacer
from placers.learned.sequential.policy import NAME, new_sequential

TRAINER = "ppo"
new_policy = new_sequential


def build(*, checkpoint: str = "", network: str = NAME, samples: int = 0, untrained: bool = False) -> LearnedPlacer:
    """The decoder with the policy in a checkpoint folder; an untrained one, of a shape, only if that is asked for."""
    return LearnedPlacer.of(NAME, new_sequential, network, checkpoint=checkpoint, samples=samples, untrained=untrained)
