"""An objective from a user's own file: what decides, and what is refused."""

import re
from pathlib import Path

import numpy as np
import pytest

from envs.objectives import evaluate_objective, evaluator_of
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from graphs.foundation.errors import InputError
from graphs.problem import Problem, objective_of
from tests.oracle.toys import random_graph, toy_cluster

OWN = """
import numpy as np
from envs.simulation.simulator import Outcomes, Simulator


class Mine:
    '''The number of the devices, added up: least if all is on the first.'''

    name = "whatever"

    def __init__(self, worst):
        self.worst = worst

    def evaluator(self, problem):
        return Devices(problem, self.worst)


class Devices:
    simulations = 0

    def __init__(self, problem, worst):
        self.problem, self.worst = problem, worst

    def run_batch(self, placements, *, threads=1):
        plans = len(placements)
        return Outcomes(self.seconds(placements), np.zeros((plans, len(self.problem.cluster))), np.ones(plans, bool))

    def seconds(self, placements, *, threads=1):
        total = np.asarray(placements).sum(axis=1) * RATE
        return self.worst - total if self.worst else total


RATE = 1.0


def build(*, worst: float = 0.0):
    return Mine(worst)


def nothing():
    return 3
"""


def problem(tmp_path: Path, *, code: str = OWN, function: str = "build") -> Problem:
    """Six ops on two devices, with the user's objective."""
    (tmp_path / "my.py").write_text(code)
    return Problem(random_graph(6, seed=0), toy_cluster(2), objective=objective_of(f"{tmp_path / 'my.py'}:{function}"))


def test_it_evaluates_plans(tmp_path: Path) -> None:
    assert evaluate_objective(problem(tmp_path), Plan.of([1, 1, 0, 0, 0, 1])) == 3.0
    assert evaluate_objective(problem(tmp_path, function="build:worst=10"), Plan.of([1, 1, 0, 0, 0, 1])) == 7.0


OF_PLAN = """
class Whole(Mine):
    def of_plan(self, problem, plan):
        return RESULT


def whole():
    return Whole(0.0)
"""


def test_it_judges_whole_plans_if_it_can(tmp_path: Path) -> None:
    plan = Plan(((0, 1),) * 6, schedule=Schedule(micro_batches=2))
    assert evaluate_objective(problem(tmp_path), plan) == 12.0, "two of four copies of six ops are on the second device"
    assert evaluate_objective(problem(tmp_path, code=OWN + OF_PLAN + "RESULT = 7", function="whole"), plan) == 7.0
    for wrong, sentence in (("nan", "got nan"), ("1 / 0", "ZeroDivisionError"), ("'a'", "got 'a'")):
        code = OWN + OF_PLAN.replace("RESULT", wrong) + "nan = float('nan')"
        with pytest.raises(InputError, match=sentence):
            evaluate_objective(problem(tmp_path, code=code, function="whole"), plan)


@pytest.mark.parametrize(
    ("changed", "into", "sentence"),
    [
        ("* RATE", "* RAT", "my.py:29: NameError: name 'RAT' is not defined"),
        ("* RATE", "* np.nan", "step_seconds of a placement is NaN"),
        (".sum(axis=1) * RATE", ".sum() * RATE", "expected step_seconds as an array of shape (2,), got"),
        ("return Outcomes(", "return (", "expected envs.simulation.simulator.Outcomes from `run_batch`, got tuple"),
    ],
)
def test_what_it_gets_wrong_is_named(tmp_path: Path, changed: str, into: str, sentence: str) -> None:
    assert changed in OWN
    evaluator = evaluator_of(problem(tmp_path, code=OWN.replace(changed, into)))
    with pytest.raises(InputError, match=re.escape(sentence)):
        evaluator.run_batch(np.zeros((2, 6), np.int64))


def test_what_is_no_objective_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected an objective, with a method `evaluator`, got int"):
        evaluator_of(problem(tmp_path, function="nothing"))
    with pytest.raises(InputError, match=r"no callable 'none' in it; there are: .*build"):
        evaluator_of(problem(tmp_path, function="none"))
    with pytest.raises(InputError, match="expected the name of a function after the file"):
        Problem(random_graph(6, seed=0), toy_cluster(2), objective=objective_of(f"{tmp_path / 'my.py'}"))
