"""Experts: the index of each op that runs over the experts of a mixture, each of which has weights of its own.

Experts are found where the weights of all are one tensor: a product of as many products, each by its own weight, as
`torch.bmm` computes them. What is between two such products of a layer is divided as they are. Before the first and
after the last one, tokens are divided by samples, so that an all-to-all brings them to their experts, and another one
back (Lepikhin et al. 2021, GShard).
"""

from collections.abc import Iterable

from graphs.notation.described import Described
from graphs.op_graph import OpGraph
from placers.splits.column_row import columns_and_rows_of, forward_ops, is_reduced, may_divide, mirrored
from placers.splits.sequences import followed, readers_of
from placers.splits.split_graph import NONE


def along_experts(graph: OpGraph, count: int) -> tuple[str, ...]:
    """(ops,) the index of experts that each op divides into `count` parts, or ""; gradients as their forward ops."""
    ops = forward_ops(graph)
    readers, order = readers_of(ops), [op for op in graph.topological_order.tolist() if op in ops]

    def first(op: int, names: Iterable[str]) -> str:
        operator = ops[op].operator
        return next(
            (name for name in names if may_divide(operator, name, count) and not is_reduced(operator, name)), NONE
        )

    after = {op: first(op, _experts_of(each)) for op, each in ops.items()}  # from a product on
    before = dict(after)  # up to a product
    for op in order:
        for source, access in zip(ops[op].sources, ops[op].operator.reads, strict=True):
            if not after[op] and source is not None and after.get(source.op):
                made = ops[source.op].operator.writes[source.result]
                after[op] = first(op, followed(made, after[source.op], access))
    for op in reversed(order):
        for result, reader, place in readers[op]:
            if not before[op] and before[reader]:
                read = ops[reader].operator.reads[place]
                before[op] = first(op, followed(read, before[reader], ops[op].operator.writes[result]))
    chosen = {op: name for op, name in after.items() if name and (before[op] == name or _has_own(ops[op], name))}
    return mirrored(graph, chosen, count)


def _experts_of(each: Described) -> list[str]:
    """The indices of a product that its weight has, and so has weights for each value of, but for rows and columns."""
    columns, rows = columns_and_rows_of(each)
    return [name for name in each.operator.sizes if columns and name not in columns + rows and _has_own(each, name)]


def _has_own(each: Described, name: str) -> bool:
    """Whether an op reads a weight for each value of an index."""
    pairs = zip(each.sources, each.operator.reads, strict=True)
    return any(source is not None and source.op < 0 and name in access.variables for source, access in pairs)
