"""ProgramPart: some ops of a captured program, as they are run together: ATen nodes, and what these read and make."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from operator import getitem
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from graphs.capture.own_functions import OwnCall

aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class ProgramPart:
    """The nodes of a set of ops, each after those that it reads, and what they have to do with all others.

    A *result* is a tensor that an op makes: its output or, of an op with several, one of them. Views are no results:
    each part makes those that it reads again.
    """

    ops: frozenset[int]
    nodes: tuple[Node, ...]  # all that is computed
    reads: tuple[Node, ...]  # results of other ops
    weights: Mapping[Node, str]  # by the nodes that stand for them, their names
    inputs: Mapping[Node, int]  # their leaves in the model's arguments
    buffers: Mapping[Node, str]  # their names
    constants: Mapping[Node, Tensor]
    results: tuple[Node, ...]  # its own, as far as others read them
    outputs: tuple[Node, ...]  # what the loss adds up, if it is one of the ops
    updates: Mapping[str, Node]  # the new values of buffers, by name
    shown: Mapping[int, Node] = field(default_factory=dict)  # what the model returns that the loss does not read
    stopped: frozenset[Node] | set[Node] = frozenset()  # those nodes through which no gradient goes back
    own_calls: tuple[OwnCall, ...] = ()  # of functions with their own backward pass, which it calls
    cuts: Set[tuple[Node, Node]] = frozenset()  # what a node reads without giving it a gradient, and that node

    @property
    def placeholders(self) -> tuple[Node, ...]:
        """All that is given to it, in the order in which its module takes them."""
        return (*self.reads, *self.weights, *self.inputs, *self.buffers, *self.constants)

    @property
    def returned(self) -> tuple[Node, ...]:
        """What its module returns, but for the loss, which comes last, if it is one of the ops."""
        return (*self.results, *self.updates.values(), *self.shown.values())

    def module(self, device: torch.device) -> GraphModule:
        """A module that takes the tensors of `placeholders` and returns a tuple of those of `returned`.

        The loss, which is the sum of all elements of `outputs`, follows as one number. Tensors that it makes of nothing
        (`zeros`) are made on the given device.
        """
        graph = Graph()
        made: dict[Node, Node] = {node: graph.placeholder(node.name) for node in self.placeholders}

        def replaced(value: Any, reader: Node) -> Any:
            if isinstance(value, Node):
                is_cut = (value, reader) in self.cuts
                return graph.call_function(aten.detach.default, (made[value],)) if is_cut else made[value]
            return device if isinstance(value, torch.device) else value

        calls = {node: call for call in self.own_calls for node in call.nodes}
        for node in self.nodes:
            if node in calls:
                if node not in made:
                    made |= _called(calls[node], graph, made)
                continue
            args, kwargs = tree_map(partial(replaced, reader=node), (tuple(node.args), dict(node.kwargs)))
            made[node] = graph.call_function(node.target, args, kwargs)  # type: ignore[arg-type]  # a function
            if node in self.stopped:
                made[node] = graph.call_function(aten.detach.default, (made[node],))
        returned = [made[node] for node in self.returned]
        if self.outputs:
            sums = [graph.call_function(aten.sum.default, (made[node],)) for node in self.outputs]
            loss = sums[0]
            for each in sums[1:]:
                loss = graph.call_function(aten.add.Tensor, (loss, each))
            returned.append(loss)
        graph.output(tuple(returned))
        return GraphModule({}, graph)


def _called(call: OwnCall, graph: Graph, made: Mapping[Node, Node]) -> dict[Node, Node]:
    """A custom function is applied to tensors that a graph has made: the nodes of what it returns, by the program's."""
    leaves, tree = tree_flatten(call.arguments)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Node)]

    def apply(*tensors: Tensor) -> Any:
        given = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        return call.function.apply(*tree_unflatten(given, tree))  # type: ignore[attr-defined]  # of a Function

    applied = graph.call_function(apply, tuple(made[leaves[place]] for place in places))
    found = dict.fromkeys(call.nodes, applied)  # only those that are returned are read
    if isinstance(call.returned, Node):
        return found | {call.returned: applied}
    parts = enumerate(call.returned)
    return found | {
        node: graph.call_function(getitem, (applied, place)) for place, node in parts if isinstance(node, Node)
    }
