"""Entries by module: what the ops of a graph have, said once for all ops of a module, as plan files do it.

    {"layers.0": "gpu:0", "layers.0/softmax": "gpu:1", "": "gpu:2"}

An entry is an op's name or a prefix of names that ends before a "." or "/", as module paths do; if several cover an op
the longest wins, and "" covers all. Ops that are tied have what the first of them has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TypeVar

from graphs.foundation.by_name import unknown
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.op_groups.grouping import untied
from graphs.op_groups.units import Units

Value = TypeVar("Value", bound=Hashable)


@dataclass(frozen=True, eq=False)
class ModuleEntries:
    """Writes and reads entries about the ops of a graph. Of each unit, the first op is what they are about."""

    graph: OpGraph
    units: Units  # of the same ops

    @classmethod
    def of(cls, graph: OpGraph) -> ModuleEntries:
        """About the first op of each unit of a graph, op groups included."""
        return cls(graph, Units(graph))

    @classmethod
    def of_untied(cls, graph: OpGraph) -> ModuleEntries:
        """About the first op of each unit without op groups: the entries are the same in whatever groups ops are."""
        return cls(graph, Units(untied(graph)))

    @cached_property
    def first_names(self) -> list[str]:
        """(units,) the name of the first op of each unit."""
        return [self.graph.names[op] for op in self.units.first_op.tolist()]

    def written(self, values: Sequence[Value], *, own: bool = False) -> dict[str, Value]:
        """Entries that say (ops,) values. With `own`, ops that are tied to another may have a value of their own."""
        names, first = self.graph.names, self.units.first_op.tolist()
        of_first = {names[op]: values[op] for op in first}
        if not own:
            return _compact(of_first)
        leader = [first[unit] for unit in self.units.graph.units.tolist()]
        apart = {name: values[op] for op, name in enumerate(names) if values[op] != values[leader[op]]}
        return _compact(of_first, apart, (name for op, name in enumerate(names) if op != leader[op]))

    def read(self, entries: Mapping[str, Value], *, own: bool = False) -> list[Value]:
        """(ops,) what entries say of each op. An op that no entry covers has what others of its group have.

        Raises InputError for an op that is left without a value, and for an entry that says nothing: of no op, or,
        unless they may have a value of their `own`, of an op that is tied to another.
        """
        self._check(entries, own)
        groups, units = self.graph.units.tolist(), self.units.graph.units.tolist()
        found = [_covering(entries, name) for name in self.first_names]
        of_group: dict[int, Value] = {}
        for op, value in zip(self.units.first_op.tolist(), found, strict=True):
            if value is not None:
                of_group.setdefault(groups[op], value)
        values = []
        for op, name in enumerate(self.graph.names):
            value = entries.get(name) if own else None
            value = found[units[op]] if value is None else value
            value = of_group.get(groups[op]) if value is None else value
            if value is None:
                raise InputError(f'no entry covers op {name!r}; add one for it, its module, or "" for all the rest')
            values.append(value)
        return values

    def _check(self, entries: Mapping[str, Value], own: bool) -> None:
        useful = {prefix for name in self.first_names for prefix in _prefixes(name)}
        for entry in entries:
            if entry in useful or (own and entry in self._number):
                continue
            if entry in self._number:
                first = self.first_names[self.units.graph.units[self._number[entry]]]
                raise InputError(f"op {entry!r} goes where {first!r} goes; place that one instead")
            known = useful | (self._number.keys() if own else set())
            raise InputError(unknown("op or module", entry, sorted(known - {""}, key=_depth_and_name)))

    @cached_property
    def _number(self) -> dict[str, int]:
        """The number of each op by its name."""
        return {name: op for op, name in enumerate(self.graph.names)}


def _prefixes(name: str) -> list[str]:
    """The names that an entry which covers this op may have, from the shortest to the longest."""
    return ["", *(name[:end] for end, letter in enumerate(name) if letter in "./"), name]


def _depth_and_name(entry: str) -> tuple[int, str]:
    return sum(map(entry.count, "./")), entry


def _covering(entries: Mapping[str, Value], name: str) -> Value | None:
    return next((entries[prefix] for prefix in reversed(_prefixes(name)) if prefix in entries), None)


def _compact(
    values: Mapping[str, Value], apart: Mapping[str, Value] = MappingProxyType({}), tied: Iterable[str] = ()
) -> dict[str, Value]:
    """By entry what ops have: of each op, its shortest prefix below which all have the same, or its own name.

    Ops `apart` have an entry of their own name each. No other entry has the name of an op that is `tied` to another:
    such an entry would be that op's own.
    """
    below: dict[str, set[Value]] = defaultdict(set)
    for name, value in (*values.items(), *apart.items()):
        for prefix in _prefixes(name):
            below[prefix].add(value)
    taken = set(tied)
    entries = {
        next((prefix for prefix in _prefixes(name) if len(below[prefix]) == 1 and prefix not in taken), name): value
        for name, value in values.items()
    }
    return {**entries, **apart}
