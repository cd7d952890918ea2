"""Early backward, PA: S - i micro-batches in flight at stage i of S, then 1F1B (Fan et al., DAPPLE, 2021).

Without a limit it is the 1F1B order of PipeDream-flush (Narayanan et al., 2021), Megatron-LM and PyTorch.
"""

from dataclasses import dataclass

from envs.pass_orders import Passes, Ranks, one_stage_each
from envs.pass_orders._sequence import one_forward_one_backward
from graphs.foundation.by_name import Named


@dataclass(frozen=True)
class EarlyBackwardA(Named):
    """K_i = min(S - i, D) forward passes, then a backward and a forward pass in turns."""

    in_flight: int = 0  # D, the micro-batches whose activations fit into memory; 0: no limit

    def passes(self, ranks: Ranks, micro_batches: int) -> Passes:
        """Of each rank its passes. Raises InputError unless each rank has one stage, in ascending order."""
        one_stage_each(ranks, "early_backward_a")
        limits = [min(len(ranks) - stage, self.in_flight or micro_batches) for (stage,) in ranks]
        return tuple(
            one_forward_one_backward(stages, micro_batches, warm_up=limit - 1, together=micro_batches)
            for stages, limit in zip(ranks, limits, strict=True)
        )


build = EarlyBackwardA
