"""The planner begins with the plans of a policy, if one is named."""

from dataclasses import replace

import numpy as np
import pytest

from graphs.foundation.errors import InputError
from placers.learned.whole_plans.placer import build
from placers.learned.whole_plans.policy import seconds_of
from placers.planner import LEARNED, Planner
from training.problems.random.random_chains import random_chain

DRAWN = random_chain(np.random.default_rng(11), "recurrent")
ROOMY = tuple(replace(each, memory_bytes=np.inf) for each in DRAWN.cluster.devices)
PROBLEM = replace(DRAWN, cluster=replace(DRAWN.cluster, devices=ROOMY))
SPEC = "whole_plans:untrained=yes"


def test_a_policys_plans_are_simulated_first_and_the_result_is_not_behind_them() -> None:
    proposed = build(untrained=True).proposals(PROBLEM, LEARNED, 1)
    assert len(proposed) == LEARNED
    fastest = min(seconds_of(PROBLEM, plan)[0] for plan in proposed)
    asked = Planner(whole_plans=SPEC, policy="").place(PROBLEM, seed=1, budget=LEARNED)
    assert asked.simulations == LEARNED
    assert seconds_of(PROBLEM, asked.plan)[0] == pytest.approx(fastest)
    longer = Planner(whole_plans=SPEC, policy="").place(PROBLEM, seed=1, budget=16)
    assert longer.simulations <= 16
    assert seconds_of(PROBLEM, longer.plan)[0] <= fastest * (1 + 1e-9)


def test_plans_that_the_planners_knobs_exclude_are_left_out() -> None:
    given = Planner(whole_plans=SPEC, policy="", micro_batches=2).place(PROBLEM, seed=1, budget=LEARNED + 1)
    assert given.plan.schedule.micro_batches == 2 or given.plan.is_placement


def test_a_placer_that_makes_no_whole_plans_is_refused() -> None:
    with pytest.raises(InputError, match="'single_device' proposes no whole plans"):
        Planner(whole_plans="single_device").place(PROBLEM, budget=40)
