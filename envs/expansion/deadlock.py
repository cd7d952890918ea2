"""Deadlock: an order of passes under which devices wait for each other, and what each of them waits for."""

from collections import deque
from itertools import pairwise

import numpy as np

from envs.expansion.draft import Draft
from envs.expansion.pass_lists import BACKWARD, INPUT_GRADIENT, KINDS, PassLists
from graphs.algorithms.order import is_acyclic, topological_order
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints

_STARTS = 16  # passes of the cycle from which a shorter cycle is sought


def check_ends(draft: Draft, lists: PassLists, number: Ints) -> None:
    """Raise InputError, naming the passes of a cycle, if the edges of a draft have one.

    `number`, (ops,), is the pass of each op, without the gates.
    """
    if not _may_wait(lists):
        return
    edges = draft.edges
    order = topological_order(edges, draft.ops)
    if len(order) == draft.ops:
        return
    number = np.append(number, np.full(draft.ops - len(number), -1))
    raise InputError(
        f"the order {lists.layout.plan.schedule.order!r} never ends: {_steps(lists, _passes(edges, number, order))}; "
        "name another order, or other stages"
    )


def _may_wait(lists: PassLists) -> bool:
    """Whether passes as a whole wait for each other. Ops do so only then."""
    stages, micro_batches = lists.is_apart.shape
    count = stages * len(KINDS) * micro_batches
    every = np.arange(count)
    stage, kind, micro_batch = np.unravel_index(every, (stages, len(KINDS), micro_batches))
    is_whole = (kind >= INPUT_GRADIENT) & ~lists.is_apart[stage, micro_batch]
    node = np.where(is_whole, (stage * len(KINDS) + BACKWARD) * micro_batches + micro_batch, every)
    needs = node.reshape(-1, micro_batches)[_needed(lists)]  # (pairs, 2, micro-batches)
    in_turn = (lists.stage * len(KINDS) + lists.kind) * micro_batches + lists.micro_batch
    follows = lists.device[1:] == lists.device[:-1]
    edges = np.concatenate(
        [needs.swapaxes(1, 2).reshape(-1, 2), np.stack([in_turn[:-1][follows], in_turn[1:][follows]], axis=1)]
    )
    edges = edges[edges[:, 0] != edges[:, 1]]
    return not is_acyclic(edges, count)


def _needed(lists: PassLists) -> Ints:
    """(pairs, 2) stage and kind, as one number, of two passes of a micro-batch of which the second reads the first."""
    layout, graph = lists.layout, lists.layout.problem.graph
    in_pass = layout.is_repeated[graph.edges].all(axis=1) & ~layout.is_summed
    of_ends = (layout.stage * len(KINDS) + lists.kind_of_ops)[graph.edges[in_pass]]
    most = len(KINDS) * len(layout.stage_devices)
    return np.stack(np.divmod(np.unique(of_ends[:, 0] * most + of_ends[:, 1]), most), axis=1)


# ---- what waits for what ---------------------------------------------------------------------------------------------


def _passes(edges: Ints, number: Ints, order: Ints) -> list[int]:
    """The passes of a short cycle of ops, in turn. `order` are the ops that are on none and behind none."""
    is_stuck = np.ones(len(number), np.bool_)
    is_stuck[order] = False
    following: dict[int, list[int]] = {}
    before: dict[int, int] = {}
    for producer, consumer in edges[is_stuck[edges].all(axis=1)].tolist():
        following.setdefault(producer, []).append(consumer)
        before[consumer] = producer
    path = [next(iter(before))]
    while before[path[-1]] not in path:
        path.append(before[path[-1]])
    on_cycle = path[path.index(before[path[-1]]) :]
    of_pass = {int(number[op]): op for op in on_cycle if number[op] >= 0}  # one op of each pass
    cycles = [_back_to(op, following) for op in list(of_pass.values())[:_STARTS]]
    passes = [[int(number[op]) for op in cycle if number[op] >= 0] for cycle in cycles]
    return min(([one for one, last in zip(each, [-1, *each], strict=False) if one != last] for each in passes), key=len)


def _back_to(op: int, following: dict[int, list[int]]) -> list[int]:
    """The shortest way from an op on a cycle to itself: it first, and the others in turn."""
    came_from: dict[int, int] = {}
    queue = deque([op])
    while op not in came_from:
        at = queue.popleft()
        for then in following.get(at, ()):
            if then not in came_from:
                came_from[then] = at
                queue.append(then)
    way = [op]
    while (at := came_from[way[-1]]) != op:
        way.append(at)
    return [op, *way[:0:-1]]


def _steps(lists: PassLists, passes: list[int]) -> str:
    """Such as "gpu:0 runs B0 of stage 0 before F1 of stage 0, F1 of stage 1 needs F1 of stage 0, ..."."""
    device = lists.device.tolist()

    def in_turn(number: int, then: int) -> bool:
        return bool(device[number] == device[then] and number < then)

    count = len(passes)
    ring = [
        number for index, number in enumerate(passes)
        if not (in_turn(passes[index - 1], number) and in_turn(number, passes[(index + 1) % count]))
    ]  # fmt: skip
    begin = next(index for index, number in enumerate(ring) if in_turn(number, ring[(index + 1) % len(ring)]))
    ring = [*ring[begin:], *ring[: begin + 1]]
    names = [each.name for each in lists.layout.problem.cluster.devices]
    return ", ".join(
        f"{names[device[number]]} runs {lists.name(number)} before {lists.name(then)}" if in_turn(number, then)
        else f"{lists.name(then)} needs {lists.name(number)}"
        for number, then in pairwise(ring)
    )  # fmt: skip
