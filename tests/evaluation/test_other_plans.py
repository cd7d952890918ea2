"""What stands beside a plan: one device, data parallelism, FSDP; and the loop of the model's own code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from envs.costs.costs import timed
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from evaluation.records.formatting import ratio, seconds
from evaluation.tables.loop_sentences import loop_sentences
from evaluation.tables.other_plans import OtherPlans
from evaluation.tables.step_summary import SAME, StepSummary, kind_of
from graphs.files.load import load_cluster, load_graph
from graphs.op_graph.batch_law import BatchLaw
from graphs.problem import Problem
from graphs.runtime import runtime_of
from placers.data_parallel import DataParallel
from placers.gpipe import GPipe
from placers.planner import Planner
from tests.envs.placed_models.models import captured
from tests.evaluation.some_records import to_text
from tests.papers.test_dapple import chain_of
from tests.placers.pipelines.test_cuts import unequal


def chain(memory: float = np.inf) -> Timeline:
    """A chain on one of two devices, in whose 8 samples nothing is shared but weights."""
    graph = replace(chain_of([2.0] * 4, [0.0] * 4, [1.0] * 4).graph(), batch_law=BatchLaw(samples=8))
    problem = Problem(graph, unequal([1.0, 1.0], [memory] * 2), "sgd", graph.measured_seconds[:, None] * np.ones(2))
    return simulate(problem, Plan.of([0] * len(graph)))


def placed(name: str, devices: list[int]) -> Timeline:
    """A model's units on these devices, in equal parts one after the other."""
    problem = Problem(captured(name), load_cluster("v100x2"))
    part = np.arange(problem.graph.num_units) * len(devices) // problem.graph.num_units
    return simulate(problem, Plan.of_units(problem, np.array(devices)[part]))


def test_data_parallelism_and_one_device_stand_beside_a_plan() -> None:
    timeline = chain()
    ours = simulate(timeline.problem, DataParallel().place(timeline.problem).plan)
    assert ours.step_seconds < 0.75 * timeline.step_seconds
    beside = OtherPlans.of(timeline)
    assert beside is not None
    assert beside.headline() == (
        f"This plan takes {seconds(timeline.step_seconds)} a step and gains nothing over gpu:0 alone, "
        f"{seconds(timeline.step_seconds)}; others do: `placelab place` compares all kinds."
    )
    shown = to_text(beside.table())
    assert f"data parallelism {seconds(ours.step_seconds)}" in " ".join(shown.split())
    of_ours = OtherPlans.of(ours)
    assert of_ours is not None
    gain = ratio(timeline.step_seconds / ours.step_seconds)
    assert of_ours.headline().endswith(f"{gain} times as fast as gpu:0 alone, {seconds(timeline.step_seconds)}.")


def test_rows_are_what_the_search_compared_and_never_ahead_of_its_answer() -> None:
    timeline = chain()
    found = Planner(policy="").place(timeline.problem, budget=40)
    beside = OtherPlans.of(simulate(timeline.problem, found.plan), found)
    assert beside is not None
    assert beside.step_seconds <= min(each.step_seconds for each in beside.others.values() if each.fits)
    for name, spec in (("data parallelism", "data_parallel"), ("FSDP", "fsdp")):
        assert beside.others[name].step_seconds == simulate(timeline.problem, found.compared[spec]).step_seconds
    alone = DataParallel().place(timeline.problem)
    own = OtherPlans.of(simulate(timeline.problem, alone.plan), replace(alone, placer="data_parallel"))
    assert own is not None
    assert "data parallelism" not in own.others, "it is this plan, perhaps found in other simulations"


def test_where_several_devices_gain_nothing_that_is_said_first() -> None:
    timeline = chain()
    unknown = replace(timeline.problem, graph=replace(timeline.problem.graph, batch_law=BatchLaw(samples=0)))
    beside = OtherPlans.of(simulate(unknown, Plan.of(timeline.placement.tolist())))
    assert beside is not None
    assert not beside.others, "nobody knows how its batch divides"
    assert beside.headline().startswith("More devices gain nothing here over gpu:0 alone, ")
    assert beside.alone is not None
    slower = replace(beside, step_seconds=3 * beside.alone[1])
    said = f"This plan takes {seconds(slower.step_seconds)} a step, 3.00 times as long as gpu:0 alone, "
    assert slower.headline().startswith(said), "another plan may gain"


def test_what_does_not_fit_is_said() -> None:
    beside = OtherPlans.of(chain(memory=1.0))
    assert beside is not None
    assert beside.headline().endswith("; no device holds everything alone.")
    assert to_text(beside.table()).count("does not fit") == 1 + len(beside.others)


def test_a_plan_that_is_another_kind_itself_has_one_row() -> None:
    problem = chain().problem
    beside = OtherPlans.of(simulate(problem, DataParallel().place(problem).plan))
    assert beside is not None
    assert beside.name == "this one, data parallelism"
    assert [*beside.others] == ["FSDP"]


def test_a_device_that_holds_the_batch_in_parts_is_compared_with() -> None:
    graph = replace(chain_of([2.0] * 4, [8.0] * 4, [1.0] * 4).graph(), batch_law=BatchLaw(samples=8))
    problem = Problem(graph, unequal([1.0, 1.0], [30.0] * 2), "sgd", graph.measured_seconds[:, None] * np.ones(2))
    parts = Plan(((0,),) * len(graph), schedule=Schedule(micro_batches=8))
    plan = DataParallel().place(problem).plan
    ours = simulate(problem, plan)
    assert simulate(problem, parts).fits
    too_large = Plan.of([0] * len(graph))
    assert not simulate(problem, too_large).fits
    beside = OtherPlans.of(ours, PlacerResult(plan, compared={"data_parallel": parts, "fsdp": too_large}))
    assert beside is not None
    taken = simulate(problem, parts).step_seconds
    gain = ratio(taken / ours.step_seconds)
    assert beside.headline().endswith(f"{gain} times as fast as gpu:0 alone, 8 micro-batches, {seconds(taken)}.")
    assert to_text(beside.table()).count("gpu:0 alone") == 1
    assert beside.others["FSDP"].fits, "the search had no simulations left to find one that does"


def test_inference_has_nothing_beside_them() -> None:
    timeline = chain()
    forward = replace(
        timeline.problem, graph=replace(timeline.problem.graph, phase=np.zeros_like(timeline.graph.phase))
    )
    assert OtherPlans.of(simulate(forward, Plan.of(timeline.placement.tolist()))) is None


@pytest.mark.parametrize(
    ("runtime", "micro_batches", "training"),
    [("parallelize", 2, False), ("torch-pipelining", 1, False), ("torch-pipelining", 1, True)],
)
def test_a_plan_says_what_issuing_side_by_side_gains(runtime: str, micro_batches: int, training: bool) -> None:
    """As much as the same plan gains less where no host issues ops."""
    graph = load_graph("transformer:layers=4,width=64,heads=2,sequence=16,batch=8", training=training, with_law=True)
    given = Problem(graph, load_cluster("v100x4"), "sgd", runtime=runtime_of(runtime))
    problem = timed(given, "roofline:efficiency=measured")
    plan = GPipe(micro_batches=micro_batches).place(problem).plan
    (said,) = loop_sentences(simulate(problem, plan))
    free = simulate(replace(problem, runtime=runtime_of(f"{runtime}:host=none")), plan)
    gains = [StepSummary.of(each).speedup for each in (free, simulate(problem, plan))]
    assert gains[0] < gains[1] > 1
    shown = f"{gains[0]:.2f} times as fast as" if gains[0] > 1 + SAME else "no faster than"
    assert said.endswith(f"this plan were {shown} one device, not {gains[1]:.2f} times.")
    assert loop_sentences(free) == []


def in_loop(timeline: Timeline, runtime: str) -> float:
    problem = replace(timeline.problem, runtime=runtime_of(runtime))
    return simulate(problem, Plan.of(timeline.placement.tolist())).step_seconds


def test_a_gain_that_pytorchs_order_loses_is_said() -> None:
    for devices in ([0, 0], [0, 1]):
        timeline = placed("gpt", devices)
        alone = StepSummary.of(timeline).alone
        assert alone is not None
        issued = in_loop(timeline, "parallelize:host=none")
        assert issued == pytest.approx(alone.seconds) if devices == [0, 0] else issued < alone.seconds
        faster = "no faster than" if devices == [0, 0] else f"{alone.seconds / issued:.2f} times as fast as"
        told = f"model's own code has it: {seconds(issued)}, {faster} one device"
        gaining = replace(timeline, step_seconds=alone.seconds / 2)  # as if its own order did
        (said,) = loop_sentences(gaining)
        assert told in said
        assert not any("PyTorch" in each for each in loop_sentences(replace(timeline, step_seconds=alone.seconds)))


def test_a_replayed_step_is_named_where_issuing_binds_the_loop() -> None:
    timeline = placed("gpt", [0, 1])
    placement = Plan.of(timeline.placement.tolist())
    for runtime, is_said in (("parallelize", True), ("parallelize:host=none", False), ("replay", False)):
        found = simulate(replace(timeline.problem, runtime=runtime_of(runtime)), placement)
        told = [each for each in loop_sentences(found) if "replayed" in each]
        assert len(told) == is_said
        if is_said:
            assert f"a step of this plan takes {seconds(in_loop(timeline, 'replay'))}." in told[0]


def test_it_is_said_of_which_plans_the_bound_is() -> None:
    timeline = placed("gpt", [0, 1])
    assert kind_of(timeline) == "all op placements"
    divided = simulate(timeline.problem, DataParallel().place(timeline.problem).plan)
    assert kind_of(divided) == "all plans with as many micro-batches and replicas"
