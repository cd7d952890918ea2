"""Settings of a training of a policy of whole plans; all of it is ours."""

from __future__ import annotations

import msgspec

from graphs.foundation.errors import InputError
from placers.learned.settings import LearningRate, Limit, Positive, Weight
from training.whole_plans.random_chains import KINDS, check_kind


class WholePlans(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run, but for its seed. Raises InputError for kinds that there are not, and if none is left to train on."""

    network: str = "whole_plans"
    held_out: tuple[str, ...] = ("pyramid",)  # kinds of chains, by which the weights are chosen that are kept
    problems: Positive = 200  # random ones for which a good pipeline is searched; those of kinds held out validate
    simulations: Positive = 48  # of each search
    imitation: Positive = 200  # updates by labels alone
    batch: Positive = 384  # decisions of labels in each of these, at least
    updates: Positive = 60  # by REINFORCE, after that
    drawn: Positive = 8  # problems in each of these, half of them with labels
    samples: Positive = 8  # pipelines of each problem
    label_weight: Weight = 0.3  # of the decisions of labels, next to REINFORCE
    learning_rate: LearningRate = 2e-3  # of Adam, at the start
    final_learning_rate: LearningRate = 1e-4  # of imitation
    reinforce_rate: LearningRate = 3e-4  # of REINFORCE
    weight_decay: Weight = 0.0  # of AdamW
    entropy: Weight = 0.003  # bonus per nat and decision
    gradient_norm: Limit = 1.0
    every: Positive = 20  # updates, until weights are validated

    def __post_init__(self) -> None:
        for kind in self.held_out:
            check_kind(kind)
        if not self.held_out:
            raise InputError("held_out is empty; name kinds of chains to validate on")
        if not {*KINDS} - {*self.held_out}:
            raise InputError("all kinds of chains are held out; leave some to train on")
