"""Zero bubble, ZB-H2: no device idles between its first pass and its last, in twice 1F1B's memory (Qi et al., 2023).

A device holds the activations of 2 P - 1 micro-batches, of which ZB-H1 holds P: enough to work on while a micro-batch
goes to the last device and comes back, even if input gradients take longer than forward passes, or transfers take time.
"""

from dataclasses import dataclass

from envs.pass_orders import Passes, Ranks, one_stage_each
from envs.pass_orders._sequence import one_forward_one_backward
from graphs.foundation.by_name import Named


@dataclass(frozen=True)
class ZeroBubbleH2(Named):
    """ZB-H1 with up to twice as many forward passes ahead; weight gradients lag behind as far as memory admits."""

    in_flight: int = 0
    """Micro-batches whose activations a device holds at most; P is ZB-H1. 0: 2 P - 1."""

    def passes(self, ranks: Ranks, micro_batches: int) -> Passes:
        """Of each rank its passes. Raises InputError unless each rank has one stage, in ascending order."""
        one_stage_each(ranks, "zb_h2")
        most = min(2 * len(ranks) - 1, max(micro_batches, len(ranks)))
        held = min(self.in_flight or most, most)
        more = max(held - len(ranks), 0)  # than ZB-H1
        ahead = [min(after + more, 2 * after, held - 1) for after in reversed(range(len(ranks)))]
        return tuple(
            one_forward_one_backward(
                stages, micro_batches, warm_up=warm_up, together=micro_batches, weights_behind=held - 1 - warm_up
            )
            for stages, warm_up in zip(ranks, ahead, strict=True)
        )


build = ZeroBubbleH2
