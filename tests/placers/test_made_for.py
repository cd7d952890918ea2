"""A plan that is made for another runtime than that of the problem."""

from dataclasses import replace

import pytest

from graphs.files.load import load_cluster, load_graph
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import runtime_of
from placers.annealing import Annealing
from placers.made_for import MadeFor
from placers.planner import Planner


def test_it_is_the_plan_of_the_other_problem() -> None:
    ideal = Problem(load_graph("rnnlm:layers=1,steps=2,hidden=8,batch=4"), load_cluster("p100:devices=2"))
    loop = replace(ideal, runtime=runtime_of("parallelize"))
    found = MadeFor("ideal", "annealing").place(loop, seed=3, budget=50)
    other = Annealing().place(ideal, seed=3, budget=50)
    assert found.plan == other.plan
    assert (found.placer, found.simulations, found.curve) == ("made_for:placer=annealing", 50, ())


def test_what_it_plans_for_and_by_is_checked_at_once() -> None:
    with pytest.raises(InputError, match="unknown runtime 'idle'"):
        MadeFor("idle")
    with pytest.raises(InputError, match="unknown placer"):
        MadeFor("ideal", "anneal")
    assert MadeFor(placer="planner").divides_batch == Planner.divides_batch
