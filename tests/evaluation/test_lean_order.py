"""The order of a plan without its own gives way to memory, where plans are run in any order."""

from dataclasses import replace

import numpy as np
import pytest

from envs.plans.plan import Plan
from evaluation.comparing.simulated_plan import SimulatedPlan
from graphs.problem import Problem
from graphs.runtime import IDEAL, PROGRAM, runtime_of
from placers.annealing import Annealing
from placers.search.evaluations import OVERFLOW
from tests.oracle.toys import toy_cluster, toy_graph

MAKES, READS = 10.0, 1.0  # bytes of outputs
LEAN, LONGEST_PATH = MAKES + 2 * READS, 2 * MAKES + READS  # peaks


def two_branches(memory: float) -> Problem:
    """Two of "makes much, reads it", as numbered: one branch after the other. By longest paths much is made twice."""
    edges = [(0, 1), (2, 3), (1, 4), (3, 4)]
    graph = toy_graph([1] * 5, edges, output_bytes=[MAKES, READS, MAKES, READS, 0])
    return Problem(graph, toy_cluster(1, memory=memory))


def test_a_plan_without_an_order_takes_a_leaner_one_before_it_is_called_unfit() -> None:
    plan = Plan.of([0] * 5)
    ample = SimulatedPlan.of(two_branches(LONGEST_PATH), plan)
    assert (ample.timeline.fits, ample.record.order, ample.record.notes) == (True, "longest_path", ())
    assert ample.timeline.peak_bytes.tolist() == [LONGEST_PATH]
    tight = SimulatedPlan.of(two_branches(LEAN), plan)
    assert (tight.timeline.fits, tight.record.order, tight.plan.order) == (True, "program", PROGRAM)
    assert tight.timeline.peak_bytes.tolist() == [LEAN]
    assert tight.record.notes == (
        "Under the rule longest_path it does not fit, so it has the order of PyTorch, program.",
    )
    none = SimulatedPlan.of(two_branches(LEAN - 1), plan)
    assert (none.timeline.fits, none.record.order) == (False, "longest_path")


@pytest.mark.parametrize("runtime", ["fifo", "ideal:order=fifo"])
def test_an_order_that_is_asked_for_stays(runtime: str) -> None:
    problem = two_branches(LEAN)
    assert not SimulatedPlan.of(problem, Plan.of([0] * 5), own_order=False).timeline.fits
    assert not SimulatedPlan.of(problem, Plan.of([0] * 5, order=[0, 2, 1, 3, 4])).timeline.fits
    assert not SimulatedPlan.of(replace(problem, runtime=runtime_of(runtime)), Plan.of([0] * 5)).timeline.fits


def test_a_search_begins_with_what_fits() -> None:
    problem = two_branches(LEAN)
    assert problem.runtime == IDEAL
    search = Annealing().begin(problem, seed=0, budget=40)
    assert search.evaluations.incumbent.value < OVERFLOW
    assert isinstance(search.evaluations.order, np.ndarray)
    assert SimulatedPlan.by(Annealing(), problem, budget=40).timeline.fits
