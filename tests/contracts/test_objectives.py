"""What every objective promises, whichever it is."""

from dataclasses import replace

import numpy as np
import pytest

from envs.objectives import evaluate_objective, evaluator_of
from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator, simulate
from evaluation.commands.problems import problem_of
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.op_graph.batch_law import BatchLaw
from graphs.problem import MEASURED, STEP_TIME, Problem, objective_of
from tests.oracle.toys import random_graph, toy_cluster

# What is measured depends on what was run before, and needs processes: tests/envs/test_measured_objective.py.
# What is placed again needs the plan that runs: tests/envs/test_replacement.py.
NAMES = [file.replace("_", "-") for file in by_name.names("envs.objectives") if file not in (MEASURED, "replacement")]


def problem(objective: str, memory: float = 60.0) -> Problem:
    """Thirty ops on three devices with memory for some placements."""
    graph = replace(random_graph(30, seed=1), batch_law=BatchLaw(4))
    return Problem(graph, toy_cluster(3, memory=memory), objective=objective_of(objective))


def drawn(count: int) -> Ints:
    """Random placements of the problem."""
    return np.random.default_rng(0).integers(3, size=(count, 30))


@pytest.mark.parametrize("name", NAMES)
def test_it_is_named_by_its_file(name: str) -> None:
    assert problem(name.replace("-", "_")).objective.name == name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("threads", [1, 2])
def test_placements_cost_the_same_alone_together_and_without_memory(name: str, threads: int) -> None:
    evaluator = evaluator_of(problem(name))
    placements = drawn(20)
    together = evaluator.run_batch(placements, threads=threads)
    alone = [evaluator.run_batch(each[None]) for each in placements]
    assert together.step_seconds.tolist() == [each.step_seconds[0] for each in alone]
    assert together.peak_bytes.tolist() == [each.peak_bytes[0].tolist() for each in alone]
    assert together.fits.tolist() == [each.fits[0] for each in alone]
    assert evaluator.seconds(placements, threads=threads).tolist() == together.step_seconds.tolist()
    assert (together.step_seconds > 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_it_counts_what_it_evaluates(name: str) -> None:
    evaluator = evaluator_of(problem(name))
    evaluator.run_batch(drawn(3))
    evaluator.seconds(drawn(2))
    assert evaluator.simulations == 5


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_placement_is_refused(name: str) -> None:
    evaluator = evaluator_of(problem(name))
    for wrong in (np.zeros((1, 29), np.int64), np.full((1, 30), 3)):
        for evaluate in (evaluator.run_batch, evaluator.seconds):
            with pytest.raises(InputError, match=r"one device index for each of the 30 units|has devices 0 to 2"):
                evaluate(wrong)


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_what_a_simulated_step_takes(name: str) -> None:
    found, simulated = (each.run_batch(drawn(50)) for each in (evaluator_of(problem(name)), Simulator(problem(name))))
    assert found.peak_bytes.tolist() == simulated.peak_bytes.tolist()
    assert found.fits.tolist() == simulated.fits.tolist()


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_is_worth_what_the_evaluator_says(name: str) -> None:
    placement = drawn(1)[0]
    plan = Plan.of(placement)
    given = problem(name)
    seconds = float(evaluator_of(given).seconds(placement[None])[0])
    if name == STEP_TIME.name:
        assert seconds == simulate(given, plan).step_seconds
        assert evaluate_objective(given, plan) is None
    else:
        assert seconds == evaluate_objective(given, plan)


@pytest.mark.parametrize("objective", ["max-loads", "max-load:most=3", "nowhere.py:build"])
def test_a_wrong_objective_is_refused_before_a_model_is_captured(
    objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured: list[object] = []
    monkeypatch.setattr("evaluation.commands.problems.load_graph", captured.append)
    with pytest.raises(InputError):
        problem_of("rnnlm:layers=1,steps=2", "p100x2", objective=objective)
    assert not captured


def test_what_is_no_objective_is_named() -> None:
    with pytest.raises(InputError, match="unknown objective 'max-loads'; did you mean 'max-load'"):
        problem("max-loads")
    with pytest.raises(InputError, match="'max_load' has no knobs"):
        evaluator_of(problem("max-load:most=3"))
