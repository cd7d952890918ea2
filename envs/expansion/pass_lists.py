"""PassLists: the passes of every device of a plan, in the order in which it runs them.

    rank                 devices   passes
    stages 0 and 2       0, 1      0F0 0F1 2F0 2F1 ...   the same on each replica;
    stages 1 and 3       2         1F0 1F1 3F0 3F1 ...   of replicas that take turns, each runs its micro-batches

Devices with the same stages form a rank. Ranks are in the order of their stages.

Replicas that take turns are places of a longer pipeline: where each rank has one stage, the order is asked for as many
ranks as there are devices, and a stage runs what its first place is given. So early_backward_a, which admits as many
micro-batches as there are places from a stage on, admits n / R at each of its R replicas, rounded up, of n devices from
that stage on: PipeDream's number of active mini-batches (Narayanan et al. 2019, section 3.2).

    devices    0 1 2 | 3 | 4     stage 0 of three replicas, and two stages more: of 5 places, those of 0, 3 and 4
    in flight  2 2 2   2   1     ceil(5 / 3) = 2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from envs.expansion.expanded import Role
from envs.expansion.joined_passes import joined_passes
from envs.expansion.layout import Layout
from envs.pass_orders import Passes, PassKind, PassOrder, Ranks
from envs.plans.schedule import Sharing
from graphs.foundation.by_name import Extension
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Ints, Phase

KINDS = tuple(PassKind)
FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = range(len(KINDS))


@dataclass(frozen=True, eq=False)
class PassLists:
    """The passes of all devices, one device after the other, in their order. Those without ops are left out."""

    layout: Layout
    kind_of_ops: Ints  # (ops,) FORWARD, INPUT_GRADIENT or WEIGHT_GRADIENT: the pass of each op, were all apart
    device: Ints  # (passes,)
    stage: Ints  # (passes,)
    kind: Ints  # (passes,) of KINDS
    micro_batch: Ints  # (passes,)

    @staticmethod
    def of(layout: Layout) -> PassLists:
        """What the plan's order says.

        Raises InputError for an order that misses or repeats a pass, refuses the plan's ranks or micro-batches, or has
        weight gradients apart where the graph has none.
        """
        return _written(layout)

    @classmethod
    def _of(cls, layout: Layout) -> PassLists:
        hosted: dict[int, list[int]] = {}
        for number, replicas in enumerate(layout.stage_devices):
            for each in replicas:
                hosted.setdefault(each, []).append(number)
        ranks = tuple(sorted({tuple(stages) for stages in hosted.values()}))
        schedule, replicas = layout.plan.schedule, tuple(map(len, layout.stage_devices))
        of_rank = of_ranks(schedule.order, ranks, layout.micro_batches, replicas, schedule.sharing)
        devices = sorted(hosted)
        rows = [of_rank[tuple(hosted[each])] for each in devices]
        device = np.repeat(devices, [len(passes) for passes in rows])
        stage, kind, micro_batch = np.concatenate(rows).T
        kind_of_ops = pass_kinds(layout)
        runs = _has_ops(layout, kind_of_ops)[stage, kind] & _has_turn(layout, device, stage, micro_batch)
        lists = cls(layout, kind_of_ops, device[runs], stage[runs], kind[runs], micro_batch[runs])
        _check_weight_gradients(lists)
        return lists

    def __len__(self) -> int:
        return len(self.device)

    @cached_property
    def is_apart(self) -> Bools:
        """(stages, micro-batches) whether the backward pass is run in its two parts."""
        apart = np.zeros((len(self.layout.stage_devices), self.layout.micro_batches), np.bool_)
        parts = self.kind >= INPUT_GRADIENT
        apart[self.stage[parts], self.micro_batch[parts]] = True
        return apart

    def kind_of_copies(self, role: Ints, origin: Ints, stage: Ints, micro_batch: Ints) -> Ints:
        """(copies,) the kind of the pass that runs each op of an expanded graph, (copies,) each; -1 for none.

        What is computed again belongs to the backward pass, or to its first part; transfers and sums to none.
        """
        found = np.full(len(role), -1)
        is_again = np.isin(role, (Role.RECOMPUTED, Role.ARRIVE))
        these = np.flatnonzero((is_again | (role == Role.WORK)) & (micro_batch >= 0))
        kind = np.where(is_again[these], INPUT_GRADIENT, self.kind_of_ops[origin[these]])
        is_whole = (kind >= INPUT_GRADIENT) & ~self.is_apart[stage[these], micro_batch[these]]
        found[these] = np.where(is_whole, BACKWARD, kind)
        return found

    def number_of(self, device: Ints, stage: Ints, kind: Ints, micro_batch: Ints) -> Ints:
        """(n,) the number of each pass, (n,) each, on its device, or -1 where the device has no such pass."""
        keys = self._key(device, stage, kind, micro_batch)
        table = np.full(int(max(keys.max(initial=0), self._keys.max(initial=0))) + 1, -1)
        table[self._keys] = np.arange(len(self))
        return np.asarray(table[keys])

    def name(self, number: int) -> str:
        """Such as "F0 of stage 1"."""
        return f"{KINDS[self.kind[number]].value}{self.micro_batch[number]} of stage {self.stage[number]}"

    @cached_property
    def _keys(self) -> Ints:
        return self._key(self.device, self.stage, self.kind, self.micro_batch)

    def _key(self, device: Ints, stage: Ints, kind: Ints, micro_batch: Ints) -> Ints:
        stages, micro_batches = self.is_apart.shape
        key: Ints = ((device * stages + stage) * len(KINDS) + kind) * micro_batches + micro_batch
        return key


@lru_cache(1)  # an expansion asks for those of its layout several times
def _written(layout: Layout) -> PassLists:
    return PassLists._of(layout)


def pass_kinds(layout: Layout) -> Ints:
    """(ops,) FORWARD, INPUT_GRADIENT or WEIGHT_GRADIENT, by the pass that each op would belong to, were all apart.

    Weight gradients are with what is made of them in the same stage, such as their sum, and with updates.
    """
    graph = layout.problem.graph
    is_backward = graph.phase == Phase.BACKWARD
    of_weights = layout.is_weight_gradient.copy()
    producer, consumer = graph.edges.T
    within = is_backward[producer] & is_backward[consumer] & (layout.stage[producer] == layout.stage[consumer])
    producer, consumer = producer[within], consumer[within]
    while (added := consumer[of_weights[producer] & ~of_weights[consumer]]).size:
        of_weights[added] = True
    of_phase = np.array([FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, WEIGHT_GRADIENT])
    return np.where(of_weights, WEIGHT_GRADIENT, of_phase[graph.phase])


def _has_ops(layout: Layout, kind: Ints) -> Bools:
    """(stages, kinds) whether there is anything to run in such a pass."""
    has_ops = np.zeros((len(layout.stage_devices), len(KINDS)), np.bool_)
    repeated = layout.problem.graph.phase < Phase.UPDATE
    has_ops[layout.stage[repeated], kind[repeated]] = True
    has_ops[:, BACKWARD] = has_ops[:, INPUT_GRADIENT:].any(axis=1)
    return has_ops


def _has_turn(layout: Layout, device: Ints, stage: Ints, micro_batch: Ints) -> Bools:
    """(passes,) whether the replica of each pass's stage that is on a device, (passes,), runs its micro-batch."""
    if layout.plan.schedule.sharing == "split":
        return np.ones(len(stage), np.bool_)
    replicas = np.array([len(devices) for devices in layout.stage_devices])
    return np.asarray(layout.device_of[stage, micro_batch % replicas[stage]] == device)


def _check_weight_gradients(lists: PassLists) -> None:
    """Raise InputError if weight gradients are apart in a stage that computes them together with input gradients."""
    layout = lists.layout
    graph, stage = layout.problem.graph, layout.stage
    updated, has_any = (np.zeros(len(layout.stage_devices), np.bool_) for _ in range(2))
    updated[stage[graph.phase == Phase.UPDATE]] = True
    has_any[stage[layout.is_weight_gradient]] = True
    wrong = np.flatnonzero(updated & ~has_any & lists.is_apart.any(axis=1))
    if len(wrong):
        raise InputError(
            f"the order {layout.plan.schedule.order!r} runs weight gradients apart, and stage {wrong[0]} of "
            f"{graph.name!r} has no op of its own for them; use an order of whole backward passes"
        )


# ---- what an order says ----------------------------------------------------------------------------------------------


def of_ranks(
    order: Extension[PassOrder], ranks: Ranks, micro_batches: int, replicas: Sequence[int], sharing: Sharing
) -> dict[tuple[int, ...], Ints]:
    """Of the stages of each rank, (passes, 3) the stage, kind (of `KINDS`) and micro-batch of each pass.

    Of replicas that take turns, (stages,) so many, those of all of them together. Raises InputError for ranks or a
    number of micro-batches that the order is not made for.
    """
    if sharing == "split" or any(len(stages) > 1 for stages in ranks):
        return dict(zip(ranks, _ordered(order, ranks, micro_batches), strict=True))
    counts = [replicas[stage] for (stage,) in ranks]
    places = tuple((place,) for place in range(sum(counts)))
    given = _ordered(order, places, micro_batches)
    first = np.cumsum([0, *counts[:-1]]).tolist()
    return {
        (stage,): np.column_stack([np.full(len(given[place]), stage), given[place][:, 1:]])
        for (stage,), place in zip(ranks, first, strict=True)
    }


def _ordered(order: Extension[PassOrder], ranks: Ranks, micro_batches: int) -> tuple[Ints, ...]:
    """Of each rank (passes, 3) the stage, kind and micro-batch of each; a user's file is asked each time."""
    ordered = _read if order.file else _remembered
    return ordered(order, ranks, micro_batches)


def _read(order: Extension[PassOrder], ranks: Ranks, micro_batches: int) -> tuple[Ints, ...]:
    numbers = _numbers(order, joined_passes(order.built, ranks, micro_batches))
    if len(numbers) != len(ranks):
        raise InputError(
            f"the order {order!r} has passes for {len(numbers)} ranks of {len(ranks)}; expected one tuple each"
        )
    for stages, of_rank in zip(ranks, numbers, strict=True):
        _check_once(order, stages, of_rank, micro_batches)
    return numbers


_remembered = lru_cache(maxsize=256)(_read)  # a search asks again and again


def _numbers(order: Extension[PassOrder], passes: Passes) -> tuple[Ints, ...]:
    """Of each rank (passes, 3) numbers. Raises InputError for what are no passes."""
    number = {kind: index for index, kind in enumerate(KINDS)}
    try:
        return tuple(
            np.array([(each.stage, number[each.kind], each.micro_batch) for each in of_rank], np.int64).reshape(-1, 3)
            for of_rank in passes
        )
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        raise InputError(
            f"the order {order!r} must give a tuple of Pass(stage, kind, micro_batch) for each rank"
        ) from error


def _check_once(order: Extension[PassOrder], stages: tuple[int, ...], of_rank: Ints, micro_batches: int) -> None:
    """Raise InputError unless each stage of a rank has each of its passes once."""
    runs = np.zeros((max(stages) + 1, len(KINDS), micro_batches), np.int64)
    stage, _, micro_batch = of_rank.T
    unknown = np.flatnonzero(~np.isin(stage, stages) | (micro_batch < 0) | (micro_batch >= micro_batches))
    if len(unknown):
        at, kind, number = of_rank[unknown[0]].tolist()
        raise InputError(
            f"the order {order!r} runs {KINDS[kind].value}{number} of stage {at} on a device of stages {list(stages)}, "
            f"with {micro_batches} micro-batches; it must run the passes of these stages alone"
        )
    np.add.at(runs, tuple(of_rank.T), 1)
    runs = runs[list(stages)]
    missing = runs == 0
    is_apart = ~missing[:, INPUT_GRADIENT:].all(axis=1)  # any of the two parts
    missing[:, BACKWARD] &= ~is_apart
    missing[:, INPUT_GRADIENT:] &= is_apart[:, None]
    twice = runs > 1
    twice[:, BACKWARD] |= (runs[:, BACKWARD] > 0) & is_apart
    for wrong, how in ((missing, "never runs {}"), (twice, "runs {} twice")):
        if wrong.any():
            at, kind, number = np.argwhere(wrong)[0].tolist()
            which = how.format(f"{KINDS[kind].value}{number} of stage {stages[at]}")
            raise InputError(
                f"the order {order!r} {which}; each stage runs its forward pass, and its backward pass or both "
                "parts of it, once for each micro-batch"
            )
