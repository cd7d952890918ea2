"""Efficient Algorithms for Device Placement of DNN Graph Operators: the values of its released programs."""

import csv
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.costs.costs import costs_of
from graphs.files.graph_source import graph_source
from graphs.files.load import load_cluster
from graphs.foundation import by_name
from graphs.op_graph import Phase
from graphs.problem import Problem, objective_of
from placers.pipelines.cutting.contracted_graph import ContractedGraph
from placers.pipelines.cutting.ideals import Ideals
from placers.pipelines.cutting.split import best_split
from tests.drawn import examples
from tests.oracle.toys import device_loads, random_graph, toy_cluster

DATA = Path(__file__).parents[3] / "shared" / "data" / "msr"
EXPERTS = {
    "bert24_inference": "bert24_inference", "bert24_training": "bert24_training", "gnmt_inference": "gnmt_inference",
    "gnmt_training": "gnmt_training", "inceptionv3_inference": "inceptionv3_inference",
    "inceptionv3_training": "inceptionv3_inference",
}  # fmt: skip
METHODS = {"dp": "max_load_dp", "pipeDream": "pipedream", "oneFpga": "single_device", "expert": "expert"}


def published() -> list[tuple[str, str, float]]:
    """Workload, method and its milliseconds, where the released program finished."""
    reference = DATA / "reference.csv"
    if not reference.is_file():
        return []
    rows = csv.DictReader(reference.read_text().splitlines())
    return [
        (row["file"], row["method"], float(row["value"]))
        for row in rows
        if row["method"] in METHODS and row["metric"] == "time_per_sample" and row["value"]
    ]


def load_of(file: str, spec: str) -> float:
    """Milliseconds of a placer's plan for a workload."""
    problem = graph_source(str(DATA / file)).problem
    assert problem is not None
    asked = replace(problem, objective=objective_of("max-load"))
    plan = by_name.build("placers", spec).place(asked).plan
    return 1e3 * float(device_loads(asked, plan.placement, costs_of(asked)).max())


@pytest.mark.parametrize(("file", "method", "value"), published() or [("", "", 0.0)])
def test_a_released_program_and_ours_agree(file: str, method: str, value: float) -> None:
    if not file:
        pytest.skip("the released workloads are not at hand")
    name = Path(file).stem.removeprefix("layer_")
    split = DATA / "experts" / f"{EXPERTS.get(name)}_expert.json"
    assert load_of(file, f"expert:{split}" if method == "expert" else METHODS[method]) == pytest.approx(value, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("which", "at_most"), [("inference", 51.55186358642578), ("training", 122.67857501220708)])
def test_inception_is_solved_too_and_no_heuristic_split_in_order_is_better(which: str, at_most: float) -> None:
    file = f"throughput/layer_inceptionv3_{which}.json"
    if not (DATA / file).is_file():
        pytest.skip("the released workloads are not at hand")
    # the released program ran out of time; its best of linearize and local search, which may scatter, bounds ours
    assert load_of(file, "max_load_dp") <= at_most * (1.001 if which == "training" else 1 + 1e-6)


def problems(seed: int, ops: int, devices: int) -> Problem:
    """A random graph on equal devices."""
    return Problem(random_graph(ops, seed=seed), toy_cluster(devices, memory=1e9), objective=objective_of("max-load"))


@settings(max_examples=examples(60, 9), deadline=None)
@given(seed=st.integers(0, 10_000), ops=st.integers(1, 7), devices=st.integers(1, 3))
def test_no_contiguous_split_is_better(seed: int, ops: int, devices: int) -> None:
    problem = problems(seed, ops, devices)
    costs = costs_of(problem)
    plan = by_name.build("placers", "max_load_dp").place(problem).plan
    found = device_loads(problem, plan.placement, costs).max()
    best = min(
        device_loads(problem, placement, costs).max()
        for placement in itertools.product(range(devices), repeat=ops)
        if is_contiguous(problem, placement)
    )
    assert found == pytest.approx(best, rel=1e-9)


def is_contiguous(problem: Problem, placement: tuple[int, ...]) -> bool:
    """Whether the devices can be put in an order in which no forward edge goes back."""
    graph = problem.graph
    forward = graph.edges[(graph.phase[graph.edges] == Phase.FORWARD).all(axis=1)]
    for order in itertools.permutations(range(len(problem.cluster))):
        rank = np.array(order)[np.array(placement)]
        if (rank[forward[:, 0]] <= rank[forward[:, 1]]).all():
            return True
    return False


@settings(max_examples=examples(60, 9), deadline=None)
@given(seed=st.integers(0, 10_000), ops=st.integers(1, 12))
def test_a_found_load_is_the_one_of_its_split(seed: int, ops: int) -> None:
    problem = problems(seed, ops, 3)
    costs = costs_of(problem)
    contracted = ContractedGraph.of(problem, costs)
    ideals = Ideals.all(len(contracted), contracted.edges, 10_000)
    assert ideals is not None
    found = best_split(contracted, ideals, problem.cluster.memory_bytes)
    assert found is not None
    loads = device_loads(problem, found[1][contracted.node_of_unit][problem.graph.units], costs)
    assert found[0] == pytest.approx(loads.max(), rel=1e-9)


@settings(max_examples=examples(60, 9), deadline=None)
@given(seed=st.integers(0, 10_000), ops=st.integers(1, 12))
def test_transfers_far_longer_than_all_work_leave_a_split(seed: int, ops: int) -> None:
    problem = Problem(random_graph(ops, seed=seed), load_cluster("p100:devices=4"), objective=objective_of("max-load"))
    plan = by_name.build("placers", "max_load_dp").place(problem).plan
    assert device_loads(problem, plan.placement, costs_of(problem)).max() < 1e-9, (
        "all work takes less than one transfer"
    )


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), ops=st.integers(1, 9))
def test_the_ideals_of_a_graph_are_all_sets_that_hold_what_they_wait_for(seed: int, ops: int) -> None:
    edges = random_graph(ops, seed=seed).edges
    ideals = Ideals.all(ops, edges, 10_000)
    assert ideals is not None
    needs = [(1 << u, 1 << v) for u, v in edges.tolist()]
    closed = [s for s in range(1 << ops) if all(s & u or not s & v for u, v in needs)]
    assert sorted(ideals.masks[:, 0].tolist()) == closed
    assert Ideals.all(ops, edges, len(closed) - 1) is None
