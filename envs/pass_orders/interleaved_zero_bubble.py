"""Interleaved 1F1B whose weight gradients fill the bubble: ZB-H1 with several stages on each device (PyTorch).

PyTorch names it after Qi et al. (2023), whose ZB-1P it is for several stages of a device.
"""

from dataclasses import dataclass

from envs.pass_orders import Passes, Ranks
from envs.pass_orders._sequence import interleaved
from graphs.foundation.by_name import Named


@dataclass(frozen=True)
class InterleavedZeroBubble(Named):
    """Each stage of a rank runs a round of micro-batches, then the next stage does; weight gradients lag behind."""

    def passes(self, ranks: Ranks, micro_batches: int) -> Passes:
        """Of each rank its passes: 1 forward pass more in the beginning than the next rank.

        Raises InputError unless the stages of rank r of P are r, P + r, ..., and the micro-batches equal rounds.
        """
        return interleaved(ranks, micro_batches, "interleaved_zero_bubble", ahead=1, weights_wait=True)


build = InterleavedZeroBubble
