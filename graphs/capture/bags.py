"""Bags: how many samples a model is given whose rows its EmbeddingBags add up, each bag as many as offsets say."""

from collections.abc import Mapping, Set

import torch
from torch import Tensor
from torch.fx import Node

from graphs.capture.program import TracedProgram

aten = torch.ops.aten

BAGS = (aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
OFFSETS = 2  # the argument's position


def bags_in(program: TracedProgram, existing: Mapping[Tensor, str]) -> int:
    """The bags of each EmbeddingBag whose offsets are computed from inputs; 0 if there are none, or they have unlike.

    `existing` are the tensors that the module holds or is given, with their names, which are "" of inputs.
    """
    given = {node for node, tensor in program.inputs.items() if existing.get(tensor) == ""}
    counts = {
        int(node.meta["val"][0].shape[0])
        for node in program.nodes
        if node.target in BAGS and read_by(node.args[OFFSETS]) & given
    }
    return counts.pop() if len(counts) == 1 else 0


def read_by(computed: object) -> Set[Node]:
    """A node and those that it is computed from, through whatever ops."""
    found, stack = set[Node](), [computed]
    while stack:
        node = stack.pop()
        if isinstance(node, Node) and node not in found:
            found.add(node)
            stack.extend(node.all_input_nodes)
    return found
