"""Which degrees divide ops inside of a stage: read off a plan's splits, whoever found them.

The axes of a plan's mesh are those of replicas, experts, the sequence and columns and rows of weights, in this order
(`placers.splits.degrees`), each of which may be several: a plan that was searched has axes of prime lengths. Of all
ways to tell them apart, the one is taken whose rule divides most ops as the plan does.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from envs.plans.mesh import Mesh, Split, length, mesh_of
from envs.plans.plan import Plan
from graphs.descriptions.descriptions import descriptions_of
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from placers.splits.degrees import Degrees

Roles = tuple[frozenset[str], ...]  # of an op: by what the axes are for, the indices that it divides


@dataclass(frozen=True)
class StageDegrees:
    """The degrees, and what they divide."""

    degrees: Degrees
    split: tuple[Split, ...] = ()  # by their rule
    mesh: Mesh = ()
    unlike: int = 0  # ops that the plan divides otherwise


def stage_degrees(problem: Problem, plan: Plan, to: str) -> StageDegrees:
    """Those of a plan whose stages have as many devices each.

    Raises InputError, naming the format, for splits that are like those of no degrees.
    """
    width = len(plan.devices[0])
    if not plan.split:
        return StageDegrees(Degrees(width, 1, 1, 1, sequence=False))
    graph, axes = problem.graph, mesh_of(plan.mesh, width)
    lengths = [length(axis) for axis in axes]
    replicas = _axes_of_replicas(graph, plan.split, len(axes))
    if replicas == len(axes):
        _check_replicas(graph, plan, to)
        return StageDegrees(Degrees(width, 1, 1, 1, sequence=False))
    found: StageDegrees | None = None
    for parts in _ways(_axes_of_weights(graph, plan.split, len(axes))[replicas:]):
        groups = (replicas, *parts)
        for tried in _tried(graph, plan, lengths, groups):
            if found is None or tried.unlike < found.unlike:
                found = tried
        if found is not None and not found.unlike:
            break
    if found is None:
        raise InputError(
            f"{to} divides ops by experts, along the sequence, or by columns and rows of weights, and those of "
            f"{graph.name!r} can be divided by none of them; give it another plan"
        )
    return found


def _ways(of_weights: Sequence[bool]) -> Iterator[tuple[int, int, int]]:
    """How many of the axes, (axes,), are of experts, of the sequence and of columns and rows; those alone first.

    Along the sequence devices have the same weights, and otherwise parts of them.
    """
    axes = len(of_weights)
    for experts in range(axes + 1):
        for sequence in range(axes + 1 - experts):
            if experts and sequence:  # as `parallel` has it
                continue
            if not any(of_weights[experts : experts + sequence]) and all(of_weights[experts + sequence :]):
                yield experts, sequence, axes - experts - sequence


def _tried(graph: OpGraph, plan: Plan, lengths: Sequence[int], groups: tuple[int, ...]) -> Iterator[StageDegrees]:
    """The degrees by which axes are told apart as in these groups, with sequence parallelism and without.

    And with weights that are fully sharded over replicas and parts of the sequence, or whole.
    """
    ends = [sum(groups[:number]) for number in range(len(groups) + 1)]
    outer, ep, cp, tp = (math.prod(lengths[first:end]) for first, end in pairwise(ends))
    kept = [slice(first, end) for first, end in pairwise(ends) if end > first]
    planned = _roles(graph, plan.split, len(lengths), kept)
    sharded = (False, True) if outer * ep * cp > 1 else (False,)
    for sequence, is_sharded in product((False, True) if tp > 1 else (False,), sharded):
        degrees = Degrees(outer * ep, ep, cp, tp, sequence, is_sharded)
        try:
            split, mesh, _ = degrees.of_ops(graph)
        except InputError:
            continue
        ruled = _roles(graph, split, len(mesh), [slice(number, number + 1) for number in range(len(mesh))])
        unlike = sum(one != other for one, other in zip(planned, ruled, strict=True))
        if not (unlike and is_sharded):  # updates that a search has divided are no rule
            yield StageDegrees(degrees, split, mesh, unlike)


def _roles(graph: OpGraph, by_op: Sequence[Split], axes: int, roles: Sequence[slice]) -> list[Roles]:
    """(ops,) what each divides by role."""
    found = list[Roles]()
    for split, each in zip(by_op, descriptions_of(graph), strict=True):
        names = split or ("" if each is None else each.batch,) * axes
        found.append(tuple(frozenset(names[role]) for role in roles))
    return found


def _axes_of_replicas(graph: OpGraph, by_op: Sequence[Split], axes: int) -> int:
    """How many of the first axes divide the batch of forward ops, or nothing."""
    divided = [set[str]() for _ in range(axes)]
    for op, (split, each) in enumerate(zip(by_op, descriptions_of(graph), strict=True)):
        for number, index in enumerate(split if graph.phase[op] == Phase.FORWARD else ()):
            divided[number].add("" if each is not None and index == each.batch else index)
    return next((number for number, found in enumerate(divided) if found - {""}), axes)


def _axes_of_weights(graph: OpGraph, by_op: Sequence[Split], axes: int) -> list[bool]:
    """(axes,) whether most updates that each divides are divided as their forward ops, as columns and rows of weights.

    Those of a forward pass alone are taken for such.
    """
    if not graph.is_training:
        return [True] * axes
    alike, others = np.zeros(axes, np.int64), np.zeros(axes, np.int64)
    for op in np.flatnonzero(graph.phase == Phase.UPDATE).tolist():
        forward, update = (by_op[each] or ("",) * axes for each in (int(graph.mirror[op]), op))
        for axis, (one, other) in enumerate(zip(forward, update, strict=True)):
            alike[axis] += bool(other) and one == other
            others[axis] += bool(other) and one != other
    return [same > other for same, other in zip(alike.tolist(), others.tolist(), strict=True)]


def _check_replicas(graph: OpGraph, plan: Plan, to: str) -> None:
    """Raise InputError if what follows the forward pass is not divided by the batch, as that is."""
    for op, (split, each) in enumerate(zip(plan.split, descriptions_of(graph), strict=True)):
        if graph.phase[op] != Phase.FORWARD and set(split) - {"", "" if each is None else each.batch}:
            raise InputError(
                f"this plan divides op {graph.names[op]!r} among replicas, which {to} is told by a stage of ZeRO; give "
                "a plan with zero=1, 2 or 3"
            )
