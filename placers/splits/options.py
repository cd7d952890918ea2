"""Options: which variables a split graph has on a mesh of devices, and by what each may be divided."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from graphs.notation.operator import Access, Operator
from graphs.op_graph import Ints
from placers.splits.parts import Option
from placers.splits.split_graph import NONE, UNTIED, SplitGraph, layout_operator


@dataclass(frozen=True)
class SplitRules:
    """Which ways of dividing are offered."""

    whole_ops: bool = True  # every device may compute all of an op
    whole_tensors: bool = True  # every device may hold all of a tensor that has a layout
    dimensions: int = 99  # a layout divides one of this many first dimensions
    replicas: bool = False  # what divides the batch along all axes normalises over its own part, as replicas do
    layouts: bool = False  # all tensors have layouts, and not only those that are stored or read by several ops


TOFU = SplitRules(whole_ops=False, whole_tensors=False, dimensions=2, layouts=True)


@dataclass(frozen=True, eq=False)
class Member:
    """An op, or a tensor's layout, as one of those that share a variable."""

    operator: Operator
    is_layout: bool
    number: int  # of the op, or of the tensor


class End(NamedTuple):
    """Where a tensor comes from, or goes to: an access of an op, or a layout."""

    variable: int
    operator: Operator
    access: Access
    made: bool  # written, or held in a layout


@dataclass(frozen=True, eq=False)
class Splitting:
    """A split graph with its variables: ops first, each where the first of those tied to it is, then layouts."""

    graph: SplitGraph
    mesh: tuple[int, ...]
    rules: SplitRules = SplitRules()
    batch_axes: int = 0
    """The number of first axes that divide the batch of each op, or nothing: they are axes of replicas."""

    @cached_property
    def variables(self) -> tuple[tuple[Member, ...], ...]:
        """(variables,) the ops, or the layouts, that choose together."""
        found: dict[tuple[str, int], list[Member]] = {}
        for number, op in enumerate(self.graph.ops):
            key = ("op", number) if op.tied == UNTIED else ("tied ops", op.tied)
            found.setdefault(key, []).append(Member(op.operator, False, number))
        writers, readers = self.graph.writers, self.graph.readers
        of_op = {member.number: key for key, members in found.items() for member in members}
        for number, each in enumerate(self.graph.tensors):
            users = {of_op[op] for op, _ in readers[number]}
            is_shared = (self.rules.layouts or len(users) > 1) and not each.as_made
            if not each.stored and not (is_shared and users and writers[number]):
                continue  # what one op makes and another one needs
            key = ("tensor", number) if each.tied == UNTIED else ("tied tensors", each.tied)
            found.setdefault(key, []).append(Member(layout_operator(each.shape), True, number))
        return tuple(tuple(members) for members in found.values())

    @cached_property
    def of_op(self) -> tuple[int, ...]:
        """(ops,) the variable of each."""
        by_number = {m.number: v for v, members in enumerate(self.variables) for m in members if not m.is_layout}
        return tuple(by_number[number] for number in range(len(self.graph.ops)))

    @cached_property
    def of_tensor(self) -> dict[int, int]:
        """The variable of each tensor that has a layout."""
        return {m.number: v for v, members in enumerate(self.variables) for m in members if m.is_layout}

    @cached_property
    def passing(self) -> tuple[tuple[End, End, int], ...]:
        """What may pass: from where, to where, and the tensor. Through its layout, if it has one.

        What arrives for one op is there for another one that divides the same index and needs the same. Not so with
        weights, which are fetched each time.
        """
        graph, found = self.graph, list[tuple[End, End, int]]()
        for number, (writers, readers) in enumerate(zip(graph.writers, graph.readers, strict=True)):
            made = [self._end(op, graph.ops[op].operator.writes[place], True) for op, place in writers]
            needed = [self._end(op, graph.ops[op].operator.reads[place], False) for op, place in readers]
            if not (graph.tensors[number].stored or graph.tensors[number].as_made):
                needed = list({(end.variable, end.access): end for end in needed}.values())
            if number in self.of_tensor:
                operator = layout_operator(graph.tensors[number].shape)
                layout = End(self.of_tensor[number], operator, operator.writes[0], True)
                found += [(one, layout, number) for one in made] + [(layout, other, number) for other in needed]
            else:
                found += [(one, other, number) for one in made for other in needed]
        return tuple(found)

    def _end(self, op: int, access: Access, made: bool) -> End:
        return End(self.of_op[op], self.graph.ops[op].operator, access, made)

    @cached_property
    def pairs(self) -> Ints:
        """(pairs, 2) variables that have costs together, each two once."""
        pairs = {(min(u.variable, v.variable), max(u.variable, v.variable)) for u, v, _ in self.passing}
        return np.array(sorted(pair for pair in pairs if pair[0] != pair[1]), np.int64).reshape(-1, 2)

    def further(self, chosen: Sequence[Option] | None = None) -> list[list[Option]]:
        """(variables,) the options of each for one more axis, after the options that are chosen for the first ones."""
        before: Sequence[Option] = [()] * len(self.variables) if chosen is None else chosen
        return [
            [(*option, name) for name in self._names(members, option, len(option))]
            for members, option in zip(self.variables, before, strict=True)
        ]

    def instead(self, chosen: Sequence[Option], axis: int) -> list[list[Option]]:
        """(variables,) the options of each that differ from the chosen ones along one axis at most."""
        return [
            [(*option[:axis], name, *option[axis + 1 :]) for name in self._names(members, option, axis)]
            for members, option in zip(self.variables, chosen, strict=True)
        ]

    def uniform(self) -> list[list[Option]]:
        """(variables,) the options of each that divide the same along all axes; of what has none, the first other."""
        found = list[list[Option]]()
        for members in self.variables:
            options = list[Option]()
            for name in self._names(members, (), 0):
                option: Option = ()
                while len(option) < len(self.mesh) and name in self._names(members, option, len(option)):
                    option = (*option, name)
                options += [option] if len(option) == len(self.mesh) else []
            if not options:  # as it comes
                option = ()
                while len(option) < len(self.mesh):
                    option = (*option, self._names(members, option, len(option))[0])
                options.append(option)
            found.append(options)
        return found

    def joint(self) -> list[list[Option]]:
        """(variables,) the options of each for all axes at once."""
        found = list[list[Option]]()
        for members in self.variables:
            options, known = list[Option]([()]), dict[tuple[int, ...], list[str]]()
            for _ in self.mesh:
                options = [(*before, name) for before in options for name in self._next(members, before, known)]
            found.append(options)
        return found

    def joint_sizes(self) -> list[int]:
        """(variables,) how many options each has for all axes at once, which are not written out.

        Counted once for all variables of the same operators, such as those of equal layers.
        """
        known, found = dict[tuple[object, ...], int](), list[int]()
        for members in self.variables:
            first = members[0]
            batch = NONE if first.is_layout else self.graph.ops[first.number].batch
            alike = (first.is_layout, batch, *(member.operator for member in members))
            if alike not in known:
                known[alike] = self._joint_size(members)
            found.append(known[alike])
        return found

    def _joint_size(self, members: tuple[Member, ...]) -> int:
        """How many options a variable has for all axes at once."""
        counts: dict[tuple[int, ...], tuple[Option, int]] = {(): ((), 1)}
        for _ in self.mesh:
            longer = dict[tuple[int, ...], tuple[Option, int]]()
            for before, count in counts.values():
                for name in self._names(members, before, len(before)):
                    option = (*before, name)
                    cuts = self._cuts(members, option)
                    longer[cuts] = option, count + longer.get(cuts, (option, 0))[1]
            counts = longer
        return sum(count for _, count in counts.values())

    def _next(self, members: tuple[Member, ...], before: Option, known: dict[tuple[int, ...], list[str]]) -> list[str]:
        """By what the next axis may divide, which is known after other options that divide as much."""
        key = len(before), *self._cuts(members, before)
        if key not in known:
            known[key] = self._names(members, before, len(before))
        return known[key]

    def _cuts(self, members: tuple[Member, ...], option: Option) -> tuple[int, ...]:
        """Into how many parts the first axes divide each index of a variable."""
        parts = dict.fromkeys(members[0].operator.sizes, 1)
        for axis, name in enumerate(option):
            if name in parts:
                parts[name] *= self.mesh[axis]
        return tuple(parts.values())

    def _names(self, members: tuple[Member, ...], others: Option, axis: int) -> list[str]:
        """By what an axis may divide, given what other axes do: each part of a variable keeps a value at least."""
        first, names = members[0], list[str]()
        if axis < self.batch_axes and not first.is_layout:
            return [self._batch(members, others, axis)]
        for place, name in enumerate(first.operator.sizes):
            if first.is_layout and place >= self.rules.dimensions:
                break
            cut = math.prod(self.mesh[other] for other, by in enumerate(others) if by == name and other != axis)
            if all(self._may_divide(member.operator, name, cut * self.mesh[axis]) for member in members):
                names.append(name)
        if not names or (self.rules.whole_tensors if first.is_layout else self.rules.whole_ops):
            names.append(NONE)
        return names

    def _batch(self, members: tuple[Member, ...], others: Option, axis: int) -> str:
        """By what replicas divide ops along an axis: the batch, statistics over it or not, if it is long enough."""
        name = self.graph.ops[members[0].number].batch
        cut = math.prod(self.mesh[other] for other, by in enumerate(others) if by == name and other != axis)
        sizes = [0 if name in each.operator.opaque else each.operator.sizes.get(name, 0) for each in members]
        return name if name and min(sizes) >= cut * self.mesh[axis] else NONE

    def _may_divide(self, operator: Operator, name: str, count: int) -> bool:
        """Whether a variable can be divided into `count` parts, none empty; only sums are added up from parts."""
        if operator.sizes.get(name, 0) < count or name in operator.opaque:
            return False
        return operator.reducer == "sum" or all(name in each.variables | each.apart for each in operator.writes)
