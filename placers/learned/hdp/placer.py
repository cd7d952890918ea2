"""HDP: a grouper and a sequence-to-sequence LSTM, trained together (Mirhoseini et al. 2018)."""

from functools import partial

from placers.learned.hdp.policy import HdpPolicy
from placers.learned.recurrent import recurrent_placer

TRAINER = "ppo"
new_policy = HdpPolicy.new
build = partial(recurrent_placer, HdpPolicy)
