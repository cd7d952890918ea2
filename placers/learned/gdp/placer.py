"""GDP: a GraphSAGE and Transformer policy places all ops at once (Zhou et al. 2019)."""

from functools import partial

from placers.learned.gdp.policy import OneShotPolicy
from placers.learned.learned_placer import LearnedPlacer

TRAINER = "ppo"
new_policy = OneShotPolicy.new
build = partial(LearnedPlacer.with_network, OneShotPolicy, network="graphsage_transformer")
