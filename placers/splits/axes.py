"""Axes: the split of every op over a mesh, put together of what each axis divides."""

from collections.abc import Sequence

from envs.plans.mesh import Axis, Mesh, Split, length
from graphs.descriptions.descriptions import descriptions_of
from graphs.op_graph import OpGraph
from placers.splits.split_graph import NONE

By = Sequence[str]  # (ops,) the index that each divides, or ""


def along_batch(graph: OpGraph, count: int) -> tuple[str, ...]:
    """(ops,) the index of samples where there are `count` of them; "" of other ops."""
    described = descriptions_of(graph)
    return tuple(
        each.batch if each is not None and each.batch and each.operator.sizes[each.batch] >= count else NONE
        for each in described
    )


def where_none(by: By, other: By) -> tuple[str, ...]:
    """(ops,) what each divides by the first or, of ops that do not, by the other."""
    return tuple(name or instead for name, instead in zip(by, other, strict=True))


def over_mesh(graph: OpGraph, axes: Sequence[tuple[Axis, By]]) -> tuple[tuple[Split, ...], Mesh]:
    """(ops,) the split of each over axes of so many parts, or shares, and their mesh; those of one part are left out.

    What divides samples alone is left open, and so computed as replicas do (`Plan.split`).
    """
    kept = [(axis, by) for axis, by in axes if length(axis) > 1]
    split = list[Split]()
    for each, names in zip(descriptions_of(graph), zip(*(by for _, by in kept), strict=True), strict=True):
        split.append(() if each is not None and each.batch and set(names) == {each.batch} else names)
    return tuple(split), tuple(axis for axis, _ in kept)
