"""Sequential decoder: a learned placer that places unit by unit, looking at every device each time. Ours, no paper's.

GraphSAGE and a Transformer layer encode the problem, as in GDP (Zhou et al. 2019); the devices are then chosen one
after another, in HEFT's order (Topcuoglu et al. 2002) unless the policy has another, as a list scheduler with a
learned rule.
"""

from functools import partial

from placers.learned.learned_placer import LearnedPlacer
from placers.learned.sequential.policy import SequentialPolicy

TRAINER = "ppo"
new_policy = SequentialPolicy.new
build = partial(LearnedPlacer.with_network, SequentialPolicy, network="sequential")
