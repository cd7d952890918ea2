"""The compiled loop of a local search takes the very steps that plain Python takes."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator, simulate
from graphs.host import Host
from graphs.op_graph import Ints, OpGraph, Phase
from graphs.problem import Problem
from graphs.runtime import IDEAL, runtime_of
from placers.search import local_search
from placers.search.evaluations import Evaluations
from placers.search.levels import Levels, levels_of
from placers.search.local_search import LocalSearch
from placers.search.metropolis import CoolingSchedule
from placers.search.moves import Moves, random_placements
from tests.drawn import examples
from tests.oracle.plain_annealing import PlainAnnealing
from tests.oracle.toys import random_graph, toy_cluster

BUDGET = 150


class OtherEvaluator(Simulator):
    """What a search knows nothing about but that it evaluates."""


def problem_of(
    ops: int, seed: int, devices: int, memory: float, bound: bool, tied: bool = False, order: str = "longest_path"
) -> Problem:
    """A random graph, of whose ops some may run on a few devices only, or a training step in units of several ops."""
    cluster, generator = toy_cluster(devices, memory=memory), np.random.default_rng(seed)
    graph = random_graph(ops, seed)
    if bound:
        names = [device.name for device in cluster.devices]
        some_of = [tuple(generator.permutation(names)[: generator.integers(devices + 1)].tolist()) for _ in range(ops)]
        graph = replace(graph, devices=tuple(some_of))
    if tied:
        phase, group = np.sort(generator.integers(4, size=ops)), generator.integers(-1, max(ops // 4, 1), size=ops)
        graph = replace(graph, phase=phase, group=group, devices=())
    return Problem(graph, cluster, runtime=IDEAL.with_knobs(order=order))


def searched(
    problem: Problem, first: Ints, seed: int, schedule: CoolingSchedule, other: bool = False, coarser: Levels = ()
) -> LocalSearch:
    """A search that has used its budget."""
    evaluations = Evaluations(problem, first)
    if other:
        evaluations.evaluator, evaluations.rule = OtherEvaluator(problem), np.zeros(0)
    evaluations.energies(first[None])
    search = LocalSearch(problem, np.random.default_rng(seed), evaluations, coarser)
    while evaluations.simulations < BUDGET and search.in_vain < schedule.patience:
        search.take_steps(schedule, BUDGET - evaluations.simulations)
    return search


def assert_same(search: LocalSearch, plain: PlainAnnealing) -> None:
    """Energies are logs: those of NumPy and those of the C library may differ in their last bit."""
    assert search.current.tolist() == plain.placement.tolist()
    assert search.evaluations.best.tolist() == plain.best.tolist()
    if search.has_order:
        assert search.priorities.tolist() == plain.priorities.tolist()
        assert search.evaluations.priorities.tolist() == plain.best_priorities.tolist()
    assert search.evaluations.curve == plain.curve
    assert search.evaluations.simulations == plain.simulations
    assert search.in_vain == plain.in_vain
    assert search.energy == pytest.approx(plain.energy, rel=1e-14)


@settings(max_examples=examples(40, 9), deadline=None)
@given(
    ops=some.integers(2, 40) | some.just(150), seed=some.integers(0, 99), devices=some.integers(1, 4),
    memory=some.sampled_from([1e9, 300.0, 60.0]), hot=some.sampled_from([0.0, 0.002, 0.5]), bound=some.booleans(),
    other=some.booleans(), reorder=some.sampled_from([0.0, 0.8]), tied=some.booleans(),
    order=some.sampled_from(["fifo", "longest_path"]),
)  # fmt: skip
def test_it_equals_plain_python(
    ops: int, seed: int, devices: int, bound: bool, memory: float, hot: float, other: bool, reorder: float, tied: bool,
    order: str,
) -> None:  # fmt: skip
    problem = problem_of(ops, seed, devices, memory, bound, tied, order)
    first = random_placements(problem, np.random.default_rng(seed), 1)[0]
    coarser = levels_of(problem)[1:]
    search = searched(problem, first, seed, CoolingSchedule(hot, hot / 10, BUDGET, reorder=reorder), other, coarser)
    generator = np.random.default_rng(seed)
    plain = PlainAnnealing(Simulator(problem), first, generator, BUDGET, coarser)
    plain.run(hot, hot / 10, reorder=0.0 if other else reorder)
    assert_same(search, plain)
    assert search.generator.bit_generator.state == generator.bit_generator.state


def layers_in_a_loop(count: int, seed: int) -> Problem:
    """A training step of layers, a unit each; on several devices their gradients of weights wait, which costs time."""
    edges = [(layer, layer + 1) for layer in range(count - 1)]
    kinds, mirror, latest = ["aten.mm"] * count, [-1] * count, count - 1
    for layer in reversed(range(count)):
        edges += [(latest, len(kinds)), (latest, len(kinds) + 1)]
        latest = len(kinds) + 1
        kinds += ["aten.mm.grad_weight", "aten.mm.grad"]
        mirror += [layer, layer]
    ops, forward, generator = len(kinds), np.array(mirror) < 0, np.random.default_rng(seed)
    graph = OpGraph(
        "layers", tuple(f"op{op}" for op in range(ops)), tuple(kinds), generator.integers(1, 5, ops).astype(float),
        np.zeros(ops), generator.integers(0, 3, ops).astype(float), np.array(edges),
        phase=np.where(forward, Phase.FORWARD, Phase.BACKWARD), mirror=np.array(mirror),
        group=np.where(forward, np.arange(ops), mirror),
    )  # fmt: skip
    host = replace(Host.uniform(2.0), deferral=0.45)
    return Problem(graph, toy_cluster(2), runtime=replace(runtime_of("parallelize"), host=host))


@pytest.mark.parametrize("seed", range(3))
def test_it_times_everything_on_one_device_as_the_simulator_does_where_gradients_wait_elsewhere(seed: int) -> None:
    problem = layers_in_a_loop(4, seed)
    alone = np.zeros(4, np.int64)
    if_they_waited = Simulator(problem.as_issued)
    assert Simulator(problem).seconds(alone[None]) < if_they_waited.seconds(alone[None])
    search = searched(problem, alone, seed, CoolingSchedule(0.5, 0.05, BUDGET))
    plain = PlainAnnealing(Simulator(problem), alone, np.random.default_rng(seed), BUDGET)
    plain.run(0.5, 0.05)
    assert_same(search, plain)


@pytest.mark.parametrize("steps", [1, 7, 10**6])
def test_how_many_steps_are_taken_at_a_time_changes_nothing(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(30, seed=3, devices=3, memory=1e9, bound=False)
    first = random_placements(problem, np.random.default_rng(0), 1)[0]
    plain = PlainAnnealing(Simulator(problem), first, np.random.default_rng(1), BUDGET)
    plain.run(0.1, 0.001, reorder=0.9)
    monkeypatch.setattr(local_search, "OPS_PER_CALL", 30 * steps)
    assert_same(searched(problem, first, 1, CoolingSchedule(0.1, 0.001, BUDGET, reorder=0.9)), plain)


@pytest.mark.parametrize("other", [False, True])
def test_it_stops_once_patience_is_over(other: bool) -> None:
    problem = problem_of(20, seed=5, devices=3, memory=1e9, bound=False)
    first = random_placements(problem, np.random.default_rng(0), 1)[0]
    search = searched(problem, first, 2, CoolingSchedule(patience=10), other=other)
    assert search.in_vain == 10
    assert search.evaluations.simulations < BUDGET
    plain = PlainAnnealing(Simulator(problem), first, np.random.default_rng(2), BUDGET)
    plain.run(0.0, 0.0, until=search.evaluations.simulations)
    assert_same(search, plain)


def test_the_elapsed_share_of_the_time_cools_too() -> None:
    problem = problem_of(30, seed=3, devices=3, memory=1e9, bound=False)
    first = random_placements(problem, np.random.default_rng(0), 1)[0]
    over, cold = (
        searched(problem, first, 1, CoolingSchedule(*how)) for how in ((0.5, 1e-9, 150, 1.0), (1e-9, 1e-9, 150))
    )
    assert over.current.tolist() == cold.current.tolist()


def test_a_plan_takes_what_the_search_says() -> None:
    problem, changed = problem_of(40, seed=3, devices=3, memory=1e9, bound=False), 0
    first = random_placements(problem, np.random.default_rng(0), 1)[0]
    for seed in range(20):
        search = searched(problem, first, seed, CoolingSchedule(0.1, 0.001, BUDGET, reorder=0.9))
        plan = Plan.of_units(problem, search.evaluations.best, order=search.evaluations.order)
        assert simulate(problem, plan).step_seconds == search.evaluations.curve[-1][1]
        changed += isinstance(plan.order, tuple)
        # whoever uses the same simulator afterwards finds the problem's rule
        assert search.evaluations.evaluator.seconds(first[None]) == Simulator(problem).seconds(first[None])
    assert changed > 0


def test_compiled_code_gives_its_generator_back() -> None:
    problem, generator = problem_of(30, seed=3, devices=3, memory=1e9, bound=False), np.random.default_rng(0)
    moves = Moves(problem, generator)
    moves.propose(np.zeros(30, np.int64))
    references = sys.getrefcount(generator)
    for _ in range(100):
        moves.propose(np.zeros(30, np.int64))
    assert sys.getrefcount(generator) == references
