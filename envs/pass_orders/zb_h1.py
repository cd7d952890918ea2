"""Zero bubble, ZB-H1: 1F1B whose weight gradients fill the bubble, in 1F1B's memory (Qi et al., 2023).

With F, I and W seconds of a forward pass and of the two gradients, the bubble of 1F1B on P devices, (P - 1)(F + I + W),
becomes (P - 1)(F + I - W), if W is neither longer than F nor than I.
"""

from dataclasses import dataclass

from envs.pass_orders import Passes, Ranks, one_stage_each
from envs.pass_orders._sequence import one_forward_one_backward
from graphs.foundation.by_name import Named


@dataclass(frozen=True)
class ZeroBubbleH1(Named):
    """1F1B in which the weight gradients of rank r lag behind its input gradients by r micro-batches."""

    def passes(self, ranks: Ranks, micro_batches: int) -> Passes:
        """Of each rank its passes. Raises InputError unless each rank has one stage, in ascending order."""
        one_stage_each(ranks, "zb_h1")
        return tuple(
            one_forward_one_backward(
                stages, micro_batches, warm_up=len(ranks) - 1 - rank, together=micro_batches, weights_behind=rank
            )
            for rank, stages in enumerate(ranks)
        )


build = ZeroBubbleH1
