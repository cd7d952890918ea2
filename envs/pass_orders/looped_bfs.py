"""Looped breadth first: all micro-batches through one stage of a device, then through its next (Lamy-Poirier, 2023).

GPipe with several stages on each device; its gradients of a stage come together, so that they can be summed up early.
"""

from dataclasses import dataclass

from envs.pass_orders import Pass, Passes, PassKind, Ranks
from envs.pass_orders._sequence import check_interleaved
from graphs.foundation.by_name import Named


@dataclass(frozen=True)
class LoopedBreadthFirst(Named):
    """Forward passes stage by stage, then backward passes in exactly the opposite order, as in PyTorch."""

    def passes(self, ranks: Ranks, micro_batches: int) -> Passes:
        """Of each rank its passes. Raises InputError unless the stages of rank r of P are r, P + r, 2 P + r, ..."""
        check_interleaved(ranks, "looped_bfs")
        forward = [[(stage, m) for stage in stages for m in range(micro_batches)] for stages in ranks]
        return tuple(
            tuple(Pass(stage, PassKind.FORWARD, m) for stage, m in all_of_it)
            + tuple(Pass(stage, PassKind.BACKWARD, m) for stage, m in reversed(all_of_it))
            for all_of_it in forward
        )


build = LoopedBreadthFirst
