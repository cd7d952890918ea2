"""Critical units are those of the critical path, and where a search of many units begins most of its moves."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from envs.plans.plan import Plan
from envs.simulation.engine import time_placements
from envs.simulation.simulator import Simulator, simulate
from envs.timelines.last_inputs import Waits
from graphs.op_graph import Ints
from graphs.problem import Problem
from graphs.runtime import runtime_of
from placers.search.critical_units import FROM_UNITS, SHARE, CriticalUnits, note_critical_units
from placers.search.evaluations import Evaluations
from placers.search.local_search import LocalSearch
from placers.search.metropolis import CoolingSchedule
from placers.search.moves import Moves, MoveTables, random_placements
from tests.oracle.toys import random_graph, toy_cluster


def problem_of(seed: int, runtime: str) -> Problem:
    """Ops of uneven seconds, and links that hardly take any time."""
    generator, graph = np.random.default_rng(seed), random_graph(40, seed)
    graph = replace(graph, flops=generator.random(40), output_bytes=1e-6 * generator.random(40))
    return Problem(graph, toy_cluster(3, memory=1e9), runtime=runtime_of(runtime))


def critical_units(problem: Problem, placement: Ints) -> list[int]:
    """Those of a placement, (units,)."""
    blueprint, run = Simulator(problem).for_compiled_code()
    time_placements(blueprint, placement[None].astype(np.uint32), run, np.zeros(1), np.zeros((1, 3)))
    critical = CriticalUnits.none(len(placement))
    note_critical_units(blueprint, run, MoveTables.of(problem).allowed, critical)
    found: list[int] = critical.units[: critical.number[0]].tolist()
    return found


@pytest.mark.parametrize("seed", range(4))
def test_they_are_the_units_of_the_critical_path(seed: int) -> None:
    problem = problem_of(seed, "ideal")
    placement = random_placements(problem, np.random.default_rng(seed), 1)[0]
    ops, _ = Waits.of(simulate(problem, Plan.of_units(problem, placement))).critical_path()
    assert critical_units(problem, placement) == ops[::-1]


@pytest.mark.parametrize("seed", range(4))
def test_in_a_loop_each_ends_before_what_waits_for_it_starts(seed: int) -> None:
    problem = problem_of(seed, "parallelize:host=none")
    placement = random_placements(problem, np.random.default_rng(seed), 1)[0]
    start, finish, _ = Simulator(problem).op_times(placement)
    found = critical_units(problem, placement)
    edges = {tuple(edge) for edge in problem.graph.edges.tolist()}
    assert found[0] == finish.argmax()
    assert len(found) > 5
    for later, sooner in pairwise(found):
        assert finish[sooner] <= start[later]
        assert (sooner, later) in edges or placement[sooner] == placement[later]


def test_what_may_run_on_one_device_alone_is_not_among_them() -> None:
    problem = problem_of(0, "ideal:order=fifo")
    placement = random_placements(problem, np.random.default_rng(0), 1)[0]
    whole = critical_units(problem, placement)
    bound, names = whole[1], [device.name for device in problem.cluster.devices]
    devices = tuple((names[placement[op]],) if op == bound else () for op in range(40))
    problem = replace(problem, graph=replace(problem.graph, devices=devices))
    assert critical_units(problem, placement) == [unit for unit in whole if unit != bound]


def test_most_moves_begin_there() -> None:
    problem = Problem(random_graph(40, seed=1), toy_cluster(3))
    moves, placement, tries = Moves(problem, np.random.default_rng(0)), np.zeros(40, np.int64), 300
    before = sum(moves.propose(placement)[7] != 0 for _ in range(tries))
    moves.tables.critical.units[0], moves.tables.critical.number[0] = 7, 1
    after = sum(moves.propose(placement)[7] != 0 for _ in range(tries))
    assert before < (1 - SHARE) * 4 * tries < (SHARE - 0.1) * tries < after


def test_a_search_of_many_units_goes_on_from_what_is_saved_of_it() -> None:
    problem = Problem(random_graph(FROM_UNITS + 1, seed=0), toy_cluster(2, memory=1e9))
    first, schedule = random_placements(problem, np.random.default_rng(0), 1), CoolingSchedule(0.1, 0.01, 60)
    whole, other = (LocalSearch(problem, np.random.default_rng(1), Evaluations(problem, first[0])) for _ in range(2))
    whole.evaluations.energies(first)
    whole.begin_at_best()
    while whole.evaluations.simulations < 30:
        whole.take_steps(schedule, 30 - whole.evaluations.simulations)
    assert len(whole.critical) > 0
    for name in ("current", "priorities", "energy", "critical"):
        setattr(other, name, getattr(whole, name))
    other.evaluations.simulations, other.evaluations.incumbent = 30, whole.evaluations.incumbent
    other.generator.bit_generator.state = whole.generator.bit_generator.state
    for search in (whole, other):
        while search.evaluations.simulations < 60:
            search.take_steps(schedule, 60 - search.evaluations.simulations)
    assert other.current.tolist() == whole.current.tolist()
    assert other.energy == whole.energy
