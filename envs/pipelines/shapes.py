"""Shapes: how many stages a pipeline may have on how many ranks, under an order of passes.

    one lap           stages 0 1 2        on ranks 0 1 2
    two laps          stages 0 1 2 3 4 5  on ranks 0 1 2 0 1 2      interleaved
    two laps, a V     stages 0 1 2 3 4 5  on ranks 0 1 2 2 1 0

A rank is one device, or several that are replicas.
"""

from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from envs.pass_orders import PassKind, PassOrder, Ranks
from graphs.foundation.by_name import Extension
from graphs.foundation.errors import InputError, UserCodeError

MOST_LAPS = 4  # ours; more stages on each device than this are not offered


class PipelineShape(NamedTuple):
    """The number of stages, and of the ranks that run them."""

    ranks: int
    stages: int
    is_v: bool = False

    def rank_of(self, stage: int) -> int:
        """The rank that hosts a stage."""
        lap, at = divmod(stage, self.ranks)
        return self.ranks - 1 - at if self.is_v and lap else at

    @property
    def hosted(self) -> Ranks:
        """Of each rank its stages, in ascending order."""
        stages = range(self.stages)
        return tuple(tuple(stage for stage in stages if self.rank_of(stage) == rank) for rank in range(self.ranks))


@lru_cache(maxsize=1024)
def shapes_of(
    order: Extension[PassOrder],
    micro_batches: int,
    most_ranks: int,
    most_stages: int,
    *,
    weight_gradients_apart: bool = True,
) -> tuple[PipelineShape, ...]:
    """The shapes that an order of passes takes with a number of micro-batches.

    Of two laps of the same ranks it is interleaved, if the order takes that, or else a V. Without weight gradients that
    can be run apart, only orders of whole backward passes take any. Raises UserCodeError for what a user's order
    raises.
    """
    found = []
    for ranks in range(1, min(most_ranks, most_stages) + 1):
        for laps in range(1, min(MOST_LAPS, most_stages // ranks) + 1):
            candidates = [PipelineShape(ranks, laps * ranks)] + [PipelineShape(ranks, 2 * ranks, is_v=True)] * (
                laps == 2
            )
            taken = (each for each in candidates if _is_taken(order.built, each, micro_batches, weight_gradients_apart))
            found += list(islice(taken, 1))
    return tuple(found)


def _is_taken(order: PassOrder, shape: PipelineShape, micro_batches: int, weight_gradients_apart: bool) -> bool:
    try:
        passes = order.passes(shape.hosted, micro_batches)
    except UserCodeError:
        raise
    except InputError:
        return False
    return weight_gradients_apart or not any(
        each.kind == PassKind.WEIGHT_GRADIENT for of_rank in passes for each in of_rank
    )
