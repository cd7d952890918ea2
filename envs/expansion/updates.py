"""Updates: how often weights are updated, and which micro-batches and replicas each update is for.

schedule                     update 0                        update 1
of the step                  all micro-batches               -
of each micro-batch          micro-batch 0                   micro-batch 1
and 3 replicas take turns    0, 1, 2, one on each replica    3, 4, 5
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.expansion.layout import Layout
from graphs.op_graph import Ints


@dataclass(frozen=True, eq=False)
class Updates:
    """The updates of weights in a step; each is run by all replicas of a stage."""

    layout: Layout
    of_step: bool
    """Whether there is one for all micro-batches."""

    @classmethod
    def scheduled(cls, layout: Layout) -> Updates:
        """As often as the schedule says."""
        return cls(layout, layout.plan.schedule.update == "step")

    @property
    def most(self) -> int:
        """The most that a stage may have."""
        return 1 if self.of_step else self.layout.micro_batches

    @cached_property
    def replicas(self) -> Ints:
        """(stages,) how many there are."""
        return np.array([len(devices) for devices in self.layout.stage_devices], np.int64)

    @cached_property
    def micro_batches(self) -> Ints:
        """(stages,) how many each update is for, unless it is for all."""
        takes_turns = self.layout.plan.schedule.sharing == "turns"
        return self.replicas if takes_turns else np.ones_like(self.replicas)

    @cached_property
    def of(self) -> Ints:
        """(copies,) the update that the gradient of each is for, or that it is part of."""
        layout = self.layout
        if self.of_step:
            return np.zeros(len(layout.origin), np.int64)
        return layout.micro_batch // self.micro_batches[layout.stage[layout.origin]]

    def count(self, stage: int) -> int:
        """How many updates a stage has; replicas that take turns divide the micro-batches evenly (`Plan.check`)."""
        return 1 if self.of_step else self.layout.micro_batches // int(self.micro_batches[stage])

    def micro_batch(self, stage: Ints, update: Ints, replica: Ints) -> Ints:
        """(n,) the micro-batch of which replicas bring the gradients into updates, or -1 for all; (n,) each."""
        each = self.micro_batches[stage]
        return np.where(self.of_step, -1, update * each + np.where(each > 1, replica, 0))

    def counterpart(self, stage: Ints, update: Ints, other: Ints) -> Ints:
        """(n,) which update of other stages has the last micro-batch of an update of a stage; (n,) each."""
        if self.of_step:
            return update
        return np.asarray(((update + 1) * self.micro_batches[stage] - 1) // self.micro_batches[other])
