"""TensorPlacements: a plan that divides ops, in the words of DTensor.

    plan                                                          DTensor
    mesh (2, 2), split ("n", "o")                                 x: (Shard(0), Replicate())
    y[n, o] = sum x[n, i] w[o, i]                                 w: (Replicate(), Shard(0))
    3 x 8 x 64 rows, by the 8 heads of query, key and value       w: (_StridedShard(0, split_factor=3),)

Said are the parts of weights that the updates store and those that forward ops read, of the inputs, and of what modules
return (`module_outputs`). A plan says more: what each op divides of other ops' outputs. DTensor decides that itself, by
the rules of its operations.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from torch.distributed.tensor import Placement, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from envs.plans.mesh import Mesh, Split, mesh_of, parts, split_of
from envs.plans.plan import Plan
from graphs.descriptions.descriptions import descriptions_of, updated_weights
from graphs.foundation.errors import InputError
from graphs.notation.affine import variable
from graphs.notation.described import Described
from graphs.notation.operator import Access
from graphs.notation.ranges import Range
from graphs.op_graph import Phase
from graphs.problem import Problem

Placements = tuple[Placement, ...]  # by axis of the mesh
Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class TensorPlacements:
    """What each device has of weights and inputs.

    Raises InputError, which names the op, for a plan that DTensor cannot say: ops on other devices than the others,
    micro-batches, unequal parts but for those of torch.chunk, or a weight that two ops read in different parts.
    """

    problem: Problem
    plan: Plan

    def __post_init__(self) -> None:
        self._check()
        _ = self.stored, self.inputs  # which raises what cannot be said

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices of the mesh, of which the last axis runs fastest."""
        return self.plan.devices[0]

    @cached_property
    def mesh(self) -> tuple[int, ...]:
        """How many parts each axis has."""
        return tuple(axis for axis in self._axes if isinstance(axis, int))

    @cached_property
    def read(self) -> dict[str, Placements]:
        """By weight what forward ops read of it."""
        found: dict[str, tuple[int, Placements]] = {}
        for op, weight, access in self._uses(Phase.FORWARD):
            placements = self.of_access(op, access, self.shapes.get(weight, ()), f"weight {weight!r}")
            first, before = found.setdefault(weight, (op, placements))
            if before != placements:
                names = self.problem.graph.names
                raise InputError(
                    f"ops {names[first]!r} and {names[op]!r} read other parts of weight {weight!r}, which one DTensor "
                    "cannot be; divide both alike"
                )
        return {weight: placements for weight, (_, placements) in found.items()}

    @cached_property
    def stored(self) -> dict[str, Placements]:
        """By weight what its update writes, and so what devices have of it; of one that has none, what is read."""
        found = dict(self.read)
        for op, weight, access in self._uses(Phase.UPDATE):
            found[weight] = self.of_access(op, access, self.shapes.get(weight, ()), f"weight {weight!r}")
        return found

    @cached_property
    def inputs(self) -> dict[int, Placements]:
        """By number, as sources of signatures are numbered, what the first op that reads an input has of it."""
        graph, found = self.problem.graph, dict[int, Placements]()
        for op, described in enumerate(self._described):
            if graph.phase[op] != Phase.FORWARD or graph.signatures is None or graph.signatures.of[op] < 0:
                continue
            numbers = graph.signatures.numbers(op)
            accesses = [None] * len(numbers) if described is None else described.operator.reads
            for number, access in zip(numbers, accesses, strict=True):
                if number < -len(graph.weights) and number not in found:
                    found[number] = self._of_input(op, access)
        return found

    @cached_property
    def _weight_names(self) -> tuple[str, ...]:
        """Those of the model or, in a graph that does not know them, their numbers."""
        graph = self.problem.graph
        return graph.weight_names or tuple(map(str, range(len(graph.weights))))

    # ---- an op ---------------------------------------------------------------------------------------------------

    def _uses(self, phase: Phase) -> Iterator[tuple[int, str, Access | None]]:
        """The ops of a phase, and which weights each reads or writes; None for ops that are not described."""
        graph, uses = self.problem.graph, dict[int, list[int]]()
        for op, weight in graph.weight_uses.tolist():
            uses.setdefault(op, []).append(weight)
        for op, described in enumerate(self._described):
            if graph.phase[op] != phase:
                continue
            known: list[tuple[int, Access | None]] = []
            if described is not None and phase == Phase.UPDATE:
                known += zip(updated_weights(self._described, op), described.operator.writes, strict=True)
            elif described is not None:
                reads = zip(described.sources, described.operator.reads, strict=True)
                known += [(each.weight, access) for each, access in reads if each is not None and each.weight >= 0]
            else:
                known += [(weight, None) for weight in uses.get(op if phase == Phase.FORWARD else graph.mirror[op], ())]
            yield from ((op, self._weight_names[weight], access) for weight, access in known)

    def of_access(self, op: int, access: Access | None, shape: Shape, what: str) -> Placements:
        """The parts of a tensor that the shards of an op read, or write."""
        found: list[Placement] = [Replicate() for _ in self._axes]
        dimensions: dict[int, str] = {}  # of the tensor, by which index it is divided
        for axis, index in enumerate(self._split(op)):
            if access is None or not index or index not in access.variables:
                continue
            dimension, outer = self._dimension(op, access, index, shape, what)
            before = dimensions.setdefault(dimension, index)
            if before != index or (outer > 1 and any(isinstance(each, _StridedShard) for each in found)):
                raise self._unsaid(op, f"divides a dimension of {what} by two axes")
            found[axis] = Shard(dimension) if outer == 1 else _StridedShard(dimension, split_factor=outer)
        return tuple(found)

    def _dimension(self, op: int, access: Access, index: str, shape: Shape, what: str) -> tuple[int, int]:
        """The dimension of a tensor that an index runs along, and how many times it does so from its start to its end.

        An access may have several dimensions, factors, for one of the tensor.
        """
        places = [place for place, each in enumerate(access.index) if each is not None and index in each.variables]
        size = self._size(op, index)
        place = places[0]
        each = access.index[place]
        if (
            len(places) > 1
            or each is None
            or each.terms != ((index, 1),)
            or each.constant
            or access.shape[place] != size
        ):
            raise self._unsaid(op, f"reads parts of {what} that overlap, or do not follow one another,")
        axes = tuple(self.mesh[axis] for axis, other in enumerate(self._split(op)) if other == index)
        where = _factors(shape, access.shape).get(place)
        if where is None:
            raise self._unsaid(op, f"reads {what} as a tensor of another shape, {access.shape},")
        count = math.prod(axes)
        if size % count and (len(axes) > 1 or where[1] > 1 or parts(size, axes) != _chunks(size, count)):
            equal = -(-size // count) * count
            raise self._unsaid(
                op, f"divides {size} of index {index!r} into {count} unequal parts ({equal} has equal ones)"
            )
        return where

    def _of_input(self, op: int, access: Access | None) -> Placements:
        """The part of an input that the shards of an op read; all of it where parts that are no samples are unequal."""
        found, described, split = list[Placement](), self._described[op], self._split(op)
        for index in split:
            if access is None or not index or variable(index) not in access.index:
                found.append(Replicate())
                continue
            parts = math.prod(self.mesh[axis] for axis, other in enumerate(split) if other == index)
            is_equal = self._size(op, index) % parts == 0
            if not is_equal and described is not None and index == described.batch:
                raise self._unsaid(op, f"divides {self._size(op, index)} samples into {parts} unequal parts")
            found.append(Shard(access.index.index(variable(index))) if is_equal else Replicate())
        return tuple(found)

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """Those of weights that are read by ops with a signature, by name."""
        graph, found = self.problem.graph, dict[str, Shape]()
        for op in range(len(graph) if graph.signatures is not None else 0):
            signature = None if graph.signatures is None else graph.signatures.signature(op)
            if graph.signatures is not None and signature is not None:
                for number, read in zip(graph.signatures.numbers(op), signature.reads, strict=True):
                    if -len(graph.weights) <= number < 0:
                        found[self._weight_names[-1 - number]] = read.base
        return found

    def _split(self, op: int) -> Split:
        return split_of(self._described[op], self.plan.split[op] if self.plan.split else (), self._axes)

    def _size(self, op: int, index: str) -> int:
        described = self._described[op]
        assert described is not None
        return described.operator.sizes[index]

    @cached_property
    def _described(self) -> tuple[Described | None, ...]:
        return descriptions_of(self.problem.graph)

    @cached_property
    def _axes(self) -> Mesh:
        return mesh_of(self.plan.mesh, len(self.devices))

    # ---- what cannot be said -------------------------------------------------------------------------------------

    def _unsaid(self, op: int, what: str) -> InputError:
        name = self.problem.graph.names[op]
        return InputError(f"op {name!r} {what} which DTensor cannot say; give a plan without, or simulate it only")

    def _check(self) -> None:
        plan, names = self.plan, self.problem.graph.names
        plan.check(self.problem)
        odd = next((op for op, devices in enumerate(plan.devices) if devices != self.devices), None)
        if odd is not None:
            raise InputError(
                f"op {names[odd]!r} is on devices {plan.devices[odd]} and {names[0]!r} on {self.devices}: ops are run "
                "in parts by DTensor only if all are on the same devices, in the same order"
            )
        if any(not isinstance(axis, int) for axis in self._axes):
            raise self._unsaid(0, "is divided over a mesh with unequal parts,")
        schedule = plan.schedule
        if schedule.micro_batches > 1 or schedule.recompute or len(set(schedule.stages)) > 1:
            raise InputError(
                f"{names[0]!r} and all other ops are run in parts by DTensor only as one stage, for the whole batch at "
                f"once, and this plan has {schedule.micro_batches} micro-batches, "
                f"{len(set(schedule.stages)) or 1} stages, {len(schedule.recompute)} of them recomputed"
            )


def _chunks(size: int, count: int) -> tuple[Range, ...]:
    """The parts of a dimension that DTensor's devices have, which are those of torch.chunk."""
    longest = -(-size // count)
    return tuple(Range(low, min(low + longest, size) - 1) for low in range(0, count * longest, longest))


def _factors(shape: Shape, factored: Shape) -> dict[int, tuple[int, int]]:
    """Of each dimension of a factored tensor the dimension that it is a part of, and the product of those before.

    What has one element is left out. None are found from where on the shapes do not match.
    """
    found: dict[int, tuple[int, int]] = {}
    left = [(place, size) for place, size in enumerate(factored) if size > 1]
    for dimension, whole in enumerate(shape):
        outer = 1
        while outer < whole and left:
            place, size = left.pop(0)
            found[place] = (dimension, outer)
            outer *= size
        if outer != whole:
            break
    return found
