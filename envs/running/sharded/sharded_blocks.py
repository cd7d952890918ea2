"""Sharded blocks: which modules of a model hold the blocks of layers whose weights a plan gathers together.

They are what `fully_shard` is called with, before the model itself, whose group is of all other weights. A block whose
weights other code reads, too, is in that group: the plan has these weights outside of blocks.
"""

from collections import defaultdict
from itertools import takewhile

import numpy as np
from torch import nn

from envs.expansion.layout import Layout
from envs.plans.blocks import parts_again
from envs.plans.plan import Plan
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph, Phase
from graphs.op_groups.layer_names import block_names, named_blocks, path
from graphs.problem import Problem


def sharded_blocks(graph: OpGraph, module: nn.Module) -> list[nn.Module]:
    """The modules of blocks that hold weights, each of which ops of that block alone read."""
    readers, block = defaultdict[str, set[int]](set), named_blocks(graph)
    for op, weight in graph.weight_uses.tolist():
        if graph.phase[op] == Phase.FORWARD:
            readers[graph.weight_names[weight]].add(int(block[op]))
    of_weight = defaultdict[nn.Parameter, set[int]](set)
    for name, weight in module.named_parameters(remove_duplicate=False):
        of_weight[weight] |= readers[name]
    found = list[nn.Module]()
    for number, of_block in enumerate(block_names(graph)):
        held = _submodule(module, of_block)
        if held is not None and any(True for _ in held.parameters()):
            own = set().union(*(of_weight[weight] for weight in held.parameters()))
            outside = {id(each) for name, each in _named(module) if not name.startswith(f"{of_block}.")}
            if own <= {number} and outside.isdisjoint(map(id, held.parameters())):
                found.append(held)
    return found


def checkpointed_modules(problem: Problem, plan: Plan, module: nn.Module) -> list[nn.Module]:
    """The modules that a plan computes again, each as one. Raises InputError for ops again that are no module's."""
    graph = problem.graph
    part = np.where(graph.phase == Phase.FORWARD, parts_again(graph, Layout(problem, plan).stage, plan.schedule), -1)
    paths, found = [".".join(path(name)) for name in graph.names], list[nn.Module]()
    for each in np.unique(part[part >= 0]).tolist():
        ops = np.flatnonzero(part == each).tolist()
        common = _common([paths[op] for op in ops])
        held = _submodule(module, common)
        inside = [
            op
            for op in np.flatnonzero(graph.phase == Phase.FORWARD).tolist()
            if f"{paths[op]}.".startswith(f"{common}.")
        ]
        if held is None or inside != ops:
            raise InputError(
                f"the plan recomputes {graph.names[ops[0]]!r} to {graph.names[ops[-1]]!r}, and whole modules are "
                f"recomputed, none of {graph.name!r} being these ops; take whole blocks, as fsdp:recompute=true"
            )
        found.append(held)
    return found


def _common(paths: list[str]) -> str:
    """The module that all paths are in."""
    parts = [each.split(".") for each in paths]
    same = takewhile(lambda several: len(set(several)) == 1, zip(*parts, strict=False))
    return ".".join(several[0] for several in same)


def _named(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return list(module.named_parameters(remove_duplicate=False))


def _submodule(module: nn.Module, name: str) -> nn.Module | None:
    try:
        return module.get_submodule(name) if name else None
    except AttributeError:
        return None
