"""Gradient rules: which operations hand gradients on, and which outputs of a module are trained, as autograd has it."""

import operator
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from torch import Tensor
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from graphs.capture.gradient_flow import HAS_NO_GRADIENT, detaches

LOSS = "loss"  # the name of what is trained, where a module returns several results by name


def sends_gradients(node: Node, made: object) -> bool:
    """Whether a node, if gradients are enabled, sends one back from what it has made."""
    can = any(
        isinstance(part, Tensor) and (part.is_floating_point() or part.is_complex()) for part in tree_leaves(made)
    )
    return can and _is_differentiable(node.target) and not _is_statistic(node)


def trained(returned: object, results: Iterable[Any], requires_grad: Callable[[Any], bool]) -> list[Any]:
    """The results of a module whose sum is trained: that called "loss", or else all that have a gradient.

    So do transformers' models with labels: their loss is trained, and not what they return next to it.
    """
    named = returned.get(LOSS) if isinstance(returned, Mapping) else getattr(returned, LOSS, None)
    if named is not None and requires_grad(named):
        return [named]
    return [result for result in results if requires_grad(result)]


def _is_statistic(node: Node) -> bool:
    """Whether a node picks a mean or variance that a batch norm returns after its output."""
    if node.target is not operator.getitem:
        return False
    norm, position = node.all_input_nodes[0], node.args[1]
    return bool(position != 0 and "batch_norm" in str(norm.target))


@cache
def _is_differentiable(operation: Any) -> bool:
    if operation is operator.getitem:
        return True
    return operation.overloadpacket.__name__ not in HAS_NO_GRADIENT and not detaches(operation)
