"""DualPipeV: two stages on each device in the shape of a V, forward next to backward passes (DeepSeek-AI, 2025).

The half of DualPipe (DeepSeek-V3, 2024) that holds each stage once (github.com/deepseek-ai/DualPipe). There the passes
of a pair run at the same time, so that one computes while the other communicates; here, one after the other.
"""

from dataclasses import dataclass

from envs.pass_orders import Pass, Passes, Ranks
from envs.pass_orders._sequence import Sequence, check_v_shaped
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError


@dataclass(frozen=True)
class DualPipeV(Named):
    """Whole backward passes in the middle of a step, with the weight gradients apart at its start and its end."""

    def passes(self, ranks: Ranks, micro_batches: int) -> Passes:
        """Of each rank its passes.

        Raises InputError unless the stages of rank r of P are r and 2 P - 1 - r, with at least 2 P micro-batches.
        """
        check_v_shaped(ranks, "dualpipe_v")
        if micro_batches < 2 * len(ranks):
            raise InputError(
                f"the order 'dualpipe_v' needs at least as many micro-batches as stages, {2 * len(ranks)} here; "
                f"got {micro_batches}"
            )
        return tuple(self._of_rank(rank, len(ranks), micro_batches) for rank in range(len(ranks)))

    def _of_rank(self, rank: int, ranks: int, micro_batches: int) -> tuple[Pass, ...]:
        down, up = rank, 2 * ranks - 1 - rank  # stages
        behind = ranks - 1 - rank
        sequence = Sequence()
        # the first micro-batches go down, and up again
        for _ in range(2 * behind):
            sequence.forward(down)
        for _ in range(rank + 1):
            sequence.forward(down)
            sequence.forward(up)
        for _ in range(behind):
            sequence.input_gradient(up)
            sequence.weight_gradient()
            sequence.forward(up)
        # pairs of a forward pass of one stage and a backward pass of the other
        for number in range(micro_batches - 2 * ranks + rank + 1 + behind):
            if number < micro_batches - 2 * ranks + rank + 1:
                sequence.forward(down)
            sequence.backward(up)
            sequence.forward(up)
            sequence.backward(down)
        # the last micro-batches come back; the later half leaves its weight gradients for the end
        for number in range(rank + 1):
            half = (rank + 1) // 2
            apart = number > half or (number == half and rank % 2 == 1)
            self._back(sequence, up, apart=apart)
            self._back(sequence, down, apart=number >= half)
        for _ in range(behind):
            sequence.weight_gradient()
            self._back(sequence, down, apart=True)
        sequence.all_weight_gradients()
        return sequence.of_the_first(micro_batches)

    def _back(self, sequence: Sequence, stage: int, *, apart: bool) -> None:
        if apart:
            sequence.input_gradient(stage)
        else:
            sequence.backward(stage)


build = DualPipeV
