"""Early backward, PB: 2 (S - i) - 1 micro-batches in flight at stage i of S, then 1F1B (Fan et al., DAPPLE, 2021).

For pipelines whose transfers take as long as their stages: a micro-batch may be on its way while another is computed.
"""

from dataclasses import dataclass

from envs.pass_orders import Passes, Ranks, one_stage_each
from envs.pass_orders._sequence import one_forward_one_backward
from graphs.foundation.by_name import Named


@dataclass(frozen=True)
class EarlyBackwardB(Named):
    """K_i = min(2 (S - i) - 1, D) forward passes, then a backward and a forward pass in turns."""

    in_flight: int = 0  # D, the micro-batches whose activations fit into memory; 0: no limit

    def passes(self, ranks: Ranks, micro_batches: int) -> Passes:
        """Of each rank its passes. Raises InputError unless each rank has one stage, in ascending order."""
        one_stage_each(ranks, "early_backward_b")
        limits = [min(2 * (len(ranks) - stage) - 1, self.in_flight or micro_batches) for (stage,) in ranks]
        return tuple(
            one_forward_one_backward(stages, micro_batches, warm_up=limit - 1, together=micro_batches)
            for stages, limit in zip(ranks, limits, strict=True)
        )


build = EarlyBackwardB
