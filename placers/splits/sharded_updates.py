"""Updates that are divided along axes of replicas, so that each replica stores its part of weights, and gathers others.

That is fully sharded data parallelism (stage 3 of ZeRO) where ops are divided by other indices, too: weights are stored
as their updates are divided (`envs.expansion.shards.stored_weights`).
"""

import math
from collections.abc import Sequence

from envs.plans.mesh import Mesh, Split, length
from graphs.descriptions.descriptions import descriptions_of
from graphs.notation.operator import Operator
from graphs.op_graph import OpGraph, Phase
from placers.splits.split_graph import NONE


def with_sharded_updates(graph: OpGraph, split: Sequence[Split], mesh: Mesh, axes: Sequence[int]) -> tuple[Split, ...]:
    """(ops,) the split, where updates divide along these axes, by their numbers, what they do not divide along them.

    Each divides its longest index, if that has enough values. What brings new weights to others is divided as updates.
    """
    found = list[Split]()
    for each, by, phase in zip(descriptions_of(graph), split, graph.phase, strict=True):
        if each is None or phase < Phase.UPDATE:
            found.append(by)
        elif phase == Phase.REFRESH:
            found.append(())
        else:
            found.append(_sharded(each.operator, by or (NONE,) * len(mesh), mesh, axes))
    return tuple(found)


def _sharded(operator: Operator, by: Split, mesh: Mesh, axes: Sequence[int]) -> Split:
    """The split of an update; what shards of weights divide, as columns, no other axis does if something else is left.

    Otherwise a device would store other columns than those that it computes with.
    """
    names = list(by)
    for axis in axes:
        if names[axis]:
            continue
        count, others = length(mesh[axis]), set(by) - {NONE}
        left = {
            name: size // math.prod(length(part) for part, other in zip(mesh, names, strict=True) if other == name)
            for name, size in operator.sizes.items()
            if name not in operator.opaque
        }
        may = [name for name, size in left.items() if size >= count]
        names[axis] = max(may, key=lambda name: (name not in others, left[name]), default=NONE)
    return tuple(names)
