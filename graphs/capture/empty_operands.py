"""Empty operands: what a concatenation joins to nothing, as a key-value cache does that begins empty, it copies."""

from collections.abc import Container, Iterable
from typing import Any

import torch
from torch.fx import Node

_JOINING = (torch.ops.aten.cat.default,)


def leave_out_empty(nodes: Iterable[Node], sends: Container[Node]) -> None:
    """Concatenations no longer read tensors without elements, of whatever shape, as nothing of these is in the result.

    They still read one that gradients are sent through (`sends`), which PyTorch gives a gradient, too, and the empty
    tensors of which nothing else is joined.
    """
    for node in nodes:
        if node.target in _JOINING and node.meta["val"].numel():
            joined: Any = node.args[0]
            node.args = [each for each in joined if each in sends or each.meta["val"].numel()], *node.args[1:]
