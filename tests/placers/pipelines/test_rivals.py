"""None of the planner's rivals has a better plan."""

from __future__ import annotations

import pytest

from envs.costs.costs import timed
from envs.simulation.simulator import simulate
from graphs.files.load import load_cluster, load_graph
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.planner import Planner

MODEL = "transformer:layers=2,width=128,heads=2,sequence=32,batch=16,vocabulary=256"


@pytest.mark.parametrize("cluster", [pytest.param("v100_a100", marks=pytest.mark.slow), "home_fleet"])
def test_no_rival_is_faster_on_unequal_devices(cluster: str) -> None:
    problem = timed(Problem(load_graph(MODEL, with_law=True), load_cluster(cluster)))
    result = Planner(policy="").place(problem, budget=60)
    ours, compared = simulate(problem, result.plan), 0
    for rival in Planner().rivals():
        try:
            timeline = simulate(problem, rival.placer().place(problem, budget=8).plan)
        except InputError:
            continue
        compared += 1
        assert not timeline.fits or (ours.fits and ours.step_seconds <= timeline.step_seconds * (1 + 1e-9)), rival.spec
    assert compared >= 10
