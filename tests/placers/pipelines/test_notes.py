"""What the planner says of the plans that it compared."""

import numpy as np

from envs.plans.plan import Plan
from placers.pipelines.contest import Contestant
from placers.pipelines.merit import Merit
from placers.pipelines.notes import _worth


def test_of_a_plan_its_seconds_are_said_or_what_it_lacks() -> None:
    plan, peak = Plan(((0,),)), np.zeros(1)
    assert _worth(Contestant("heft", plan, Merit(0.0, 2.0), peak)) == "heft (2.00 s)"
    assert _worth(Contestant("heft", plan, Merit(1.5 * 2**30, 2.0), peak)) == "heft (lacks 1.50 GiB)"
