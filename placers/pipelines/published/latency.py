"""DAPPLE's estimate of a pipeline's step (Fan et al. 2021, equations 1 to 3).

Stages of computing and stages of sending alternate: compute 0, network 0, compute 1, ..., compute last. The pivot Q is
the stage without a bubble in the steady part. The step is the warm-up until the first forward pass has ended at the
pivot, then M - 1 forward and backward passes of the pivot, then the ending, until the last all-reduce is over:

    L = sum_{s <= Q} F_s + (M - 1) (F_Q + B_Q) + max_s (AR_s + E_s)
    E_s = -sum_{Q <= a <= s} B_a   for s >= Q
    E_s =  sum_{s <= a <= Q} B_a   for s < Q

Printed so, the last backward pass of a pivot that is the first stage is missing. `corrected` makes it E_Q = B_Q: the
pivot begins its last backward pass no earlier than the sum of the first two terms.

It is a lower bound on the step if the pivot computes, or if links are half duplex: a network stage as pivot adds up
what links of two directions carry at once.
"""

from envs.simulation.compiled import subroutine
from graphs.op_graph import Floats


@subroutine
def pivot(forward: Floats, backward: Floats, count: int, micro_batches: int) -> int:
    """The stage without a bubble: from the last one to the first, one that outweighs all until the pivot so far.

    `forward` and `backward` are seconds of a micro-batch at each stage; the first `count` entries are read.
    """
    chosen = count - 1
    between = 0.0  # of the stages after this one and before the pivot
    for stage in range(count - 2, -1, -1):
        own = forward[stage] + backward[stage]
        steady = (micro_batches - 1) * own
        if steady > (micro_batches - 1) * (forward[chosen] + backward[chosen]) + between:
            chosen, between = stage, 0.0
        else:
            between += own
    return chosen


@subroutine
def latency(
    forward: Floats, backward: Floats, all_reduce: Floats, count: int, micro_batches: int, corrected: bool
) -> float:
    """Seconds of a step. `all_reduce` are seconds of each stage, 0 for those of sending; as for `pivot` otherwise."""
    at = pivot(forward, backward, count, micro_batches)
    total = (micro_batches - 1) * (forward[at] + backward[at])
    ending = all_reduce[at] + (backward[at] if corrected else -backward[at])
    ago = backward[at]
    for stage in range(at + 1, count):
        ago += backward[stage]
        ending = max(ending, all_reduce[stage] - ago)
    to_come = backward[at]
    for stage in range(at, -1, -1):
        total += forward[stage]
        if stage < at:
            to_come += backward[stage]
            ending = max(ending, all_reduce[stage] + to_come)
    return float(total + ending)
