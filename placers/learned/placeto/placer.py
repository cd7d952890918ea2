"""Placeto: a policy visits the ops and moves one at a time, seeing where all are (Addanki et al. 2019)."""

from functools import partial

from placers.learned.learned_placer import LearnedPlacer
from placers.learned.placeto.policy import PlacetoPolicy

TRAINER = "reinforce"
UNTRAINED = "placeto:width=8,rounds=4,mean=true,explore=0.05"  # sums make an untrained policy certain of one device
new_policy = PlacetoPolicy.new
build = partial(LearnedPlacer.with_network, PlacetoPolicy, network=UNTRAINED)
