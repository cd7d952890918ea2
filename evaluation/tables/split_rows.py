"""Split rows: by what a plan divides each op, its weights, its output and its gradients. Charts and tables show them.

    op                        divided by      weights        output            gradients
    feed_forward.0/addmm      A m             2048/A 512     16 256 2048/A     16 256 512 +A
    feed_forward.2/addmm      A k             512 2048/A     16 256 512 +A

A, B and so on are the axes of the mesh. "2048/A" is a dimension of that size, of which each device along A has a part;
"+A" are partial sums, of which each device along A has one until they are added up.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from string import ascii_uppercase

from envs.expansion.layout import Layout
from envs.plans.mesh import Axis, mesh_of, split_of
from envs.plans.plan import Plan
from graphs.descriptions.descriptions import descriptions_of
from graphs.foundation.errors import InputError
from graphs.notation.described import Described
from graphs.notation.operator import Access
from graphs.notation.strategies import strategy
from graphs.op_graph import Phase
from graphs.problem import Problem

NAMED = 2  # devices in a row, of which each is named
OTHER = "R"  # the one axis of an op on another number of devices than the mesh has


@dataclass(frozen=True)
class Dimension:
    """A dimension of a tensor, or a factor of one: 512 may be 8 heads that are 64 wide."""

    index: str  # by which the op counts it, such as "m" or "m.1"; ":" if it needs all of it
    size: int
    axes: str = ""  # the axes that divide it, outermost first

    @property
    def variable(self) -> str:
        """The index of which it is a factor."""
        return re.sub(r"\.\d+\b", "", self.index)

    def begins(self, before: Dimension | None) -> bool:
        """Whether it is not a further factor of the dimension before it."""
        return before is None or "." not in self.index or before.variable != self.variable

    def __str__(self) -> str:
        return f"{self.size}/{self.axes}" if self.axes else str(self.size)


@dataclass(frozen=True)
class DividedTensor:
    """A tensor, and which of its dimensions each axis divides; dimensions of size 1 are left out."""

    dimensions: tuple[Dimension, ...]
    partial: str = ""  # the axes along which each device has a partial sum

    @property
    def layout(self) -> tuple[tuple[tuple[int, str], ...], str]:
        """Sizes and what divides them, whatever the indices are called."""
        return tuple((each.size, each.axes) for each in self.dimensions), self.partial

    @property
    def is_divided(self) -> bool:
        """Whether no device along some axis has all of it."""
        return any(each.axes for each in self.dimensions)

    @property
    def neighbours(self) -> list[tuple[Dimension | None, Dimension]]:
        """Each dimension, after the one before it."""
        return list(zip((None, *self.dimensions), self.dimensions, strict=False))

    @property
    def elements(self) -> int:
        """How many there are."""
        return math.prod(each.size for each in self.dimensions)

    def __str__(self) -> str:
        said = "".join(f"{' ' if each.begins(before) else '·'}{each}" for before, each in self.neighbours)
        return (said.lstrip() or "one number") + (f" +{self.partial}" if self.partial else "")


@dataclass(frozen=True)
class HeldWeight:
    """A weight as devices store it, and as the op reads it."""

    stored: DividedTensor
    read: DividedTensor

    def __str__(self) -> str:
        if self.stored.layout == self.read.layout:
            return str(self.stored)
        return f"{self.stored} read {f'as {self.read}' if self.read.is_divided else 'whole'}"


@dataclass(frozen=True)
class SplitRow:
    """An op, or some that follow one another in a module and are divided alike."""

    name: str
    axes: str  # of its devices
    by: tuple[str, ...]  # per axis the index that is divided, "" if all devices along it do the same
    halo: tuple[int, ...]  # per axis how many indices neighbours read both
    weights: tuple[HeldWeight, ...]
    output: DividedTensor | None  # None: the op is not described, and so not divided
    gradients: tuple[DividedTensor, ...]  # what differs from what it is the gradient of, in that it is partial or else
    devices: str = ""  # where ops of the plan are on different ones

    @property
    def module(self) -> str:
        """The path of its module."""
        return self.name.rpartition("/")[0]

    @cached_property
    def alike(self) -> tuple[object, ...]:
        """Equal for rows that differ in numbers in their names alone."""
        return (numberless(self.name), *self.contents)

    @cached_property
    def contents(self) -> tuple[object, ...]:
        """All but its name."""
        return self.axes, self.by, self.halo, self.weights, self.output, self.gradients, self.devices

    @property
    def divided_by(self) -> str:
        """The index that each axis divides: "A m, B h with a halo of 2"."""
        if self.output is None:
            return "whole: not described" + (f", on {self.devices}" if self.devices else "")
        named = [
            f"{axis} {index}" + (f" with a halo of {halo}" if halo else "")
            for axis, index, halo in zip(self.axes, self.by, self.halo, strict=True)
            if index
        ]
        return (", ".join(named) or "whole") + (f" on {self.devices}" if self.devices else "")


@dataclass(frozen=True)
class SplitRows:
    """Of a plan, what each forward op and its gradients are divided by, in the order of the graph."""

    name: str  # of the problem
    axes: dict[str, str]  # letter -> how many parts: "4", or "3:1"
    rows: tuple[SplitRow, ...]
    summary: str  # how many ops are divided, over what


def split_rows(problem: Problem, plan: Plan) -> SplitRows:
    """What each op is divided by. Raises InputError for a plan that puts each op on one device."""
    if all(len(devices) == 1 for devices in plan.devices):
        raise InputError("the plan has each op on one device, so nothing is divided; give one with a split or replicas")
    reader = _Reader(problem, plan)
    rows = tuple(reader.row(op) for op, phase in enumerate(problem.graph.phase) if phase == Phase.FORWARD)
    axes = {letter: _parts(axis) for letter, axis in zip(ascii_uppercase, plan.mesh, strict=False)}
    others = {len(plan.devices[op]) for op in range(len(problem.graph)) if reader.letters(op) == OTHER}
    if others:
        axes[OTHER] = " or ".join(map(str, sorted(others)))
    return SplitRows(problem.name, axes, tuple(_merged(rows)), _summary(reader))


def split_summary(problem: Problem, plan: Plan) -> str:
    """How many ops a plan divides, how many of them by the batch alone, and over which mesh."""
    return _summary(_Reader(problem, plan))


def numberless(name: str) -> str:
    """A name without its last number, "addmm_3", and with a # in place of others."""
    return re.sub(r"\d+", "#", re.sub(r"_\d+$", "", name))


class _Reader:
    """Reads a plan op by op."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.graph, self.plan = problem.graph, plan
        self.described = descriptions_of(problem.graph)
        splits = plan.split or ((),) * len(self.graph)
        self.axes = [mesh_of(plan.mesh, len(devices)) if len(devices) > 1 else () for devices in plan.devices]
        self.split = [
            split_of(each, split, axes)
            for each, split, axes in zip(self.described, splits, self.axes, strict=True)
        ]  # fmt: skip
        self.is_weight_gradient = Layout(problem, plan).is_weight_gradient.tolist()
        names = [device.name for device in problem.cluster.devices]
        distinct = dict.fromkeys(plan.devices)
        self.devices = {each: _listed(each, names) if len(distinct) > 1 else "" for each in distinct}
        self.backward: defaultdict[int, list[int]] = defaultdict(list)
        self.stored: dict[int, DividedTensor] = {}
        for op, (phase, mirror) in enumerate(zip(self.graph.phase.tolist(), self.graph.mirror.tolist(), strict=True)):
            if phase == Phase.BACKWARD:
                self.backward[mirror].append(op)
            each = self.described[op]
            if phase == Phase.UPDATE and each is not None:
                for source, access in zip(each.sources, each.operator.reads, strict=True):
                    if source is not None and source.op < 0:
                        self.stored[source.weight] = self.tensor(op, access)

    def row(self, op: int) -> SplitRow:
        """The row of a forward op."""
        name, devices, each = self.graph.names[op], self.devices[self.plan.devices[op]], self.described[op]
        letters, by = self.letters(op), self.split[op]
        if each is None:
            return SplitRow(name, letters, by, (0,) * len(by), (), None, (), devices)
        halo = tuple(max((part.halo for part in strategy(each.operator, i).reads), default=0) if i else 0 for i in by)
        output = self.tensor(op, each.operator.writes[0], made=True)  # of a forward op it is the only one
        weights = tuple(self.weights(op, each))
        return SplitRow(name, letters, by, halo, weights, output, tuple(self.gradients(op, weights)), devices)

    def weights(self, op: int, each: Described) -> Iterator[HeldWeight]:
        """The weights that an op reads, the largest first; those that are alike once."""
        held = dict[tuple[object, ...], HeldWeight]()
        for source, access in zip(each.sources, each.operator.reads, strict=True):
            if source is not None and source.op < 0:
                read = self.tensor(op, access)
                stored = self.stored.get(source.weight, read)
                held.setdefault((stored.layout, read.layout), HeldWeight(stored, read))
        yield from sorted(held.values(), key=lambda one: -one.read.elements)

    def gradients(self, op: int, weights: Sequence[HeldWeight]) -> Iterator[DividedTensor]:
        """What is made in the backward pass, if it is partial, or divided otherwise than what it is a gradient of."""
        found = dict[tuple[object, ...], DividedTensor]()
        known = {weight.stored.layout for weight in weights}
        for backward in self.backward[op]:
            each = self.described[backward]
            for access in () if each is None else each.operator.writes:
                made = self.tensor(backward, access, made=True)
                is_same = (
                    made.layout in known
                    if self.is_weight_gradient[backward]
                    else self.split[backward] == self.split[op]
                )
                if made.partial or not is_same:
                    found.setdefault(made.layout, made)
        yield from sorted(found.values(), key=lambda one: -one.elements)

    def letters(self, op: int) -> str:
        """The axes of the devices of an op."""
        axes = self.axes[op]
        return ascii_uppercase[: len(axes)] if axes == self.plan.mesh else OTHER * len(axes)

    def tensor(self, op: int, access: Access, *, made: bool = False) -> DividedTensor:
        """A tensor that an op reads, or makes."""
        named = [(letter, index) for letter, index in zip(self.letters(op), self.split[op], strict=True) if index]
        dimensions = tuple(
            Dimension(
                ":" if index is None else str(index),
                size,
                "".join(letter for letter, name in named if index is not None and index.coefficient(name)),
            )
            for size, index in zip(access.shape, access.index, strict=True)
            if size > 1
        )
        partial = [letter for letter, name in named if name not in access.variables | access.apart]
        return DividedTensor(dimensions, "".join(partial) if made else "")


def _summary(reader: _Reader) -> str:
    batches = ["" if each is None else each.batch for each in reader.described]
    divided = [(batch, set(split) - {""}) for batch, split in zip(batches, reader.split, strict=True) if any(split)]
    alone = sum(names == {batch} for batch, names in divided)
    by = f", {alone} of them by the batch alone" if alone else ""
    mesh = " x ".join(map(_parts, reader.plan.mesh))
    schedule = reader.plan.schedule
    shares = ", ".join(":".join(map(str, each)) for each in schedule.shares if each)
    unseen = f"; shares of replicas: {shares}" if shares else ""
    unseen += f"; held in parts between uses: ZeRO-{schedule.zero}" if schedule.zero else ""
    unseen += f" in groups of {schedule.shard_group} replicas" if schedule.shard_group else ""
    unseen += "; updated by CPUs (offload)" if schedule.offload else ""
    over = f" over a mesh of {mesh} devices" if mesh else ""
    return f"{len(divided)} of {len(reader.split)} ops divided{over}{by}{unseen}"


def _merged(rows: Sequence[SplitRow]) -> Iterator[SplitRow]:
    """Rows, of which those in succession that have no weights, and else only their names apart, are one."""
    several: list[SplitRow] = []
    for row in (*rows, None):
        if (
            row
            and several
            and not row.weights
            and (row.module, row.contents) == (several[0].module, several[0].contents)
        ):
            several.append(row)
            continue
        if several:
            yield _named_together(several)
        several = [] if row is None else [row]


def _named_together(rows: Sequence[SplitRow]) -> SplitRow:
    if len(rows) == 1:
        return rows[0]
    ops = dict.fromkeys(re.sub(r"_\d+$", "", row.name.rpartition("/")[2]) for row in rows)
    return replace(rows[0], name="/".join(filter(None, (rows[0].module, ", ".join(ops)))))


def _listed(devices: tuple[int, ...], names: Sequence[str]) -> str:
    """Names of devices, of many in a row the first and the last."""
    if len(devices) > NAMED and devices == tuple(range(devices[0], devices[-1] + 1)):
        return f"{names[devices[0]]} to {names[devices[-1]]}"
    return ", ".join(names[device] for device in devices)


def _parts(axis: Axis) -> str:
    return str(axis) if isinstance(axis, int) else ":".join(f"{share:g}" for share in axis)
