"""Annealing in plain Python, step by step: what the compiled loop must equal, and its peer in the benchmarks."""

from __future__ import annotations

import numpy as np

from envs.objectives import Evaluator
from envs.simulation.simulator import Simulator
from graphs.op_graph import Bools, Floats, Ints, Phase
from graphs.problem import Problem
from placers.search.levels import Levels

REGION = 10
LARGEST, SMALLEST = 0.3, 0.01
OVERFLOW = 10.0


class _Level:
    """Groups of a problem's units: those of one of its levels."""

    def __init__(self, problem: Problem, level: Problem, is_movable: Bools) -> None:
        group = level.graph.units[problem.units.first_op]
        self.members = [np.flatnonzero(group == each) for each in range(len(level.units))]
        self.movable = np.unique(group[is_movable])
        offsets, neighbours, _ = level.units.neighbours
        self.neighbours = np.split(neighbours, offsets[1:-1])


class PlainMoves:
    """Random changes of a placement."""

    def __init__(self, levels: Levels, generator: np.random.Generator) -> None:
        problem = levels[0]
        units, devices = len(problem.units), len(problem.cluster)
        self._generator = generator
        self._allowed = np.ones((units, devices), bool) if problem.allowed is None else problem.allowed
        self._levels = [_Level(problem, level, self._allowed.sum(axis=1) > 1) for level in levels]

    def propose(self, placement: Ints, progress: float) -> Ints:
        """A changed copy of a placement (units,); an unchanged one where no unit may run on another device."""
        proposal = placement.copy()
        levels = self._levels[::-1]
        level = levels[min(int(progress * len(levels)), len(levels) - 1)]
        if len(level.movable):
            group = int(level.movable[self._below(len(level.movable))])
            members = level.members[group]
            unit = int(members[self._below(len(members))]) if len(members) > 1 else int(members[0])
            where = {each: placement[of[0]] for each, of in enumerate(level.members)}
            is_here = placement == placement[unit]
            draw = self._generator.random()
            moved = [group]
            if draw < 0.25:
                device = self._nearby_device(placement, unit, [where[each] for each in level.neighbours[group]])
            else:
                device = self._other_device(placement, unit)
                if draw < 0.5:
                    around = level.neighbours[group]
                    moved += around[self._generator.random(len(around)) < 0.5].tolist()
                    is_here[:] = True
                else:
                    moved = self._region(level, group, [each for each in where if where[each] == placement[unit]])
            for each in moved:
                of = level.members[each]
                proposal[of[is_here[of] & self._allowed[of, device]]] = device
        return proposal

    def _nearby_device(self, placement: Ints, unit: int, devices: list[int]) -> int:
        around = np.array(devices, np.int64)
        elsewhere = around[(around != placement[unit]) & self._allowed[unit, around]]
        return int(elsewhere[self._below(len(elsewhere))]) if len(elsewhere) else self._other_device(placement, unit)

    def _region(self, level: _Level, group: int, here: list[int]) -> list[int]:
        size = int(self._generator.geometric(1 / REGION))
        region, border = {group}, [group]
        while border and len(region) < size:
            for neighbour in level.neighbours[border.pop(self._below(len(border)))].tolist():
                if neighbour not in region and neighbour in here and len(region) < size:
                    region.add(neighbour)
                    border.append(neighbour)
        return list(region)

    def _other_device(self, placement: Ints, unit: int) -> int:
        """Counted from the unit's own device on."""
        devices = len(self._allowed[unit])
        others = (placement[unit] + np.arange(1, devices)) % devices
        others = others[self._allowed[unit, others]]
        return int(others[self._below(len(others))])

    def _below(self, limit: int) -> int:
        return int(self._generator.random() * limit)


class PlainOrderMoves:
    """Random changes of priorities."""

    def __init__(self, problem: Problem, generator: np.random.Generator, priorities: Floats) -> None:
        """Changes are in proportion to the spread of the first priorities, (ops,)."""
        self._generator, self._largest = generator, LARGEST * np.ptp(priorities)
        graph = problem.graph
        consumers: list[list[int]] = [[] for _ in range(len(graph))]
        for producer, consumer in graph.edges.tolist():
            consumers[producer].append(consumer)
        kinds = np.zeros(len(graph), np.int64)
        for op in range(len(graph)):
            if graph.phase[op] >= Phase.UPDATE:
                kinds[op] = 3
            elif graph.phase[op] == Phase.BACKWARD:
                kinds[op] = 1 if any(graph.phase[consumer] == Phase.BACKWARD for consumer in consumers[op]) else 2
        self._parts = []
        for unit in range(len(problem.units)):
            inside = np.flatnonzero(graph.units == unit)
            of_kinds = [inside[kinds[inside] == kind].tolist() for kind in range(4)]
            self._parts.append([part for part in of_kinds if part])

    def propose(self, priorities: Floats) -> Floats:
        """A changed copy of priorities (ops,)."""
        parts = self._parts[self._below(len(self._parts))]
        draw = self._below(3)
        ops = [op for part in parts for op in part]
        if draw > 0:
            ops = parts[self._below(len(parts))]
        if draw > 1:
            ops = [ops[self._below(len(ops))]]
        change = self._largest * SMALLEST ** self._generator.random()
        proposal = priorities.copy()
        proposal[ops] += -change if self._generator.random() < 0.5 else change
        return proposal

    def _below(self, limit: int) -> int:
        return int(self._generator.random() * limit)


class PlainAnnealing:
    """A placement and an order that change by random moves, each simulated and then kept or not."""

    def __init__(
        self, evaluator: Evaluator, placement: Ints, generator: np.random.Generator, budget: int, coarser: Levels = ()
    ) -> None:
        """It begins with a placement, (units,), which takes one of the simulations of the budget."""
        self._evaluator, self._generator, self._budget = evaluator, generator, budget
        self._moves = PlainMoves((evaluator.problem, *coarser), generator)
        self.priorities = evaluator.priorities if isinstance(evaluator, Simulator) else np.zeros(0)
        self.best_priorities = self.priorities
        self.placement, self.best, self.least_energy = placement, placement, np.inf
        self.simulations, self.in_vain = 1, 0
        self.curve: list[tuple[int, float]] = []
        self.energy = self._energy(placement, self.priorities)

    def run(self, hot: float, cold: float, until: int | None = None, reorder: float = 0.0) -> None:
        """Try changes until `until` simulations are made; if `hot` is 0, those that are no worse are kept.

        `reorder` is the share of the last ones that change the order.
        """
        reorder = reorder if len(self.priorities) else 0.0
        order_moves = PlainOrderMoves(self._evaluator.problem, self._generator, self.priorities) if reorder else None
        while self.simulations < (self._budget if until is None else until):
            placement, priorities, ceiling = self.placement, self.priorities, self.energy
            progress = self.simulations / self._budget
            moves_order = order_moves is not None and self._generator.random() < reorder * progress**3
            if order_moves is not None and moves_order:
                priorities = order_moves.propose(priorities)
            else:
                placement = self._moves.propose(placement, progress)
            if hot > 0:
                ceiling += hot * (cold / hot) ** progress * self._generator.exponential()
            self.simulations += 1
            found = self._energy(placement, priorities, ceiling, same=self.energy if moves_order else np.inf)
            self.in_vain = 0 if found < self.energy else self.in_vain + 1
            if found <= ceiling:
                self.placement, self.priorities, self.energy = placement, priorities, found

    def _energy(self, placement: Ints, priorities: Floats, ceiling: float = np.inf, same: float = np.inf) -> float:
        """Infinite if seconds alone are above a ceiling, or as many as those of an energy."""
        evaluator, ordered = self._evaluator, len(priorities) > 0
        if ordered:
            evaluator = Simulator(self._evaluator.problem, order=priorities)
        outcome = evaluator.run_batch(placement[None]).of(0)
        by_seconds = np.log(max(outcome.step_seconds, 1e-30))
        if by_seconds > ceiling or by_seconds == same:
            return np.inf
        ratio = np.maximum(outcome.peak_bytes, 1.0) / np.maximum(self._evaluator.problem.cluster.memory_bytes, 1.0)
        overflow = float(np.log(np.maximum(ratio, 1.0)).sum())
        found = float(np.log(max(outcome.step_seconds, 1e-30))) + (OVERFLOW * (1.0 + overflow) if overflow > 0 else 0.0)
        if found < self.least_energy:
            self.best, self.best_priorities, self.least_energy = placement, priorities, found
            if outcome.fits:
                self.curve.append((self.simulations, outcome.step_seconds))
        return found
