"""What the nodes of traced programs are as ops: what they look at, compute, read and write, and their names."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from graphs.op_graph import SPARSE
from graphs.op_graph.precision import precision_of

aten = torch.ops.aten

# Every row is multiplied by its group's matrix, as in mixtures of experts. PyTorch's counter may not know these.
_GROUPED_PRODUCTS = {"aten._grouped_mm", "transformers.grouped_mm_fallback"}
# These read as much of their first operand as they write.
_LOOK_UPS = {
    aten.embedding, aten.gather, aten.index, aten.index_select, aten.nll_loss_forward, aten.nll_loss2d_forward,
}  # fmt: skip


def viewed(node: Node) -> Node | None:
    """The node whose memory a node looks at, or None for an op with an output of its own."""
    if is_getitem(node):
        return node.all_input_nodes[0]
    is_view = getattr(node.target, "is_view", False) or node.target is aten._unsafe_view.default
    return node.all_input_nodes[0] if is_view and node.all_input_nodes else None


def base_of(node: Node) -> Node:
    """The node whose memory a node looks at, through whatever views; of an op, the node itself."""
    while (base := viewed(node)) is not None:
        node = base
    return node


def is_getitem(node: Node) -> bool:
    """Whether a node picks one of several outputs."""
    return getattr(node.target, "__name__", "") == "getitem"


def is_part(node: Node, base: Node) -> bool:
    """Whether a view shows less than all of its base."""
    if is_getitem(node):
        base = viewed(base) or node  # the tensor that was split; one of several outputs is no part of the others
    if not isinstance(node.meta["val"], Tensor):
        return False  # a split, whose parts come as getitems
    return bool(sum(t.numel() for t in tensors_of(node)) < sum(t.numel() for t in tensors_of(base)))


def tensors_of(node: Node) -> list[Tensor]:
    """What a node gives, without data."""
    value = node.meta.get("val")
    if isinstance(value, Tensor):
        return [value]
    return [part for part in tree_leaves(value) if isinstance(part, Tensor)]


def bytes_of(tensors: Iterable[Tensor]) -> float:
    """Bytes that tensors occupy; a dimension that was expanded occupies nothing."""
    total = 0.0
    for tensor in tensors:
        shown = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or size == 0]
        total += float(math.prod(shown)) * tensor.element_size()
    return total


def multiplied_in(nodes: Iterable[Node]) -> str:
    """That of the first tensor of some nodes."""
    dtypes = (str(tensor.dtype).removeprefix("torch.") for node in nodes for tensor in tensors_of(node))
    return precision_of(next(dtypes, ""))


def traffic(node: Node) -> float:
    """Bytes read and written."""
    written = bytes_of(tensors_of(node))
    read = [bytes_of(tensors_of(source)) for source in node.all_input_nodes]
    packet = getattr(node.target, "overloadpacket", None)
    if packet in _LOOK_UPS and read:
        read[0] = min(read[0], written)
    elif packet is aten._embedding_bag:  # which reads the rows of a bag, and writes their sum
        table, indices = (argument.meta["val"] for argument in node.args[:2])  # type: ignore[union-attr]  # both nodes
        read[0] = min(read[0], read[0] / max(table.shape[0], 1) * indices.numel())
    return written + sum(read)


def flops_of(node: Node) -> float:
    """FLOP of products, convolutions and attention, as PyTorch's counter has them; 0 of all else."""
    packet = getattr(node.target, "overloadpacket", None)
    count: Callable[..., Any] | None = flop_registry.get(packet)
    is_attention, is_grouped = packet is aten.scaled_dot_product_attention, str(packet) in _GROUPED_PRODUCTS
    if packet is aten.addbmm:  # of which the counter knows the backward pass alone
        count = _batched_product
    if not (count or is_attention or is_grouped):
        return 0.0
    args, kwargs = tree_map_only(Node, lambda read: read.meta["val"], (node.args, dict(node.kwargs)))
    if is_attention:
        query, key, value = (tuple(tensor.shape) for tensor in args[:3])
        heads = 1, math.prod(query[:-2])  # keys and values may be shared by several heads
        shapes = (heads + shape[-2:] for shape in (query, key, value))
        return float(sdpa_flop_count(*shapes))  # type: ignore[no-untyped-call]
    if is_grouped:
        return float(2 * node.meta["val"].numel() * args[0].shape[-1])
    return float(count(*args, **kwargs, out_val=node.meta["val"])) if count else 0.0


def _batched_product(_: Tensor, first: Tensor, second: Tensor, **__: object) -> float:
    return 2.0 * first.numel() * second.shape[-1]


def name_of(node: Node) -> str:
    """Module path and unique node name: "layers.0.cell/addmm_3"."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    return f"{path}/{node.name}" if path else node.name


def kind_of(node: Node) -> str:
    """The operation, without its overload: "aten.mm"."""
    target = node.all_input_nodes[0].target if is_getitem(node) else node.target
    return str(getattr(target, "overloadpacket", target)) + (SPARSE if _is_sparse(node) else "")


def _is_sparse(node: Node) -> bool:
    """Whether an op looks rows up whose gradient alone it will send."""
    schema = getattr(node.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema else []
    if "sparse" not in names:
        return False
    position = names.index("sparse")
    return bool(node.args[position] if position < len(node.args) else node.kwargs.get("sparse", False))
