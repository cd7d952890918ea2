"""Pricing: the options of a split graph as pairwise costs.

alone   of an op: seconds of its largest part, and statistics that its parts exchange
pairs   what passes between the parts that one op makes, or a layout holds, and those that the next one needs
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from graphs.foundation.errors import InputError
from graphs.notation.operator import STATISTIC_BYTES, Access, Operator
from graphs.op_graph import Floats
from placers.splits.options import End, Splitting
from placers.splits.pairwise_costs import PairwiseCosts, Term
from placers.splits.parts import Option, SplitParts, exchanged, largest_share, moved, parts
from placers.splits.split_graph import NONE, SplitOp, is_replica, layout_operator


@dataclass(frozen=True, eq=False)
class Prices:
    """What is counted, per axis of the mesh."""

    per_byte: tuple[float, ...]  # (axes,) of what passes along an axis
    per_message: tuple[float, ...]  # (axes,) of a tensor of which anything passes
    per_second: float  # of computing
    element_bytes: bool = True  # false: elements count, of whatever type
    gradients: float = 1.0  # of what passes of gradients of weights, what counts: less if it passes while ops compute

    @classmethod
    def elements(cls, axes: int) -> Prices:
        """Elements moved, as Tofu counts."""
        return cls((1.0,) * axes, (0.0,) * axes, 0.0, False)

    @classmethod
    def bytes(cls, axes: int) -> Prices:
        """Bytes moved."""
        return cls((1.0,) * axes, (0.0,) * axes, 0.0)


@dataclass(frozen=True, eq=False)
class _Options:
    """Options of a variable, one object for equal ones: what is computed of them is kept."""

    several: tuple[Option, ...]


class Pricing:
    """Costs of options. What has been computed is kept: a network repeats its layers."""

    def __init__(self, splitting: Splitting, prices: Prices) -> None:
        """Raise InputError unless there is a price for each axis of the mesh."""
        if not len(prices.per_byte) == len(prices.per_message) == len(splitting.mesh):
            raise InputError(f"there are prices for {len(prices.per_byte)} axes; the mesh has {len(splitting.mesh)}")
        self.splitting, self.prices = splitting, prices
        self._options: dict[tuple[Option, ...], _Options] = {}
        self._parts: dict[tuple[Operator, Access, bool, _Options, int], SplitParts] = {}
        self._tables: dict[tuple[SplitParts, SplitParts, float], Floats] = {}
        self._passed: dict[tuple[int, _Options, _Options, int], Floats] = {}  # by the kind of passing
        self._alone: dict[tuple[Operator, _Options, int, str], tuple[Floats, Floats]] = {}
        self._kinds = _kinds_of_passing(splitting)

    def repriced(self, gradients: float) -> Pricing:
        """The same with another price of what passes of gradients; what has been computed is kept for both."""
        found = copy(self)
        found.prices = replace(self.prices, gradients=gradients)
        return found

    def costs(self, options: Sequence[Sequence[Option]], first: int = 0) -> PairwiseCosts:
        """Costs of the options of each variable; of what passes, along the axes from `first` on."""
        keys = list(map(self._kept, options))
        alone = [np.zeros(len(several)) for several in options]
        for number, op in enumerate(self.splitting.graph.ops):
            variable = self.splitting.of_op[number]
            alone[variable] += self._of_op(op, keys[variable], first)
        return PairwiseCosts.summed(alone, self._terms(keys, first))

    def _kept(self, options: Sequence[Option]) -> _Options:
        several = tuple(options)
        return self._options.setdefault(several, _Options(several))

    def _of_op(self, op: SplitOp, options: _Options, first: int) -> Floats:
        """(options,) what an op costs by itself."""
        key = (op.operator, options, first, op.batch if self.splitting.rules.replicas else NONE)
        if key not in self._alone:
            mesh, prices = self.splitting.mesh, self.prices
            sent = exchanged(op.operator, options.several, mesh)[:, first:]
            if self.splitting.rules.replicas:
                sent[[is_replica(op, option) for option in options.several]] = 0.0
            axes = slice(first, first + sent.shape[1])
            size = STATISTIC_BYTES if prices.element_bytes else 1.0
            cost = sent * size @ np.array(prices.per_byte[axes]) + (sent > 0) @ np.array(prices.per_message[axes])
            self._alone[key] = largest_share(op.operator, options.several, mesh), cost
        share, cost = self._alone[key]
        seconds = op.fixed_seconds + (op.seconds - op.fixed_seconds) * share
        whole: Floats = cost + self.prices.per_second * seconds
        return whole

    def held_bytes(self, options: Sequence[Sequence[Option]]) -> list[Floats]:
        """(variables,) of each option, what the fullest device holds of the tensors of a variable.

        Those are the layouts, and what ops make that has no layout.
        """
        splitting = self.splitting
        held = [np.zeros(len(several)) for several in options]
        for number, (tensor, writers) in enumerate(zip(splitting.graph.tensors, splitting.graph.writers, strict=True)):
            if not tensor.held_bytes:
                continue
            variable = splitting.of_tensor.get(number)
            if variable is not None:
                operator = layout_operator(tensor.shape)
                access = operator.writes[0]
            else:
                op, place = writers[0]
                operator, variable = splitting.graph.ops[op].operator, splitting.of_op[op]
                access = operator.writes[place]
            own = self._parts_of(operator, access, self._kept(options[variable]), True).elements[-1]
            held[variable] += own.max(axis=1) * (tensor.held_bytes / max(math.prod(tensor.shape), 1))
        return held

    def _terms(self, options: list[_Options], first: int) -> Iterator[Term]:
        """What passes: from ops that make a tensor, or its layout, to ops that need it, or its layout."""
        gradients = self.prices.gradients
        for kind, (source, target, number) in zip(self._kinds, self.splitting.passing, strict=True):
            key = (kind, options[source.variable], options[target.variable], first)
            if key not in self._passed:
                self._passed[key] = self._passing(source, target, number, *key[1:])
            table, is_gradient = self._passed[key], self.splitting.graph.tensors[number].is_gradient
            yield source.variable, target.variable, table * gradients if is_gradient and gradients != 1.0 else table

    def _passing(self, source: End, target: End, number: int, at: _Options, to: _Options, first: int) -> Floats:
        """(options, options) the cost of what passes of a tensor."""
        size = self.splitting.graph.tensors[number].element_bytes if self.prices.element_bytes else 1.0
        one = self._parts_of(source.operator, source.access, at, source.made, first)
        other = self._parts_of(target.operator, target.access, to, target.made, first)
        return self._table(one, other, size)

    def _parts_of(
        self, operator: Operator, access: Access, options: _Options, made: bool, first: int = 0
    ) -> SplitParts:
        """The parts of a tensor that an operator accesses, along the axes from `first` on."""
        key = (operator, access, made, options, first)
        if key not in self._parts:
            self._parts[key] = parts(operator, access, options.several, self.splitting.mesh, made, first)
        return self._parts[key]

    def _table(self, made: SplitParts, needed: SplitParts, size: float) -> Floats:
        """(options, options) the cost of what passes, of elements of a size."""
        key = (made, needed, size)
        if key not in self._tables:
            passing, axes = moved(made, needed), len(made.mesh)
            per_byte, per_message = (np.array(each[:axes]) for each in (self.prices.per_byte, self.prices.per_message))
            self._tables[key] = passing * size @ per_byte + (passing > 0) @ per_message
        return self._tables[key]


def _kinds_of_passing(splitting: Splitting) -> list[int]:
    """(passing,) a number for what passes, the same where equal options cost the same."""
    numbers: dict[tuple[object, ...], int] = {}
    found = list[int]()
    for source, target, tensor in splitting.passing:
        ends = ((end.operator, end.access, end.made) for end in (source, target))
        found.append(numbers.setdefault((*ends, splitting.graph.tensors[tensor].element_bytes), len(numbers)))
    return found
