"""Rivals on streams of changes, all in the same milliseconds of a processor, against a search of seconds.

- `keep all`: what keeps all that can stay (`envs.replacement.kept`)
- `heft`, `metis`: from scratch
- `annealing, scratch`: from the best cheap plan
- `annealing`, `hill climbing`: from that, or that with two devices exchanged (`placers.search.running_starts`)
- `policy`: the released policy's pass over what keeps all that can stay, greedy
- `policy, hill climbing`: from the best of all of these
- `policy, repairs`: the policy frees and places units again, by turns with annealing's moves, from the same begin

All that search move back at last what gains nothing elsewhere (`placers.search.moved_back`), but for the reference:
that is annealing for seconds, from the same begins and from the cheap plans. What is placed from scratch has its
devices renamed so that most bytes stay where they are (the remapping of Oliker and Biswas, PLUM, 1998), where devices
are equal. Milliseconds are those of this process on its processors, from a problem whose ops are timed to
a placement, once code is compiled and the policy is read; a rival that does not search takes what it takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from envs.costs.costs import costs_of
from envs.objectives import evaluator_of
from envs.objectives.replacement import running_of
from envs.replacement.evaluator import ReplacementEvaluator, replacement_of
from envs.replacement.kept import kept
from graphs.foundation import by_name
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.annealing import Annealing, AnnealingSearch
from placers.hill_climbing import HillClimbing, HillClimbingSearch
from placers.learned.equal_devices import interchangeable, renamed_to_stay
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.lookup import placer_of
from placers.learned.repair.search import RepairSearch
from placers.learned.sequential.policy import SequentialPolicy
from placers.neural_lns import NeuralLns
from placers.search.levels import levels_of
from placers.search.moved_back import left_to_move_back, move_back
from placers.search.running_starts import running_starts
from placers.search.search import Search
from placers.search.starts import Starts, starts

BUDGET = 1000  # simulations of which the cheap plans of a rival take their share
OF_REFERENCE = 100_000  # and those of the reference
ENDLESS = 2**40  # simulations: time alone limits a search

Begin = Callable[[Problem], Search]
Rival = Callable[[Problem, float], Ints]  # of a problem and seconds of a processor: (units,) a placement


def rivals() -> Mapping[str, Rival]:
    """All rivals, by name."""
    return {
        "keep all": lambda problem, _: kept(evaluator_in(problem)),
        "heft": _placed_by("heft"),
        "metis": _placed_by("metis"),
        "annealing, scratch": _searched(lambda problem: _annealing(problem, of_running=False, budget=BUDGET)),
        "annealing": _searched(lambda problem: _annealing(problem, of_running=True)),
        "hill climbing": _searched(lambda problem: HillClimbing().begin(problem, 0, ENDLESS)),
        "policy": lambda problem, _: _passed_over(problem),
        "policy, hill climbing": _searched(_from_policy),
        "policy, repairs": _searched(_repairs),
    }


def reference(problem: Problem, seconds: float) -> Ints:
    """(units,) what the reference finds."""
    search = _searched(lambda problem: _annealing(problem, of_running=True, budget=OF_REFERENCE), moves_back=False)
    return search(problem, seconds)


def evaluator_in(problem: Problem) -> ReplacementEvaluator:
    """What judges placements of a running model."""
    return replacement_of(evaluator_of(problem), problem)


def _renamed(problem: Problem, placement: Ints) -> Ints:
    """(units,) a placement from scratch, with its devices renamed."""
    running = running_of(problem)
    assert running is not None
    same = interchangeable(problem.cluster, costs_of(problem).op_seconds)
    return renamed_to_stay(problem, same, placement, running.placement)


def _searched(begin: Begin, *, moves_back: bool = True) -> Rival:
    """What a search has found after some seconds of a processor, its begin included, and its last moves back."""

    def place(problem: Problem, seconds: float) -> Ints:
        started = time.process_time()
        search = begin(problem)
        limit = seconds - (left_to_move_back(problem, ENDLESS, seconds)[1] if moves_back else 0.0)
        while (elapsed := time.process_time() - started) < limit:
            search.step(elapsed / limit, ENDLESS)
        if moves_back:
            move_back(search.evaluations, problem, ENDLESS, started + seconds)
        return search.evaluations.best

    return place


def _placed_by(spec: str) -> Rival:
    """What a placer finds without any simulation."""
    placer = by_name.build("placers", spec)

    def place(problem: Problem, _: float) -> Ints:
        return _renamed(problem, placer.place(problem, seed=0, budget=1).plan.per_unit(problem))

    return place


def _annealing(problem: Problem, *, of_running: bool, budget: int = 0) -> Search:
    """Annealing from what runs, or from the cheap plans that a search of some simulations begins with, or from both."""
    levels, begins = levels_of(problem), running_starts(problem)
    if budget:
        cheap = starts(levels, budget, 0).placements[len(begins) :]  # what runs comes first
        renamed = np.array([_renamed(problem, each) for each in cheap])
        begins = np.concatenate([begins, renamed]) if of_running else renamed
    return AnnealingSearch(levels, Annealing(), 0, ENDLESS, Starts(begins, 0, ()))


def _policy(problem: Problem) -> SequentialPolicy:
    placer = placer_of("default")
    assert isinstance(placer, LearnedPlacer)
    policy = placer.policy_for(problem)
    assert isinstance(policy, SequentialPolicy)
    return policy


def _passed_over(problem: Problem) -> Ints:
    """(units,) what the policy makes of what keeps all that can stay."""
    policy = _policy(problem)
    placement = kept(evaluator_in(problem))
    passed = policy.passes_over(policy.stack([policy.view(problem)]), placement[None])
    return _renamed(problem, problem.made_allowed(passed[0]))


def _from_policy(problem: Problem) -> Search:
    begins = np.concatenate([running_starts(problem), _passed_over(problem)[None]])
    return HillClimbingSearch(problem, HillClimbing(), 0, begins)


def _repairs(problem: Problem) -> Search:
    search = RepairSearch((problem,), NeuralLns(), 0, ENDLESS, Starts(running_starts(problem), 0, ()), reorder=0.0)
    search.repairs = _policy(problem).repairer(problem, threads=1)
    return search
