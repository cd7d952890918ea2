"""Pricing: the options of a split graph as pairwise costs.

alone   of an op: seconds of its largest part, and statistics that its parts exchange
pairs   what passes between the parts that one op makes, or a layout holds, and those that the next one needs
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from graphs.foundation.errors import InputError
from graphs.notation.operator import STATISTIC_BYTES, Access, Operator
from graphs.op_graph import Floats
from placers.splits.options import Splitting
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


class Pricing:
    """Costs of options. What has been computed is kept: a network repeats its layers."""

    def __init__(self, splitting: Splitting, prices: Prices) -> None:
        """Raise InputError unless there is a price for each axis of the mesh."""
        if not len(prices.per_byte) == len(prices.per_message) == len(splitting.mesh):
            raise InputError(f"there are prices for {len(prices.per_byte)} axes; the mesh has {len(splitting.mesh)}")
        self.splitting, self.prices = splitting, prices
        self._parts: dict[tuple[Operator, Access, bool, tuple[Option, ...], int], SplitParts] = {}
        self._tables: dict[tuple[SplitParts, SplitParts, float], Floats] = {}
        self._alone: dict[tuple[Operator, tuple[Option, ...], int, str], tuple[Floats, Floats]] = {}

    def costs(self, options: Sequence[Sequence[Option]], first: int = 0) -> PairwiseCosts:
        """Costs of the options of each variable; of what passes, along the axes from `first` on."""
        keys = [tuple(several) for several in options]
        alone = [np.zeros(len(several)) for several in keys]
        for number, op in enumerate(self.splitting.graph.ops):
            variable = self.splitting.of_op[number]
            alone[variable] += self._of_op(op, keys[variable], first)
        return PairwiseCosts.summed(alone, self._terms(keys, first))

    def _of_op(self, op: SplitOp, options: tuple[Option, ...], first: int) -> Floats:
        """(options,) what an op costs by itself."""
        key = (op.operator, options, first, op.batch if self.splitting.rules.replicas else NONE)
        if key not in self._alone:
            mesh, prices = self.splitting.mesh, self.prices
            sent = exchanged(op.operator, options, mesh)[:, first:]
            if self.splitting.rules.replicas:
                sent[[is_replica(op, option) for option in options]] = 0.0
            axes = slice(first, first + sent.shape[1])
            size = STATISTIC_BYTES if prices.element_bytes else 1.0
            cost = sent * size @ np.array(prices.per_byte[axes]) + (sent > 0) @ np.array(prices.per_message[axes])
            self._alone[key] = largest_share(op.operator, options, mesh), cost
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
            own = self.parts(operator, access, tuple(options[variable]), True).elements[-1]
            held[variable] += own.max(axis=1) * (tensor.held_bytes / max(math.prod(tensor.shape), 1))
        return held

    def _terms(self, options: list[tuple[Option, ...]], first: int) -> Iterator[Term]:
        """What passes: from ops that make a tensor, or its layout, to ops that need it, or its layout."""
        graph = self.splitting.graph
        for source, target, number in self.splitting.passing:
            size = graph.tensors[number].element_bytes if self.prices.element_bytes else 1.0
            one = self.parts(source.operator, source.access, options[source.variable], source.made, first)
            other = self.parts(target.operator, target.access, options[target.variable], target.made, first)
            table = self._table(one, other, size)
            is_gradient = graph.tensors[number].is_gradient and self.prices.gradients != 1.0
            yield source.variable, target.variable, table * self.prices.gradients if is_gradient else table

    def parts(
        self, operator: Operator, access: Access, options: tuple[Option, ...], made: bool, first: int = 0
    ) -> SplitParts:
        """The parts of a tensor that an operator accesses, along the axes from `first` on."""
        key = (operator, access, made, options, first)
        if key not in self._parts:
            self._parts[key] = parts(operator, access, options, self.splitting.mesh, made, first)
        return self._parts[key]

    def _table(self, made: SplitParts, needed: SplitParts, size: float) -> Floats:
        """(options, options) the cost of what passes, of elements of a size."""
        key = (made, needed, size)
        if key not in self._tables:
            passing, axes = moved(made, needed), len(made.mesh)
            per_byte, per_message = (np.array(each[:axes]) for each in (self.prices.per_byte, self.prices.per_message))
            self._tables[key] = passing * size @ per_byte + (passing > 0) @ per_message
        return self._tables[key]
