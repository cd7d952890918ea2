"""Stages that follow one another on a rank, as one place of a pipeline, for orders of one stage on each rank.

    stages 0 1 | 2     of ranks 0 and 1     F of place 0: F of stage 0, F of stage 1;     B of it: B of 1, B of 0

So a part of what a device has can be a stage of its own, that is computed again, say.
"""

from itertools import groupby

from envs.pass_orders import Pass, Passes, PassKind, PassOrder, Ranks
from graphs.foundation.errors import InputError, UserCodeError


def joined_passes(order: PassOrder, ranks: Ranks, micro_batches: int) -> Passes:
    """As the order has them or, of ranks that it refuses, with stages that follow one another on a rank as one.

    Raises InputError as the order, for the ranks as they are.
    """
    try:
        return order.passes(ranks, micro_batches)
    except UserCodeError:
        raise
    except InputError as error:
        of_ranks = [_following(stages) for stages in ranks]
        places = sorted(place for of_rank in of_ranks for place in of_rank)
        if len(places) == sum(map(len, ranks)):
            raise
        number = {place: at for at, place in enumerate(places)}
        try:
            passes = order.passes(tuple(tuple(number[place] for place in each) for each in of_ranks), micro_batches)
        except UserCodeError:
            raise
        except InputError:
            raise error from None
        return tuple(tuple(one for each in of_rank for one in _apart(each, places[each.stage])) for of_rank in passes)


def _following(stages: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The stages of a rank, in places of those that follow one another."""
    runs = groupby(enumerate(stages), key=lambda each: each[1] - each[0])
    return [tuple(stage for _, stage in run) for _, run in runs]


def _apart(of_place: Pass, stages: tuple[int, ...]) -> list[Pass]:
    """The passes of the stages of a place, in place of one of it."""
    order = stages if of_place.kind == PassKind.FORWARD else stages[::-1]
    return [of_place._replace(stage=stage) for stage in order]
