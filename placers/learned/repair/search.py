"""The search by repairs: a policy frees and places units again, and annealing's rule says which results are kept.

In each round some simulations go to repairs and the others to annealing's own moves of placement and order, from the
same plan and at the same temperature:

    simulations    [ repairs, a batch at a time ][ moves ][ repairs ... ][ moves ] ...

A repair that changes nothing, or comes to a placement that the search was at lately, is not simulated; one of
annealing's moves takes its place.
"""

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from envs.simulation.simulator import Simulator
from graphs.op_graph import Floats, Ints
from placers.contract.abilities import Repairer
from placers.contract.current_plan import CurrentPlan, PlanReader
from placers.search.evaluations import Evaluations
from placers.search.first_fit import begin_where_it_fits
from placers.search.levels import Levels
from placers.search.local_search import LocalSearch
from placers.search.metropolis import CoolingSchedule, progress, temperature
from placers.search.starts import Starts

BATCH = 8  # repairs of one plan that are drawn together, on all cores
ROUND = 8 * BATCH  # simulations, of which a share goes to moves


class RepairSettings(Protocol):
    """What the search reads of its placer."""

    @property
    def hot(self) -> float:
        """First temperature."""

    @property
    def cold(self) -> float:
        """Last temperature."""

    @property
    def order(self) -> bool:
        """Whether moves change the order, too."""

    @property
    def seconds(self) -> float:
        """A limit of processor seconds."""

    @property
    def moves(self) -> float:
        """Share of the simulations that go to annealing's moves."""


class RepairSearch(LocalSearch):
    """A local search whose larger steps are a policy's."""

    saved: tuple[str, ...] = ("current", "priorities", "energy", "begun", "tried", "critical")

    def __init__(
        self, levels: Levels, settings: RepairSettings, seed: int, budget: int, given: Starts, *, reorder: float
    ) -> None:
        """Simulates the starts, and begins at the best of them; `reorder` is annealing's share of moves of the order.

        It proposes nothing before `repairs` is set.
        """
        self._settings, self.notes = settings, given.notes
        # of all simulations as many change the order as in annealing, as long as there are moves enough
        self._reorder = reorder / max(settings.moves, 0.1) if settings.order else 0.0
        evaluations = Evaluations(levels[0], given.placements[0], given.spent)
        if budget > given.spent:
            evaluations.energies(given.placements[: budget - given.spent])
        if settings.order:
            evaluations.compare_orders(given, budget)
        begin_where_it_fits(evaluations, levels[0], budget, seed, reorder=settings.order, seconds=settings.seconds)
        super().__init__(levels[0], np.random.default_rng(seed), evaluations, levels[1:])
        self.repairs: Repairer | None = None
        self.begun = evaluations.simulations  # at which the first round begins
        self._by_moves = round(ROUND * settings.moves / BATCH) * BATCH  # simulations of each round
        self._tried: set[int] = set()  # keys of placements
        self._plan: CurrentPlan | None = None  # the current one, once it is looked at
        simulator = self._simulator if self._simulator is not None else Simulator(levels[0])
        self._reader = PlanReader(levels[0], simulator)

    @property
    def tried(self) -> NDArray[np.uint64]:
        """(placements,) the keys of those that were simulated under the present order, ascending."""
        return np.array(sorted(self._tried), np.uint64)

    @tried.setter
    def tried(self, keys: NDArray[np.uint64]) -> None:
        self._tried, self._plan = set(keys.tolist()), None

    def step(self, elapsed: float, left: int) -> None:
        """Repair, or move, as the round has it."""
        settings, simulations = self._settings, self.evaluations.simulations
        budget = simulations + left
        schedule = CoolingSchedule(settings.hot, settings.cold, budget, elapsed, reorder=self._reorder)
        position = (simulations - self.begun) % ROUND
        if position < ROUND - self._by_moves:
            self._repair(schedule, min(BATCH, left))
            return
        before = self.priorities
        self.take_steps(schedule, min(left, ROUND - position))
        self._plan = None
        if self.has_order and not np.array_equal(before, self.priorities):
            self._tried.clear()

    def _repair(self, schedule: CoolingSchedule, count: int) -> None:
        """Simulate some repairs of the current plan, and go on from one of them if annealing's rule keeps it."""
        assert self.repairs is not None
        begin = self.evaluations.simulations
        priorities = self.priorities if self.has_order else None
        if priorities is not None and np.array_equal(priorities, self.evaluations.rule):
            priorities = None
        if self._plan is None:
            self._plan = self._reader.read(self.current, priorities)
            self._tried.add(self._key(self._plan.placement))
        proposals = self._new_ones(self._plan, self.repairs.propose(self._plan, count, self.generator), schedule)
        orders = None if priorities is None else np.repeat(priorities[None], count, axis=0)
        found = self.evaluations.energies(proposals, orders)
        self._keep_some(proposals, found, temperature(schedule, begin))

    def _keep_some(self, proposals: Ints, energies: Floats, warmth: float) -> None:
        """Go from one to the next, as if they had come one after another; each is kept by annealing's rule."""
        for proposal, energy in zip(proposals, energies.tolist(), strict=True):
            ceiling = self.energy + (warmth * self.generator.standard_exponential() if warmth > 0.0 else 0.0)
            if energy <= ceiling and math.isfinite(energy):
                self.current, self.energy, self._plan = proposal, energy, None

    def _new_ones(self, plan: CurrentPlan, repaired: Ints, schedule: CoolingSchedule) -> Ints:
        """The repairs, with moves in place of those that lead to where the search has been."""
        over = progress(schedule, self.evaluations.simulations)
        for index, placement in enumerate(repaired):
            if self._key(placement) in self._tried:
                repaired[index] = self._proposals.propose(plan.placement, over)
            self._tried.add(self._key(repaired[index]))
        return repaired

    def _key(self, placement: Ints) -> int:
        """As `placers.search.known.key_of`."""
        return int(np.bitwise_xor.reduce(self._known.bits[np.arange(len(placement)), placement]))
