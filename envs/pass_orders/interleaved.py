"""Interleaved 1F1B: several stages on each device, every P-th of them, in turns (Narayanan et al., Megatron-LM, 2021).

The bubble at the start and the end of a step is as many times smaller as a device has stages.
"""

from dataclasses import dataclass

from envs.pass_orders import Passes, Ranks
from envs.pass_orders._sequence import interleaved
from graphs.foundation.by_name import Named


@dataclass(frozen=True)
class Interleaved(Named):
    """Each stage of a rank runs a round of micro-batches, then the next stage does. One stage per rank gives PB."""

    def passes(self, ranks: Ranks, micro_batches: int) -> Passes:
        """Of each rank its passes: 2 forward passes more in the beginning than the next rank.

        Raises InputError unless the stages of rank r of P are r, P + r, ..., and the micro-batches equal rounds.
        """
        return interleaved(ranks, micro_batches, "interleaved", ahead=2)


build = Interleaved
