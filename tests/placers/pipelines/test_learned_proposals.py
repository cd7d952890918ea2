"""The planner begins with the pipelines of a policy, if one is named."""

import numpy as np
import pytest

from graphs.foundation.errors import InputError
from placers.learned.whole_plans.placer import build
from placers.planner import LEARNED, Planner
from training.problems.random.random_chains import random_chain


def test_a_policys_plans_join_the_proposals_and_the_result_repeats() -> None:
    problem = random_chain(np.random.default_rng(11), "recurrent")
    planner = Planner(whole_plans="whole_plans:untrained=yes", policy="")
    one, again = (planner.place(problem, seed=1, budget=24) for _ in range(2))
    assert one == again
    assert one.simulations <= 24
    plans = build(untrained=True).proposals(problem, LEARNED, 1)
    assert len(plans) == LEARNED
    assert plans[0] == build(untrained=True).place(problem, seed=1, budget=0).plan


def test_a_placer_that_makes_no_whole_plans_is_refused() -> None:
    problem = random_chain(np.random.default_rng(11), "recurrent")
    with pytest.raises(InputError, match="'single_device' proposes no whole plans"):
        Planner(whole_plans="single_device").place(problem, budget=40)
