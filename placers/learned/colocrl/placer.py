"""ColocRL: a sequence-to-sequence LSTM places op groups one by one (Mirhoseini et al. 2017)."""

from functools import partial

from placers.learned.colocrl.policy import ColocRlPolicy
from placers.learned.recurrent import recurrent_placer

TRAINER = "ppo"
new_policy = ColocRlPolicy.new
build = partial(recurrent_placer, ColocRlPolicy)
