"""What every placer promises, whichever it is."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from envs.plans.placer_result import PlacerResult
from envs.simulation.bounds import lower_bound
from envs.simulation.simulator import simulate
from evaluation.commands.load_placer import chosen_placers, divides_batch
from graphs.cluster import Cluster, Device
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.default import RELEASED
from placers.learned.lookup import learned_placers
from tests.oracle.toys import random_graph, toy_cluster, toy_graph

NAMES = by_name.built_in("placers")
SPLIT = Path(__file__).parents[1] / "fixtures" / "all_on_the_first.toml"
GIVEN = {
    "exact": "exact:work=0.02",  # at its default it takes long
    "max_load_dp": "max_load_dp:ideals=2000",  # likewise, where there are more
    "expert": f"expert:{SPLIT}",  # which has no default
    # which only answer untrained if they are asked to
    **{name: f"{name}:untrained=yes" for name in learned_placers()},
}


def unequal_cluster() -> Cluster:
    """A processor and two accelerators, one of them small and fast, with a slow way to the processor."""
    devices = (
        Device("cpu:0", "cpu", 0.1, 0.1, 1000.0),
        Device("gpu:0", "gpu", 1.0, 1.0, 100.0, 0.1),
        Device("gpu:1", "gpu", 3.0, 3.0, 50.0, 0.2),
    )
    bandwidth = np.array([[1.0, 0.1, 0.1], [0.1, 1.0, 2.0], [0.1, 2.0, 1.0]])
    return Cluster("unequal", devices, np.full((3, 3), 0.5), bandwidth, np.arange(9).reshape(3, 3))


def training_graph() -> OpGraph:
    """Twelve forward ops, their backward ops tied to them, and an update of each weight."""
    forward = random_graph(12, seed=3)
    ops = np.arange(12)
    back = 12 + forward.edges[:, ::-1]
    saved = np.stack([ops, 12 + ops], axis=1)
    return replace(
        forward,
        name="training",
        names=tuple(f"{phase}{i}" for phase in ("forward", "backward", "update") for i in range(12)),
        kinds=("any",) * 36,
        flops=np.tile(forward.flops, 3),
        bytes_accessed=np.tile(forward.bytes_accessed, 3),
        output_bytes=np.concatenate([forward.output_bytes, forward.output_bytes, np.zeros(12)]),
        edges=np.concatenate([forward.edges, back, saved, 12 + saved]),
        control=np.zeros(0, np.bool_),
        phase=np.repeat([Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE], 12),
        mirror=np.concatenate([np.full(12, -1), ops, ops]),
        group=np.full(36, -1),
        measured_seconds=np.zeros(0),
    )


PROBLEMS = {
    "two devices": Problem(random_graph(30, seed=1), toy_cluster(2)),
    "unequal devices": Problem(random_graph(30, seed=2), unequal_cluster()),
    "tied ops": Problem(training_graph(), toy_cluster(3)),
    "fits when split": Problem(
        toy_graph([1, 1, 1], [(0, 1), (1, 2)], weights=[60, 30, 60], weight_uses=[(0, 0), (1, 1), (2, 2)]),
        toy_cluster(2),
    ),
    "fits nowhere": Problem(toy_graph([1, 1], [(0, 1)], weights=[999], weight_uses=[(0, 0)]), toy_cluster(2)),
    "one op": Problem(toy_graph([1], []), toy_cluster(4)),
    "one device": Problem(random_graph(10, seed=4), toy_cluster(1)),
    "bound to devices": Problem(
        replace(random_graph(30, seed=6), devices=(("gpu:0",), ("gpu:1", "gpu:2"), ()) * 10), toy_cluster(3)
    ),
    "nothing to pay": Problem(toy_graph([0, 0, 0], [(0, 1)], output_bytes=[0, 0, 0]), toy_cluster(2, memory=0.0)),
}

BUDGETS = (0, 1, 9)  # each placer meets all of them, each problem one, unless slow tests run as well
BUDGET = {
    "two devices": 9, "unequal devices": 1, "tied ops": 9, "fits when split": 1, "fits nowhere": 0, "one op": 9,
    "one device": 0, "bound to devices": 9, "nothing to pay": 0,
}  # fmt: skip
CASES = [
    pytest.param((name, budget), id=f"{name}-{budget}", marks=[] if BUDGET[name] == budget else pytest.mark.slow)
    for name in PROBLEMS
    for budget in BUDGETS
]

REFUSED = {(name, "bound to devices") for name in ("data_parallel", "fsdp", "parallel", "whole_plans:untrained=yes")}


@pytest.fixture(scope="module", params=NAMES)
def placer(request: pytest.FixtureRequest) -> Placer:
    """Each placer in turn, with its default knobs but for work."""
    if request.param in ("default", "neural_lns") and not RELEASED.is_dir():
        pytest.skip("this copy comes without the released policy")
    built: Placer = by_name.build("placers", GIVEN.get(request.param, request.param))
    return built


class Case(NamedTuple):
    problem: Problem
    budget: int
    result: PlacerResult


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, placer: Placer) -> Case:
    """What the placer answers with seed 5: each problem in turn, but for those that it refuses."""
    name, budget = request.param
    problem = PROBLEMS[name]
    if (placer.name, name) in REFUSED:
        with pytest.raises(InputError, match="may only run on"):
            placer.place(problem)
        pytest.skip("refused, as it should be")
    return Case(problem, budget, placer.place(problem, seed=5, budget=budget))


def test_a_plan_is_one_for_the_problem_and_the_budget_is_kept(placer: Placer, case: Case) -> None:
    result = case.result
    result.plan.check(case.problem)
    assert (result.placer, result.seed) == (placer.name, 5)
    assert result.plan.is_placement or divides_batch([placer])
    assert 0 <= result.simulations <= case.budget


def test_the_same_seed_gives_the_same_plan(placer: Placer, case: Case) -> None:
    assert placer.place(case.problem, seed=5, budget=case.budget) == case.result


def test_no_plan_is_faster_than_the_lower_bound(case: Case) -> None:
    timeline = simulate(case.problem, case.result.plan)
    written_out = timeline.expansion.problem if timeline.expansion else case.problem  # replicas divide ops: others
    assert timeline.step_seconds >= lower_bound(written_out) * (1 - 1e-9)


def test_its_name_builds_it_again(placer: Placer) -> None:
    again: Placer = by_name.build("placers", placer.name)
    assert again.name == placer.name


def test_it_travels_to_another_process(placer: Placer) -> None:
    assert pickle.loads(pickle.dumps(placer)).name == placer.name


@pytest.mark.parametrize("name", learned_placers())
def test_one_that_learns_on_each_problem_travels_to_another_process(name: str) -> None:
    [placer] = chosen_placers([f"{name}+finetuned"], ())
    assert pickle.loads(pickle.dumps(placer)).name == placer.name


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_knob_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"unknown knob 'of_no_placer'|has no knobs"):
        by_name.build("placers", f"{name}:of_no_placer=1")


@pytest.mark.parametrize("name", ["Metis", "__init__", "learned/gdp/placer", "contract", "../placers/metis", ""])
def test_what_only_leads_to_a_file_is_no_name(name: str) -> None:
    with pytest.raises(InputError, match="unknown placer"):
        by_name.build("placers", name)
