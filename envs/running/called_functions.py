"""Called functions: whether a custom autograd function can be called in a part of a model that is run by itself.

The replay of a captured program calls it with the tensors of that part, so that gradients go through the user's own
backward pass. For that, one part runs all of its forward pass, and all that its forward pass reads are its arguments.
"""

from collections.abc import Container, Iterable

from torch import nn
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from graphs.capture.nested import tensors_in
from graphs.capture.own_functions import OwnCall


def why_not_called(call: OwnCall, homes: int, live: Container[Node], given: Container[Node]) -> str:
    """Why a function cannot be called with other tensors than those that were captured, or "".

    `homes` are how many parts run some of it, `live` the nodes that outputs depend on, `given` those that stand for
    weights, buffers and inputs.
    """
    leaves, inner = tree_leaves(call.arguments), set(call.nodes)
    arguments, returned = _nodes(leaves), _nodes(tree_leaves(call.returned))
    own = {node for node in inner if node in live}
    reads = {read for node in own for read in node.all_input_nodes} - inner
    elsewhere = {node for node in own if any(user in live and user not in inner for user in node.users)}
    if homes > 1:
        return "the plan runs its forward pass, or what reads that, in several parts"
    if not call.is_pure:
        return "it changes an argument in place"
    if any(isinstance(leaf, nn.Module) or (not isinstance(leaf, Node) and tensors_in(leaf)) for leaf in leaves):
        return "it is given a module, or tensors in an object, which the plan replaces"
    if any(read.op == "call_function" or read in given for read in reads - arguments):
        return "it reads a tensor that is not among its arguments, which the plan replaces"
    if not arguments <= reads or not elsewhere <= returned <= inner:
        return "it does not compute what it returns from all of its arguments"
    return ""


def _nodes(leaves: Iterable[object]) -> set[Node]:
    return {leaf for leaf in leaves if isinstance(leaf, Node)}
