"""Validation of a plan's split: each check raises one sentence that names the op, and the remedy."""

from envs.plans.mesh import Mesh, Split, length, mesh_of, shards, spaces, split_of
from envs.plans.schedule import Schedule
from envs.plans.stages import Devices
from graphs.descriptions.descriptions import descriptions_of
from graphs.foundation.errors import InputError
from graphs.notation.described import Described
from graphs.op_graph import OpGraph


def check_split(graph: OpGraph, devices: Devices, schedule: Schedule, split: tuple[Split, ...], mesh: Mesh) -> None:
    """Raise InputError for indices that ops do not have, cannot divide, or cannot divide into that many parts.

    Also for a mesh that no op is on, and for what cannot be combined with a split. `devices` are those of each op.
    """
    if not split:
        raise InputError("the plan has a mesh, and no split over it; say by op which index each axis divides")
    if len(split) != len(graph):
        raise InputError(
            f"the plan's split is for {len(split)} ops, {graph.name!r} has {len(graph)}; give one for each, () for the "
            "batch"
        )
    _check_mesh(devices, mesh)
    _check_combination(graph, schedule)
    described = descriptions_of(graph)
    seen: set[tuple[int, Split, int]] = set()
    for op, (each, several, what) in enumerate(zip(split, devices, described, strict=True)):
        key = (id(what and what.operator), each, len(several))
        if key in seen:
            continue
        seen.add(key)
        if wrong := _wrong(what, each, several, mesh, schedule.micro_batches):
            raise InputError(f"op {graph.names[op]!r} {wrong}")


def _check_mesh(devices: Devices, mesh: Mesh) -> None:
    for axis in mesh:
        if length(axis) < 2 or (not isinstance(axis, int) and min(axis) <= 0):
            raise InputError(
                f"the mesh has an axis {axis!r}; expected at least 2 parts, or the share of each, more than 0"
            )
    if mesh and all(len(several) != shards(mesh) for several in devices):
        raise InputError(
            f"the mesh has {shards(mesh)} devices, and no op is on that many; give ops as many, or change the mesh"
        )


def _check_combination(graph: OpGraph, schedule: Schedule) -> None:
    if schedule.sharing != "split" or schedule.update != "step":
        what = "replicas that take turns" if schedule.sharing != "split" else "an update after each micro-batch"
        raise InputError(f"a split of ops cannot be combined with {what}; take the default")
    if schedule.shares:
        raise InputError(
            "a split of ops cannot be combined with shares of replicas; give the mesh an axis of shares, as ((3, 1),)"
        )
    if schedule.zero:
        raise InputError(
            "a split of ops cannot be combined with ZeRO; divide the updates, whose weights are then stored so"
        )
    if schedule.offload:
        raise InputError("a split of ops cannot be combined with offload; leave one out")
    if len(graph.edge_bytes) or len(graph.transfer_bytes):
        raise InputError(
            f"graph {graph.name!r} says what transfers move, and not which part of it each shard needs; leave out the "
            "plan's split, or transfer_bytes and messages of edges"
        )


def _wrong(described: Described | None, split: Split, devices: tuple[int, ...], mesh: Mesh, batches: int) -> str:
    """Why an op cannot be divided like that, or nothing."""
    axes = mesh_of(mesh, len(devices))
    if len(devices) == 1:
        return "is on one device, and is divided; give it () for its split" if any(split) else ""
    if split and len(split) != len(axes):
        return (
            f"is divided along {len(split)} axes, and its {len(devices)} devices have {len(axes)}; name an index each"
        )
    named = [index for index in split if index]
    if described is None:
        return f"has no description, and is divided along {named[0]!r}; give it () for its split" if named else ""
    operator = described.operator
    may = [name for name, size in operator.sizes.items() if name not in operator.opaque and size > 1]
    for index in named:
        if index not in may:
            return f"is divided along {index!r}; it can be divided along {', '.join(may) or 'none'}"
        reduced = any(index not in access.variables | access.apart for access in operator.writes)
        if reduced and operator.reducer != "sum":
            return (
                f"is divided along {index!r}, over which it takes the {operator.reducer}; only sums are added up from "
                "parts"
            )
    part = described.of_part(1, batches)
    if part is None:
        return (
            f"has {operator.sizes[described.batch]} values of its batch {described.batch!r}, which {batches} "
            "micro-batches do not divide; take fewer"
        )
    chosen = split_of(part, split, axes)
    for space in spaces(part.operator.space, chosen, axes):
        empty = next((index for index in chosen if index and not space[index].size), "")
        if empty:
            values = part.operator.sizes[empty]
            return (
                f"divides {empty!r}, which has {values} value{'s' * (values != 1)}"
                f"{' in a micro-batch' * (batches > 1)}, so that a shard has none; divide another, or use fewer devices"
                f"{' or micro-batches' * (batches > 1)}"
            )
    return ""
