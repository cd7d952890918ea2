"""Measured step times as an objective: what is run, what is not, and who decides by it. No process is started here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from envs.gym.iterative import PlacetoEnv
from envs.gym.one_shot import GdpEnv
from envs.objectives import evaluator_of, measured
from envs.objectives.measured import Machine
from envs.plans.plan import Plan
from envs.running.processes import ProcessError
from envs.simulation.simulator import Simulator, simulate
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats
from graphs.problem import Problem, objective_of
from placers.learned.gdp.policy import OneShotPolicy
from placers.learned.learned_placer import LearnedPlacer
from placers.search.moves import random_placements
from tests.oracle.toys import random_graph, toy_cluster
from training.runs.finetune import FineTuner

RUNS = 6


@dataclass(frozen=True)
class Run:
    """What is read of a run."""

    counted: Floats


@dataclass
class Runs:
    """In place of processes: a plan takes what the simulator says, times a number that the plan decides."""

    asked: list[Plan] = field(default_factory=list)
    failing: bool = False

    def __call__(self, workers: object, training: object, problem: Problem, plan: Plan) -> Run:
        """As `run_plan`."""
        del workers, training
        self.asked.append(plan)
        if self.failing:
            raise ProcessError("process 0, on cpu, was killed (signal 9, out of memory?)")
        return Run(np.full(3, seconds(problem, plan)))


def seconds(problem: Problem, plan: Plan) -> float:
    """What a run of a plan takes, always the same."""
    factor = 1.2 + 0.4 * np.random.default_rng(plan.placement).random()
    return float(factor * simulate(replace(problem, objective=objective_of("step-time")), plan).step_seconds)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """All that were asked for."""
    made = Runs()
    monkeypatch.setattr(measured, "run_plan", made)
    return made


@pytest.fixture
def problem() -> Problem:
    """A new one, of which nothing was run."""
    return Problem(
        random_graph(14, seed=2), toy_cluster(3, memory=1e9), objective=objective_of(f"measured:runs={RUNS}")
    )


def test_of_placements_that_come_together_one_is_run_that_is_simulated_fastest(problem: Problem, runs: Runs) -> None:
    placements = random_placements(problem, np.random.default_rng(0), 20)
    simulated = Simulator(problem).run_batch(placements)
    outcomes = evaluator_of(problem).run_batch(placements)
    best = int(simulated.step_seconds.argmin())
    assert runs.asked == [Plan.of_units(problem, placements[best])]
    assert outcomes.step_seconds[best] == seconds(problem, runs.asked[0])
    ratio = outcomes.step_seconds[best] / simulated.step_seconds[best]
    others = np.arange(20) != best
    np.testing.assert_allclose(outcomes.step_seconds[others], ratio * simulated.step_seconds[others])
    np.testing.assert_array_equal(outcomes.peak_bytes, simulated.peak_bytes)


def test_what_was_not_run_is_never_better_than_what_was(problem: Problem, runs: Runs) -> None:
    evaluator, random = evaluator_of(problem), np.random.default_rng(1)
    for _ in range(3 * RUNS):
        placements = random_placements(problem, random, 5)
        found = evaluator.seconds(placements)
        was_run = np.array([Plan.of_units(problem, each) in runs.asked for each in placements])
        least = min(seconds(problem, plan) for plan in runs.asked)
        assert (found[~was_run] > least).all()
        assert (found[was_run] >= least).all()
    assert len(runs.asked) <= RUNS
    assert len(set(runs.asked)) == len(runs.asked)


def test_nothing_is_run_that_is_predicted_to_be_much_slower(problem: Problem, runs: Runs) -> None:
    placements = random_placements(problem, np.random.default_rng(2), 50)
    order = Simulator(problem).seconds(placements).argsort()
    evaluator = evaluator_of(problem)
    evaluator.run_batch(placements[order[:1]])
    evaluator.run_batch(placements[order[-1:]])
    assert runs.asked == [Plan.of_units(problem, placements[order[0]])]


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("environment", [GdpEnv, PlacetoEnv])
def test_environments_pay_for_measured_steps(environment: type[GdpEnv | PlacetoEnv], problem: Problem) -> None:
    _, info = environment(problem, order="").reset(seed=0)
    evaluator = evaluator_of(problem)
    assert isinstance(evaluator, Machine)
    assert list(evaluator.measured.values()) == [info["step_seconds"]]


def test_fine_tuning_ends_with_the_best_plan_that_was_run(problem: Problem, runs: Runs) -> None:
    placer = LearnedPlacer(OneShotPolicy.new("graphsage_transformer", seed=0), "gdp")
    tuned = FineTuner(placer).tune(problem, seed=0, simulations=200)
    found = {plan: seconds(problem, plan) for plan in runs.asked}
    assert tuned.result.plan.placement.tolist() == min(found, key=found.__getitem__).placement.tolist()
    assert tuned.result.curve[-1][1] == min(found.values())


def test_a_plan_that_fails_is_infinitely_slow_and_the_next_is_run(problem: Problem, runs: Runs) -> None:
    evaluator, placements = evaluator_of(problem), random_placements(problem, np.random.default_rng(3), 2)
    runs.failing = True
    assert evaluator.seconds(placements[:1])[0] == np.inf
    runs.failing = False
    found = evaluator.seconds(placements)
    assert found[0] == np.inf
    assert found[1] == seconds(problem, runs.asked[1])


def test_what_is_in_the_journal_is_not_run_again(problem: Problem, runs: Runs, tmp_path: Path) -> None:
    journal = tmp_path / "runs.jsonl"
    known = replace(problem, objective=objective_of(f"measured:file={journal}"))
    plans = [Plan.of_units(problem, each) for each in random_placements(problem, np.random.default_rng(4), 3)]
    found = [Machine(known, known.objective.built).of_plan(plan) for plan in plans[:2]]
    journal.write_bytes(journal.read_bytes() + b'{"of": "12')  # killed while it wrote
    resumed = Machine(known, known.objective.built)
    assert [resumed.of_plan(plan) for plan in plans[:2]] == found
    assert len(runs.asked) == 2
    third = resumed.of_plan(plans[2])
    assert Machine(known, known.objective.built).of_plan(plans[2]) == third
    assert len(runs.asked) == 3
    longer = objective_of(f"measured:steps=9,file={journal}")
    Machine(replace(problem, objective=longer), longer.built).of_plan(plans[0])
    assert len(runs.asked) == 4


def test_another_file_is_no_journal(problem: Problem, tmp_path: Path) -> None:
    journal = tmp_path / "plan.json"
    journal.write_text('{"format": 1}\n')
    wrong = objective_of(f"measured:file={journal}")
    with pytest.raises(InputError, match="is no journal of runs"):
        evaluator_of(replace(problem, objective=wrong))


def test_the_model_may_be_a_users_file() -> None:
    spec = "measured:model=my_model.py:build,runs=3"
    built = by_name.build("envs.objectives", spec)
    assert (built.model, built.runs) == ("my_model.py:build", 3)


def test_who_takes_the_simulator_alone_refuses_it(problem: Problem) -> None:
    with pytest.raises(InputError, match="exact knows step times only"):
        by_name.build("placers", "exact").place(problem, budget=0)
