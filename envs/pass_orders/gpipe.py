"""GPipe: all forward passes, then all backward passes (Huang et al. 2019)."""

from dataclasses import dataclass

from envs.pass_orders import Pass, Passes, PassKind, Ranks
from graphs.foundation.by_name import Named


@dataclass(frozen=True)
class GPipeOrder(Named):
    """Forward passes in the order of the micro-batches, then backward passes in the same order."""

    def passes(self, ranks: Ranks, micro_batches: int) -> Passes:
        """Of each rank: the forward passes of its first stage, of its next, ..., then the backward passes."""
        every = range(micro_batches)
        return tuple(
            tuple(Pass(stage, PassKind.FORWARD, m) for stage in stages for m in every)
            + tuple(Pass(stage, PassKind.BACKWARD, m) for stage in reversed(stages) for m in every)
            for stages in ranks
        )


build = GPipeOrder
