"""What a plan says of a model's code: on which device each call runs, and where each weight is kept.

A plan decides about ops. A call of a function, such as `cross_entropy`, may be several of them, and runs on one device:
that of its op with most FLOPs, or else most memory traffic. One that changes a tensor in place runs where that is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from envs.placed_models.in_place import changes_by_name
from envs.plans.plan import Plan
from graphs.algorithms.components import connected_components
from graphs.op_graph import Call, Ints, OpGraph, Phase
from graphs.op_groups.grouping import untied
from graphs.op_groups.whole_modules import check_calls
from graphs.problem import Problem
from graphs.transforms.module_calls import weight_owners

LOSS = "loss"  # the kind of the op that turns a model's outputs into one number


@dataclass(frozen=True, eq=False)
class CallPlacement:
    """Where calls run, and where weights are kept; devices by their numbers in the cluster."""

    devices: Mapping[Call, int]
    homes: Mapping[str, int]  # name of a weight -> device of the op that updates it, or else of its first user
    loss_device: int = -1  # where the loss is computed; -1 if the graph has none
    loss_reads: frozenset[Call] = frozenset()  # the calls whose outputs it is computed from
    of_training: bool = True

    @classmethod
    def of(cls, graph: OpGraph, plan: Plan) -> CallPlacement:
        """What a plan says whose calls are on one device each, as `on_calls` makes it."""
        placement = plan.placement
        devices = {call: device for call, device in zip(graph.calls, placement.tolist(), strict=True) if call}
        homes = {
            name: int(placement[op])
            for name, op in zip(graph.weight_names, weight_owners(graph).tolist(), strict=True)
            if op >= 0
        }
        losses = [op for op, kind in enumerate(graph.kinds) if kind == LOSS and graph.mirror[op] < 0]
        if not losses:
            return cls(devices, homes, of_training=graph.is_training)
        read = graph.edges[(graph.edges[:, 1] == losses[-1]) & ~graph.control, 0].tolist()
        reads = frozenset(call for op in read if (call := graph.calls[op]) is not None)
        return cls(devices, homes, int(placement[losses[-1]]), reads, graph.is_training)


def on_calls(
    problem: Problem, plan: Plan, model: nn.Module, who: str = "parallelize"
) -> tuple[Problem, Plan, tuple[Call, ...]]:
    """The plan with each call on one device, its problem without op groups, and the calls that were on several.

    Raises InputError, saying `who` takes op placements only, for a plan that is none; and for a graph that does not
    know its calls or its weights.
    """
    graph = untied(problem.graph)
    plan.per_unit(replace(problem, graph=graph), who)
    check_calls(graph)
    placement = plan.placement
    component = _tied(graph, model)
    by_work = np.lexsort((np.arange(len(graph))[::-1], graph.bytes_accessed, graph.flops))  # the largest last
    by_work = by_work[graph.phase[by_work] == Phase.FORWARD]
    largest = np.full(component.max() + 1, -1)
    largest[component[by_work]] = by_work
    rounded = placement[largest[component]]
    apart = dict.fromkeys(graph.calls[op] for op in np.flatnonzero((rounded != placement) & (graph.mirror < 0)))
    moved = tuple(call for call in apart if call is not None)
    return replace(problem, graph=graph), replace(plan, devices=tuple((int(each),) for each in rounded)), moved


def _tied(graph: OpGraph, model: nn.Module) -> Ints:
    """(ops,) the ops that a call ties together, with what goes with them.

    These are their backward and update ops, the parts of their outputs, and the calls that change their outputs in
    place: those that their names or their modules tell.
    """
    first: dict[Call, int] = {}
    pairs = [(op, first.setdefault(call, op)) for op, call in enumerate(graph.calls) if call is not None]
    is_part = (graph.flops == 0) & (graph.bytes_accessed == 0) & (graph.phase == Phase.FORWARD)
    producers: dict[int, int] = {}
    for producer, consumer in graph.edges[is_part[graph.edges[:, 1]] & ~graph.control].tolist():
        producers.setdefault(consumer, producer)
    in_place = {path for path, part in model.named_modules() if getattr(part, "inplace", False) is True}
    for call, op in first.items():
        read = graph.signatures.numbers(op) if graph.signatures else []
        if read and read[0] >= 0 and (changes_by_name(call.function) or call.module in in_place):
            pairs.append((op, read[0]))
    mirrored = np.flatnonzero(graph.mirror >= 0)
    tied = [np.array([*pairs, *producers.items()], np.int64), np.stack([mirrored, graph.mirror[mirrored]], axis=1)]
    return connected_components(np.concatenate(tied), len(graph))
