"""Zero bubble, ZB-V: two stages on each device in the shape of a V, and 1F1B's memory (Qi et al., 2023, section 6).

If forward passes, input gradients and weight gradients take equally long, devices idle only until the first micro-batch
reaches them, and while the last one returns. The order is PyTorch's (`ScheduleZBVZeroBubble`), which does not depend on
how long they take.
"""

from dataclasses import dataclass

from envs.pass_orders import Pass, Passes, Ranks
from envs.pass_orders._sequence import Sequence, check_v_shaped
from graphs.foundation.by_name import Named


@dataclass(frozen=True)
class ZeroBubbleV(Named):
    """Fewer than 2 P - 1 micro-batches run as the first of 2 P - 1, which fill the pipeline."""

    def passes(self, ranks: Ranks, micro_batches: int) -> Passes:
        """Of each rank its passes. Raises InputError unless the stages of rank r of P are r and 2 P - 1 - r."""
        check_v_shaped(ranks, "zb_v")
        return tuple(self._of_rank(rank, len(ranks), micro_batches) for rank in range(len(ranks)))

    def _of_rank(self, rank: int, ranks: int, micro_batches: int) -> tuple[Pass, ...]:
        down, up = rank, 2 * ranks - 1 - rank  # stages
        rest, count = ranks - rank, max(2 * ranks - 1, micro_batches)
        sequence = Sequence()
        # warm-up: the first micro-batch goes down and up again
        for _ in range(2 * rest - 1):
            sequence.forward(down)
        for _ in range(rank):
            sequence.forward(up)
            sequence.forward(down)
        for _ in range(rest):
            sequence.forward(up)
            sequence.input_gradient(up)
            sequence.weight_gradient()
        # steady: a forward pass and both gradients of each stage in turns
        begun = 2 * rest - 1 + rank
        for number in range(count - ranks):
            if begun + number < count:
                sequence.forward(down)
            sequence.input_gradient(down)
            sequence.weight_gradient()
            sequence.forward(up)
            sequence.input_gradient(up)
            sequence.weight_gradient()
        # cool-down: input gradients first, as other devices wait for them
        for _ in range(rank):
            sequence.input_gradient(down)
            sequence.input_gradient(up)
        for _ in range(rest):
            sequence.input_gradient(down)
            sequence.weight_gradient(down)
        sequence.all_weight_gradients(up)
        sequence.all_weight_gradients(down)
        return sequence.of_the_first(micro_batches)


build = ZeroBubbleV
