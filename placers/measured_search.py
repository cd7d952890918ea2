r"""A search by few plans that are run, with the simulator as prior: for machines that are not as they are simulated.

    placelab place my_model.py:model --cluster mine.cluster.toml --objective measured:file=runs.jsonl \
        --placer measured_search:runs=40 --budget 100000

Thompson sampling (Thompson 1933; Russo et al. 2018) over machines: the first plan is the simulator's favourite. After
it, costs of ops and messages are drawn as likely as the runs so far let them be (`placers.search.likely_costs`),
annealing looks for the best plan of that machine, starting with those that ran best, and this plan is run. Where little
is known draws differ, and so do the plans; where much is known they agree. The plan that ran best is the answer.

What is run is the problem's objective: `measured` runs plans in processes, and one of your own may ask any machine. A
plan that fails is not run again, and nothing is learned of it: what does not fit is for the simulator to say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from envs.objectives import evaluate_objective
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator, simulate
from graphs.foundation.by_name import Named
from graphs.foundation.errors import DoesNotFitError, InputError
from graphs.foundation.progress import progress_bar
from graphs.op_graph import Floats, Ints
from graphs.problem import STEP_TIME, Problem
from placers.annealing import Annealing, AnnealingSearch
from placers.search.evaluations import Evaluations
from placers.search.levels import levels_of
from placers.search.likely_costs import LikelyCosts
from placers.search.moves import Moves, random_placements
from placers.search.search import Search
from placers.search.starts import Starts

BY_REQUEST = True  # it runs what it compares
FIRST = 1 / 4  # of the simulations, for the simulator's favourite
MOST_STARTS = 8  # plans that ran best, from which annealing starts
NEIGHBOURS = 64  # of the best plan, simulated where annealing ends at one that was run


@dataclass(frozen=True)
class MeasuredSearch(Named):
    """The plan that ran best of those that likely machines would prefer."""

    runs: int = 40
    """Plans that are run at most."""
    policy: str = ""
    """A learned placer whose placement joins the starts of the first search, as `annealing:policy=...` has it."""

    def __post_init__(self) -> None:
        if self.runs < 1:
            raise InputError(f"measured_search: runs is {self.runs}; expected at least 1")
        _ = Annealing(policy=self.policy)  # refused here if there is none, not after a model was captured

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The plan that ran best; `budget` are the simulations of all searches, without which nothing is run.

        Plans that were run are simulated again with each draw of costs, in addition to the budget. Raises
        DoesNotFitError if no plan ran to its end.
        """
        return _Searching(self, problem, seed, budget).result()


build = MeasuredSearch


class _Searching:
    """The search of one problem."""

    def __init__(self, settings: MeasuredSearch, problem: Problem, seed: int, budget: int) -> None:
        self._settings, self._problem, self._seed, self._budget = settings, problem, seed, budget
        self._generator = np.random.default_rng(seed)
        self._simulated = replace(problem, objective=STEP_TIME)
        self._simulator = Simulator(self._simulated)
        self._costs = LikelyCosts(self._simulated, self._generator)
        self._moves = Moves(problem, self._generator)
        self._run = dict[tuple[bytes, bytes], tuple[float, Ints, Plan]]()  # by what devices do, in which order
        self._simulations = 0
        self._curve = list[tuple[int, float]]()

    def result(self) -> PlacerResult:
        """Run plans until runs or simulations are spent."""
        settings, name = self._settings, self._settings.name
        opening = Annealing(policy=settings.policy).begin(self._simulated, self._seed, math.ceil(FIRST * self._budget))
        found = self._annealed(opening, math.ceil(FIRST * self._budget))
        if not self._budget:
            return PlacerResult.of_units(self._problem, found.best, name, self._seed, notes=opening.notes)
        self._try(found.best, found.priorities)
        each = max((self._budget - self._simulations) // settings.runs, 1)
        with progress_bar(name, total=settings.runs, unit="run", leave=False) as bar:
            bar.update(1)
            while len(self._run) < settings.runs and self._simulations < self._budget:
                if not self._try_likely(min(each, self._budget - self._simulations)):
                    break
                bar.update(1)
        seconds, _, plan = min(self._run.values(), key=lambda tried: tried[0])
        if math.isinf(seconds):
            raise DoesNotFitError(
                f"{name}: none of {len(self._run)} plans ran to its end; `placelab run` says of one of them why"
            )
        notes = (*opening.notes, self._said(seconds))
        return PlacerResult(plan, name, self._seed, self._simulations, tuple(self._curve), notes)

    def _said(self, seconds: float) -> str:
        first = next(iter(self._run.values()))[0]
        if len(self._run) == 1:
            return "1 plan was run, the fastest in the simulator."
        gain = f"{first / seconds:.3g} times as fast as" if math.isfinite(first) else "which ran, unlike"
        return f"{len(self._run)} plans were run; the best is {gain} the first of them, the fastest in the simulator."

    def _annealed(self, search: Search, budget: int) -> Evaluations:
        """What a search has found once its simulations are spent."""
        evaluations = search.evaluations
        while evaluations.simulations < budget:
            search.step(0.0, budget - evaluations.simulations)
        self._simulations += evaluations.simulations
        return evaluations

    def _try_likely(self, budget: int) -> bool:
        """Run the best plan of a likely machine that was not run yet; returns whether there was one.

        As long as all plans failed, it is the best neighbour of a random one.
        """
        likely = self._costs.draw()
        best = sorted(self._run.values(), key=lambda tried: tried[0])
        ended = [placement for seconds, placement, _ in best if math.isfinite(seconds)]
        if not ended:
            return self._try_neighbour(likely, random_placements(likely, self._generator, 1)[0])
        starts = np.array(ended[: min(max(budget // 4, 1), MOST_STARTS)])
        seed = int(self._generator.integers(2**31))
        search = AnnealingSearch(levels_of(likely), Annealing(), seed, budget, Starts(starts, 0, ()))
        found = self._annealed(search, budget)
        return self._try(found.best, found.priorities) or self._try_neighbour(likely, found.best)

    def _try_neighbour(self, likely: Problem, placement: Ints) -> bool:
        """Run the fastest neighbour of a placement, (units,), that was not run yet, if there is one."""
        count = min(NEIGHBOURS, self._budget - self._simulations)
        if count < 1:
            return False
        simulator = Simulator(likely)
        neighbours = np.array([self._moves.propose(placement) for _ in range(count)])
        outcomes = simulator.run_batch(neighbours)
        self._simulations += count
        order = np.argsort(np.where(outcomes.fits, outcomes.step_seconds, np.inf), kind="stable")
        return any(self._try(neighbours[index], simulator.priorities) for index in order)

    def _try(self, placement: Ints, priorities: Floats) -> bool:
        """Run a placement, (units,), under its priorities, (ops,); returns false if the same was run before."""
        start, _, _ = self._simulator.op_times(placement, priorities if len(priorities) else None)
        done = placement.tobytes(), np.argsort(start, kind="stable").tobytes()
        if done in self._run:
            return False
        plan = Plan.of_units(self._problem, placement, order=priorities if len(priorities) else None)
        seconds = evaluate_objective(self._problem, plan)
        if seconds is None:
            seconds = simulate(self._problem, plan).step_seconds
        if math.isfinite(seconds):
            self._costs.add(placement, priorities, seconds)
            if seconds < min((tried[0] for tried in self._run.values()), default=math.inf):
                self._curve.append((self._simulations, seconds))
        self._run[done] = seconds, placement, plan
        return True
