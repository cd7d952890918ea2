"""What every order promises, whichever it is; and what is refused of a user's own."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.costs.costs import costs_of
from envs.orders import order_name, priorities_of
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator, simulate
from evaluation.records.identity import problem_digits
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats
from graphs.problem import Problem
from graphs.runtime import FIFO, IDEAL, LONGEST_PATH, RUNTIMES, order_of
from tests.oracle.oracle import simulate as simulate_plainly
from tests.oracle.strategies import Case, cases
from tests.oracle.toys import random_graph, toy_cluster, toy_graph

NAMES = by_name.names("envs.orders")
PROBLEM = Problem(random_graph(30, seed=1), toy_cluster(3))
OWN = """
import numpy as np


class Mine:
    def priorities(self, problem, op_seconds):
        assert op_seconds.shape == (len(problem.graph), len(problem.cluster))
        return {returned}


def build(*, reverse: bool = False):
    return Mine()
"""


def own(folder: Path, returned: str) -> str:
    """The spec of a rule that returns what an expression says."""
    (folder / "mine.py").write_text(OWN.format(returned=returned))
    return f"{folder / 'mine.py'}:build"


@pytest.mark.parametrize("name", NAMES)
def test_it_orders_every_op_or_none(name: str) -> None:
    priorities = order_of(name).built.priorities(PROBLEM, costs_of(PROBLEM).op_seconds)
    assert priorities.dtype == np.float64
    assert priorities.shape in ((30,), (0,))
    assert np.isfinite(priorities).all()
    assert priorities_of(PROBLEM, name).tolist() == priorities.tolist()
    assert IDEAL.with_knobs(order=name.replace("_", "-")).order.name == name


@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_problems_or_the_plans(name: str) -> None:
    """A plan's own order counts, and else the problem's."""
    placement = np.random.default_rng(0).integers(3, size=30)
    named = simulate(replace(PROBLEM, runtime=IDEAL.with_knobs(order=name)), Plan.of(placement))
    assert simulate(PROBLEM, Plan.of(placement, order=name)).start.tolist() == named.start.tolist()
    assert Simulator(PROBLEM, order=name).timeline(placement).start.tolist() == named.start.tolist()
    other = replace(PROBLEM, runtime=RUNTIMES[FIFO.name])
    assert simulate(other, Plan.of(placement, order=name)).start.tolist() == named.start.tolist()


@given(cases(), st.sampled_from(NAMES))
def test_a_plan_under_it_is_the_oracles_with_its_priorities(case: Case, name: str) -> None:
    problem, seconds = case.problem, case.op_seconds
    priorities = order_of(name).built.priorities(problem, seconds)
    for plan in range(len(case.placements)):
        expected = simulate_plainly(
            problem, seconds.tolist(), case.per_op(plan), priorities if len(priorities) else "fifo"
        )
        ours = simulate(problem, Plan.of(case.per_op(plan), order=name))
        assert ours.start.tolist() == expected.start
        assert ours.step_seconds == expected.step_seconds


@given(cases(), st.data())
def test_a_plans_numbers_are_the_oracles_order(case: Case, data: st.DataObject) -> None:
    """Per unit, for all its ops, as well as per op."""
    units = case.problem.graph.num_units
    numbers = data.draw(st.lists(st.floats(-9, 9), min_size=units, max_size=units))
    plan = PlacerResult.of_units(case.problem, case.placements[0], "", 0, order=numbers).plan
    per_op = np.array(numbers)[case.problem.graph.units]
    assert plan == Plan.of(case.per_op(0), order=per_op)
    expected = simulate_plainly(case.problem, case.op_seconds.tolist(), case.per_op(0), per_op)
    assert simulate(case.problem, plan).start.tolist() == expected.start


def test_the_longest_path_is_what_is_meant_unless_another_is_named() -> None:
    """a and b wait for one device; b is behind the longer path."""
    problem = Problem(toy_graph([1, 1, 5], [(1, 2)]), toy_cluster(1))
    starts = {order: Simulator(problem, order=order).timeline([0, 0, 0]).start.tolist() for order in ("", *NAMES)}
    assert starts == {"": [6, 0, 1], "longest_path": [6, 0, 1], "fifo": [0, 1, 2], "program": [0, 1, 2]}
    assert problem.runtime.order == LONGEST_PATH
    assert order_name(problem, None) == LONGEST_PATH.name
    assert order_name(problem, "fifo") == "fifo"
    assert order_name(problem, (3.0, 2.0, 1.0)) == "given"


def test_results_depend_on_it() -> None:
    assert len({problem_digits(replace(PROBLEM, runtime=IDEAL.with_knobs(order=name))) for name in NAMES}) == len(NAMES)


@pytest.mark.parametrize("wrong", ["longest_paths", "longest_path:a=1", "fif"])
def test_an_unknown_rule_or_knob_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match=r"order 'fif'; did you mean 'fifo'|'longest_path' has no knobs|longest_path"):
        simulate(PROBLEM, Plan.of([0] * 30, order=wrong))
    if ":" not in wrong:
        with pytest.raises(InputError, match="unknown order"):
            IDEAL.with_knobs(order=wrong)
        with pytest.raises(InputError, match="unknown order"):
            Plan.of([0] * 30, order=wrong).check(PROBLEM)


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        ([0.0] * 29, "order has 29 numbers, 'random30' has 30 ops"),
        ((), "order has 0 numbers"),
        ([0.0] * 29 + [np.nan], "gives op 'op29' the number nan"),
        ([np.inf] + [0.0] * 29, "gives op 'op0' the number inf"),
    ],
)
def test_numbers_that_order_no_ops_are_refused(order: list[float], sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        simulate(PROBLEM, Plan.of([0] * 30, order=order))


def test_an_array_is_no_order_of_a_plan() -> None:
    with pytest.raises(InputError, match=r"got ndarray; Plan\.of\(placement, order=numbers\) takes an array"):
        Plan(((0,),), order=np.zeros(1))  # type: ignore[arg-type]


def test_a_users_own_rule_decides(tmp_path: Path) -> None:
    spec = own(tmp_path, "-np.arange(len(problem.graph))")
    numbers: Floats = -np.arange(30.0)
    placement = np.random.default_rng(0).integers(3, size=30)
    by_numbers = simulate(PROBLEM, Plan.of(placement, order=numbers))
    problem = replace(PROBLEM, runtime=IDEAL.with_knobs(order=spec))
    assert simulate(problem, Plan.of(placement)).start.tolist() == by_numbers.start.tolist()
    before = problem_digits(problem)
    own(tmp_path, "np.arange(len(problem.graph))")
    assert problem_digits(problem) != before, "the file is part of the problem's identity"


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        ("np.zeros(3)", "expected one finite priority for each of the 30 ops of 'random30', or none"),
        ("np.full(30, np.nan)", "an array of shape (30,), of which 30 are NaN or infinite"),
        ("'first'", "expected priorities as numbers, got str"),
        ("None", "expected one finite priority"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_wrong_priorities_of_a_user_name_the_file(tmp_path: Path, returned: str, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)) as caught:
        Simulator(PROBLEM, order=own(tmp_path, returned))
    assert "mine.py" in str(caught.value)


def test_what_is_no_rule_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def build():\n    return 3\n")
    with pytest.raises(InputError, match="expected an order, with a method `priorities`, got int"):
        order_of(f"{tmp_path / 'mine.py'}:build").loaded()
