"""V-shaped schedules with controllable memory: two stages on each device, down and up again (Qi et al., 2024).

A *building block* is the passes of one micro-batch, which repeats every six passes of a device. What a device holds of
it lasts from its forward passes to its weight gradients, so the time from each stage to the next one, on the way down
and up, decides how much memory a schedule takes:

    hops, down and up    memory, over that of 1F1B
    1, 1                 1/3    V-Min
    2, 1                 1/2    V-Half
    4, 2                 1      without a bubble

The paper pulls passes out of their turn, by hand, where a step begins and ends. Here devices do so by themselves as far
as memory admits it (`envs.pass_orders._v_scheduler`), and the shortest of several schedules counts.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from envs.pass_orders import Pass, Passes, PassKind, Ranks
from envs.pass_orders._sequence import check_v_shaped
from envs.pass_orders._v_scheduler import INTERVAL, Limits, Times, VLists, write
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints

HOPS = ((4, 2), (2, 1), (1, 1))  # turns from a stage to the next one, down and up
KINDS = (PassKind.FORWARD, PassKind.INPUT_GRADIENT, PassKind.WEIGHT_GRADIENT)


@dataclass(frozen=True)
class VShape(Named):
    """The shortest schedule in so much memory, by how long passes take."""

    in_flight: int = 0
    """Micro-batches whose activations a device holds at most, of both stages; 0: as many as published."""
    times: str = "1+1+1+0"
    """Of a forward pass, an input gradient, a weight gradient and a transfer to another device, in any unit."""

    def __post_init__(self) -> None:
        try:
            times = Times(*map(float, self.times.split("+")))
        except (TypeError, ValueError):
            times = Times(0.0, 0.0, 0.0, 0.0)
        if not (times.forward > 0 and min(times) >= 0 and max(times) < np.inf):
            raise InputError(
                f"{self._file}: times is {self.times!r}; expected four numbers, of a forward pass, an input "
                "gradient, a weight gradient and a transfer, such as 1+1.2+0.8+0.1"
            )

    def held(self, ranks: int) -> int:
        """The most micro-batches whose activations each of `ranks` devices holds."""
        return self.in_flight or self.published(ranks)

    def published(self, ranks: int) -> int:
        """The same, as the paper has it."""
        raise NotImplementedError

    def passes(self, ranks: Ranks, micro_batches: int) -> Passes:
        """Of each rank its passes. Raises InputError unless the stages of rank r of P are r and 2 P - 1 - r."""
        check_v_shaped(ranks, self._file)
        times = Times(*map(float, self.times.split("+")))
        lists = _shortest(len(ranks), micro_batches, min(self.held(len(ranks)), micro_batches), times)
        return tuple(
            tuple(Pass(stages[way], KINDS[kind], micro_batch) for kind, way, micro_batch in of_rank)
            for stages, of_rank in zip(ranks, lists.tolist(), strict=True)
        )

    @property
    def _file(self) -> str:
        return self.name.partition(":")[0]


@lru_cache(maxsize=256)
def _shortest(ranks: int, micro_batches: int, in_flight: int, times: Times) -> Ints:
    """(ranks, passes, 3) the kind, way and micro-batch of each pass, of the shortest schedule that memory admits."""
    held, first = 2 * in_flight, np.arange(ranks)
    # fewer of the stages on the way down from device to device, as in 1F1B of all stages; one is left for those up
    down = np.clip(held * (2 * ranks - first) // (2 * ranks), 1, held - 1)
    found, least = VLists.empty(ranks, micro_batches), np.inf
    for hops, in_turn in product(HOPS, (True, False)):
        lists = VLists.empty(ranks, micro_batches)
        ends = write(lists, building_block(ranks, *hops), Limits(held, down), times, in_turn)
        if ends and lists.free.max() < least:
            found, least = lists, lists.free.max()
    return found.passes


def building_block(ranks: int, down: int, up: int) -> Ints:
    """(ranks, 2, 2) the turns of forward passes and input gradients, on the way down and up, of the first micro-batch.

    `down` and `up` are the hops. Input gradients wait for as few turns more on each way as keep all turns of a device
    apart, those of other micro-batches among them.
    """
    first = np.arange(ranks)
    there, back = first, ranks - 1 - first  # stages before each, on the way down and up
    forward = np.array([down * there, down * (ranks - 1) + 1 + up * back])
    for waits in product(range(INTERVAL), repeat=2):
        returning = forward[1, 0] + 1 + waits[0] + down * there
        gradient = np.array([returning[-1] + 1 + waits[1] + up * back, returning])
        turns = np.ascontiguousarray(np.array([forward, gradient]).transpose(2, 0, 1))
        if all(len(set(of_rank)) == 4 for of_rank in (turns % INTERVAL).reshape(ranks, 4).tolist()):
            return turns
    raise AssertionError(f"no turns of {down} and {up} hops on {ranks} devices are apart")
