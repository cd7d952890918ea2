"""A scheduler of passes in the shape of a V: what each device runs next, of what it could and memory admits.

Device r of P has the stages r and 2 P - 1 - r, on the way down and up. Every pass has a *turn*, the time that a
repeated building block gives it (`envs.pass_orders._v_shape`). Devices run

    in turn     forward passes and input gradients in the order of their turns, or
    as ready    whichever of them can begin first, and of several the one whose turn it is first,

and weight gradients while they would be idle, or where another forward pass would hold too much.
"""

from typing import NamedTuple

import numpy as np

from envs.simulation.compiled import compiled, inlined
from graphs.op_graph import Floats, Ints

INTERVAL = 6  # turns from a micro-batch to the next one: three passes of each of two stages
FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = range(3)
DOWN, UP = range(2)


class Times(NamedTuple):
    """Seconds, in any unit."""

    forward: float
    input_gradient: float
    weight_gradient: float
    transfer: float  # from a device to the next one


class Limits(NamedTuple):
    """How much devices may hold, in activations of a stage for a micro-batch."""

    held: int  # of both stages
    down: Ints  # (ranks,) of the stage on the way down, where passes run as they are ready


class VLists(NamedTuple):
    """What is written: the passes of each device, and what is known while they are."""

    passes: Ints  # (ranks, 6 micro-batches, 3) kind, DOWN or UP, and micro-batch of each
    length: Ints  # (ranks,) how many there are
    free: Floats  # (ranks,) seconds when the last of them ends
    following: Ints  # (ranks, 2, 2) by kind and way, the next micro-batch of forward passes and input gradients
    end: Floats  # (2, 2 ranks, micro-batches) by kind and stage, seconds when these end; infinite before they run
    gradients: Ints  # (ranks, 2 micro-batches, 2) way and micro-batch of each input gradient, in their order
    weighed: Ints  # (ranks,) how many of these have their weight gradient
    held: Ints  # (ranks, 2) activations on each way
    begin: Floats  # (ranks,) seconds when the next pass could begin; infinite if none is known
    chosen: Ints  # (ranks, 3) which it is

    @classmethod
    def empty(cls, ranks: int, micro_batches: int) -> "VLists":
        """Nothing has run."""
        return cls(
            np.zeros((ranks, INTERVAL * micro_batches, 3), np.int64), np.zeros(ranks, np.int64), np.zeros(ranks),
            np.zeros((ranks, 2, 2), np.int64), np.full((2, 2 * ranks, micro_batches), np.inf),
            np.zeros((ranks, 2 * micro_batches, 2), np.int64), np.zeros(ranks, np.int64),
            np.zeros((ranks, 2), np.int64), np.zeros(ranks), np.zeros((ranks, 3), np.int64),
        )  # fmt: skip


@inlined
def _ready(lists: VLists, kind: int, stage: int, micro_batch: int, transfer: float) -> float:
    """When everything that a pass reads has arrived; infinite if that is not known yet."""
    last = lists.end.shape[1] - 1
    if kind == FORWARD:
        if stage == 0:
            return 0.0
        return float(lists.end[FORWARD, stage - 1, micro_batch]) + (0.0 if 2 * stage == last + 1 else transfer)
    own = float(lists.end[FORWARD, stage, micro_batch])
    if stage == last:
        return own
    later = float(lists.end[INPUT_GRADIENT, stage + 1, micro_batch])
    return max(own, later + (0.0 if 2 * stage == last - 1 else transfer))


@inlined
def _choose(lists: VLists, rank: int, turns: Ints, limits: Limits, times: Times, in_turn: bool) -> None:
    """Write which pass a device runs next, and when it could begin, by what has run so far."""
    stages, micro_batches = lists.end.shape[1], lists.end.shape[2]
    now = lists.free[rank]
    lists.begin[rank] = np.inf
    first, best, is_full = -1, 0, False  # the first turn that is left, that of the choice
    for kind in range(WEIGHT_GRADIENT):
        for way in range(2):
            micro_batch = lists.following[rank, kind, way]
            if micro_batch == micro_batches:
                continue
            turn = turns[rank, kind, way] + INTERVAL * micro_batch
            if in_turn and first >= 0 and turn > first:
                continue
            if in_turn:  # of those seen so far it is the first, so that none of the others counts
                first, is_full = turn, False
                lists.begin[rank] = np.inf
            ready = _ready(lists, kind, stages - 1 - rank if way == UP else rank, micro_batch, times.transfer)
            begin = max(now, ready)
            if kind == FORWARD:
                fits = lists.held[rank, DOWN] + lists.held[rank, UP] < limits.held
                if not in_turn and way == DOWN:
                    fits = fits and lists.held[rank, DOWN] < limits.down[rank]
                if not fits:
                    is_full = is_full or ready <= now
                    continue
            if begin < lists.begin[rank] or (begin == lists.begin[rank] and turn < best):
                lists.begin[rank], best = begin, turn
                lists.chosen[rank, 0], lists.chosen[rank, 1], lists.chosen[rank, 2] = kind, way, micro_batch
    number = lists.weighed[rank]
    is_left = number < lists.following[rank, INPUT_GRADIENT, DOWN] + lists.following[rank, INPUT_GRADIENT, UP]
    if is_left and (lists.begin[rank] > now or (is_full and lists.chosen[rank, 0] == FORWARD)):
        lists.begin[rank], lists.chosen[rank, 0] = now, WEIGHT_GRADIENT
        for part in range(2):
            lists.chosen[rank, 1 + part] = lists.gradients[rank, number, part]


@inlined
def _run(lists: VLists, rank: int, times: Times) -> None:
    """Run the pass that a device has chosen."""
    kind, way, micro_batch = lists.chosen[rank, 0], lists.chosen[rank, 1], lists.chosen[rank, 2]
    for part in range(3):
        lists.passes[rank, lists.length[rank], part] = lists.chosen[rank, part]
    lists.length[rank] += 1
    lists.free[rank] = lists.begin[rank] + times[kind]
    if kind == WEIGHT_GRADIENT:
        lists.held[rank, way] -= 1
        lists.weighed[rank] += 1
        return
    if kind == FORWARD:
        lists.held[rank, way] += 1
    else:
        number = lists.following[rank, kind, DOWN] + lists.following[rank, kind, UP]
        lists.gradients[rank, number, 0], lists.gradients[rank, number, 1] = way, micro_batch
    lists.end[kind, lists.end.shape[1] - 1 - rank if way == UP else rank, micro_batch] = lists.free[rank]
    lists.following[rank, kind, way] += 1


@compiled
def write(lists: VLists, turns: Ints, limits: Limits, times: Times, in_turn: bool) -> bool:
    """Write the passes of all devices into empty lists; False if one waits forever.

    `turns` are (ranks, 2, 2), of a forward pass and an input gradient on each way, for the first micro-batch. Passes
    wait forever where memory does not admit the forward pass whose turn it is.
    """
    ranks = len(lists.free)
    for rank in range(ranks):
        _choose(lists, rank, turns, limits, times, in_turn)
    for _ in range(ranks * lists.passes.shape[1]):
        rank = 0
        for other in range(1, ranks):
            if lists.begin[other] < lists.begin[rank]:
                rank = other
        if lists.begin[rank] == np.inf:
            return False
        _run(lists, rank, times)
        for other in range(max(rank - 1, 0), min(rank + 2, ranks)):
            _choose(lists, other, turns, limits, times, in_turn)
    return True
