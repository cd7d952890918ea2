"""What memory plans take is told apart, adds up, and says whether anything fits."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from evaluation.comparing.memory_needs import MemoryNeeds
from evaluation.tables.plan_memory import DeviceMemory, usual_plans
from graphs.cluster import Cluster
from graphs.files.load import load_cluster
from graphs.foundation import by_name
from graphs.foundation.errors import DoesNotFitError
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.data_parallel import DataParallel
from placers.gpipe import GPipe
from placers.human_expert import HumanExpert
from placers.single_device import SingleDevice
from tests.drawn import examples
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.envs.expansion.random_plans import planned
from tests.evaluation.some_records import to_text
from tests.oracle.toys import toy_cluster, toy_graph


@settings(max_examples=examples(60, 9), deadline=None, suppress_health_check=list(HealthCheck))
@given(planned())
def test_the_parts_of_a_devices_memory_are_all_of_it(case: tuple[Problem, Plan]) -> None:
    problem, plan = case
    timeline = simulate(problem, plan)
    for device, static in zip(DeviceMemory.of(timeline), timeline.held_bytes, strict=True):
        parts = (device.weights, device.state, device.activations, device.received, device.versions, device.sums)
        assert sum(parts) == pytest.approx(device.peak)
        assert min(parts) >= -1e-9
        assert static - 1e-9 <= device.weights + device.state
        assert device.state == 0 or problem.graph.is_training


def test_copies_of_what_other_devices_made_are_apart() -> None:
    graph = toy_graph([1, 1], [(0, 1)], output_bytes=[3, 4], weights=[10, 20], weight_uses=[(0, 0), (1, 0), (1, 1)])
    timeline = simulate(Problem(graph, toy_cluster(2)), Plan.of_units(Problem(graph, toy_cluster(2)), [0, 1]))
    first, second = DeviceMemory.of(timeline)
    assert (first.weights, first.activations, first.received, first.peak) == (10, 3, 0, 13)
    assert (second.weights, second.activations, second.received, second.peak) == (30, 4, 3, 37)


def needs(cluster: Cluster, optimizer: str = "none") -> MemoryNeeds:
    pipeline = Pipeline(4, 8, activation=10, weights=100)
    placers: list[tuple[str, Placer]] = [
        ("one", SingleDevice()),
        ("many", GPipe(micro_batches=8)),
        ("odd", GPipe(replicas=3)),
    ]
    return MemoryNeeds.of(pipeline.problem(cluster, optimizer=optimizer), placers, budget=4)


def test_each_plan_says_what_its_fullest_device_holds() -> None:
    one, many, odd = needs(servers(2, memory=700)).plans
    assert [device.peak for device in one.devices] in ([720, 0], [0, 720])  # four weights, four outputs of 8 x 10
    assert not one.fits
    assert one.fullest.lacks == 20
    assert [device.peak for device in many.devices] == [200 + 8 * 20] * 2
    assert many.fits
    assert many.devices[1].received == 10  # what the last micro-batch enters with, before its last output is made
    assert many.devices[1].activations == 8 * 20 - 10
    assert many.fullest.micro_batches == 8
    assert "replicas" in odd.refused
    assert not odd.fits


def test_a_device_that_holds_nothing_is_not_the_fullest() -> None:
    (plan,) = MemoryNeeds.of(
        Pipeline(2, activation=10, weights=100).problem(servers(2, memory=300)), [("one", SingleDevice())], budget=1
    ).plans
    assert plan.fullest.peak == 220
    assert plan.fullest.lacks == -80


def test_the_tables_are_as_wide_as_a_terminal_and_name_every_plan() -> None:
    for count in (2, 4, 8):
        text = to_text(needs(servers(count, memory=700)), width=100)
        assert max(map(len, text.splitlines())) <= 100
        assert text.count("\n  many ") == 2
        assert "no, 20 B too little" in text
        assert "odd: gpipe: " in text


def test_nothing_fits_is_said_with_what_is_missing_least() -> None:
    needs(servers(2, memory=700)).require_fit()
    with pytest.raises(DoesNotFitError, match=r"none of these plans fits .*least is lacking with many, 160 B on gpu:0"):
        needs(servers(2, memory=200)).require_fit()


def test_what_makes_room_is_named_and_nothing_else() -> None:
    for memory, optimizer, batch, sgd in (
        (500, "none", True, False),
        (150, "none", False, False),
        (4000, "adam", True, True),
    ):
        problem = Pipeline(4, 8, activation=100, weights=100).problem(servers(2, memory=memory), optimizer=optimizer)
        found = MemoryNeeds.of(problem, [("one", SingleDevice())], budget=4)
        with pytest.raises(DoesNotFitError) as refused:
            found.require_fit()
        assert ("a smaller batch, more micro-batches" in str(refused.value)) == batch
        assert ("`optimizer='sgd'`" in str(refused.value)) == sgd
        assert "precision" not in str(refused.value), "it is no captured model"


def test_what_was_refused_is_no_plan() -> None:
    found = needs(servers(2))
    alone = replace(found, plans=found.plans[2:])
    with pytest.raises(DoesNotFitError, match=r"there is no plan for .*replicas"):
        alone.require_fit()
    assert "replicas" in to_text(alone)


def test_json_has_every_device_and_no_infinity() -> None:
    found = json.loads(json.dumps(needs(servers(2, memory=math.inf)).to_json(), allow_nan=False))
    assert [plan["kind"] for plan in found["plans"]] == ["one", "many", "odd"]
    assert found["plans"][1]["devices"][1] == {
        "device": "gpu:1", "limit": None, "peak": 360, "weights": 200, "state": 0, "activations": 150, "received": 10,
        "versions": 0, "sums": 0, "micro_batches": 8,
    }  # fmt: skip
    assert "refused" in found["plans"][2]


@pytest.mark.parametrize("cluster", ["rtx3090_rtx3060", "home_fleet", "mixed:rtx4090", "cpu_gpu:gpus=1", "p100x4"])
def test_every_usual_plan_is_a_placer_and_makes_sense_on_the_cluster(cluster: str) -> None:
    usual = usual_plans(Pipeline(2, 3).problem(load_cluster(cluster)))
    assert len({kind for kind, _ in usual}) == len(usual)
    for _, spec in usual:
        by_name.check("placers", spec)
    is_unlike = cluster in ("rtx3090_rtx3060", "home_fleet")
    assert ("data parallel, equal shares" in dict(usual)) == is_unlike
    accelerators = np.count_nonzero(~load_cluster(cluster).is_cpu)
    assert ("gpipe" in dict(usual).values()) == (accelerators > 1)
    assert ("optimizer offloaded" in dict(usual)) == (cluster in ("home_fleet", "cpu_gpu:gpus=1"))


def test_data_parallelism_on_one_device_is_none() -> None:
    placers: list[tuple[str, Placer]] = [
        ("single device", SingleDevice()),
        ("data parallel", DataParallel(devices=1, micro_batches=1)),
        ("data parallel, accumulated", DataParallel(devices=1)),
    ]
    for samples, kinds in ((8, ["single device", "single device, accumulated"]), (1, ["single device"])):
        problem = Pipeline(4, samples, activation=10, weights=100).problem(servers(2, memory=700))
        assert [plan.kind for plan in MemoryNeeds.of(problem, placers, budget=8).plans] == kinds


def test_notes_of_placers_are_shown() -> None:
    problem = Pipeline(2, 3, activation=1).problem(servers(2))
    found = MemoryNeeds.of(problem, [("expert", HumanExpert())], budget=1)
    noted = replace(found, plans=(replace(found.plans[0], notes=("a note",)),))
    assert "expert: a note" in to_text(noted)
    named = replace(noted.plans[0], kind="by hand", placer="human_expert:devices=2", notes=("human_expert: a note",))
    assert "by hand: a note" in to_text(replace(found, plans=(named,)))
