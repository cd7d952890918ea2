"""Neighbours of cuts: ops of one kind divide something else along one axis, and all others what then costs least.

What a plan takes is not the sum of what its ops cost: sums pass while others compute, and links are shared. So the
elimination, which is exact in costs, proposes what else has to change with a kind of ops, and a simulation decides.
Kinds of which a change was accepted keep it from then on.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from graphs.op_graph import OpGraph
from placers.splits.cuts import SplitAssignment, cheapest
from placers.splits.options import Splitting
from placers.splits.pairwise_costs import PairwiseCosts
from placers.splits.parts import Option
from placers.splits.pricing import Pricing

Kind = tuple[int, ...]  # variables that change together


@dataclass(frozen=True, eq=False)
class Kept:
    """Cuts, of which some variables are kept as they are."""

    cuts: SplitAssignment
    kept: frozenset[int] = frozenset()


def kinds_of(graph: OpGraph, splitting: Splitting) -> tuple[Kind, ...]:
    """Kinds of ops whose changes are tried, one after the other; ops of the split graph are those of the graph.

    Ops that compute the same, layer for layer, are one kind with their gradients first, and then without them. Of each
    sort those that take longest come first.
    """
    alone, together = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    seconds = defaultdict[int, float](float)
    operators = [id(op.operator) for op in splitting.graph.ops]
    for op, (variable, mirror) in enumerate(zip(splitting.of_op, graph.mirror.tolist(), strict=True)):
        seconds[variable] += splitting.graph.ops[op].seconds
        alone[operators[op]].append(variable)
        together[operators[op if mirror < 0 else mirror]].append(variable)
    kinds = list[Kind]()
    for sort in (together, alone):
        found = [tuple(dict.fromkeys(several)) for several in sort.values()]
        kinds += sorted(found, key=lambda kind: -sum(seconds[variable] for variable in kind))
    return tuple(dict.fromkeys(kinds))


def neighbours(pricing: Pricing, start: Kept, kinds: Sequence[Kind], limit: float) -> Iterator[tuple[int, Kept]]:
    """Cuts within a limit on memory with the position of the kind that differs, kind by kind; all that do change."""
    splitting = pricing.splitting
    axes: list[tuple[list[list[Option]], PairwiseCosts]] = []
    for axis in range(len(splitting.mesh)):
        options = splitting.instead(start.cuts.options, axis)
        axes.append((options, pricing.costs(options)))
    for position, kind in enumerate(kinds):
        for axis, (options, costs) in enumerate(axes):
            now = {start.cuts.options[variable][axis] for variable in kind}
            names = dict.fromkeys(option[axis] for variable in kind for option in options[variable])
            for name in names:
                if now != {name}:
                    changed = {v: name for v in kind if any(option[axis] == name for option in options[v])}
                    forced = _forced(start, options, changed, axis)
                    found = cheapest(pricing, options, costs.plus(forced), limit)
                    yield position, Kept(found, start.kept | changed.keys())


def _forced(
    start: Kept, options: Sequence[Sequence[Option]], changed: dict[int, str], axis: int
) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """(variables,) infinite for the options that a variable may not have."""
    found = []
    for variable, several in enumerate(options):
        if variable in changed:
            name = changed[variable]
            found.append(np.array([0.0 if option[axis] == name else np.inf for option in several]))
        elif variable in start.kept:
            now = start.cuts.options[variable]
            found.append(np.array([0.0 if option == now else np.inf for option in several]))
        else:
            found.append(np.zeros(len(several)))
    return found
