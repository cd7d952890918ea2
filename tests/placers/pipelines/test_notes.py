"""What the planner says of the plans that it compared."""

import numpy as np

from envs.plans.plan import Plan
from placers.pipelines.budget import spending
from placers.pipelines.contest import Contest, Contestant
from placers.pipelines.merit import Merit
from placers.pipelines.notes import _worth, said_of
from tests.envs.expansion.pipelines import Pipeline


def test_of_a_plan_its_seconds_are_said_or_what_it_lacks() -> None:
    plan, peak = Plan(((0,),)), np.zeros(1)
    assert _worth(Contestant("heft", plan, Merit(0.0, 2.0), peak)) == "heft (2.00 s)"
    assert _worth(Contestant("heft", plan, Merit(1.5 * 2**30, 2.0), peak)) == "heft (lacks 1.50 GiB)"


def test_planners_without_a_plan_for_the_same_reason_are_in_one_sentence() -> None:
    problem = Pipeline(1).problem()
    with spending(1, "a test") as spent:
        contest = Contest(problem, spent)
    contest.offer("single_device", Plan.of([0] * len(problem.graph)), even_if_stopped=True)
    contest.refused = {"a": "it has no columns", "b": "there is one device", "c": "it has no columns"}
    assert [*said_of(contest, problem)][1:] == [
        "planner: no plan of a, c: it has no columns.", "planner: no plan of b: there is one device.",
    ]  # fmt: skip
