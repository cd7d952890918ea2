"""What is said of an op placement next to data parallelism and one device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from evaluation.records.formatting import seconds
from evaluation.tables.beside_placements import OTHER_KINDS, beside_placement
from evaluation.tables.step_summary import StepSummary, kind_of
from graphs.files.load import load_cluster
from graphs.op_graph.batch_law import BatchLaw
from graphs.problem import Problem
from graphs.runtime import runtime_of
from placers.data_parallel import DataParallel
from tests.envs.placed_models.models import captured
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


def test_data_parallelism_is_named_with_its_seconds_where_it_is_faster() -> None:
    timeline = chain()
    ours = simulate(timeline.problem, DataParallel().place(timeline.problem).plan)
    assert ours.step_seconds < 0.75 * timeline.step_seconds
    (said,) = beside_placement(timeline)
    assert said.startswith(f"Data parallelism takes {seconds(ours.step_seconds)}, ")
    assert ", and fits: " in said
    assert beside_placement(timeline, compared=True) == []


def test_where_it_is_not_faster_or_unknown_other_kinds_are_named() -> None:
    timeline = chain()
    slow = replace(timeline, step_seconds=timeline.step_seconds / 4)
    assert beside_placement(slow) == []
    unknown = replace(timeline.problem, graph=replace(timeline.problem.graph, batch_law=BatchLaw(samples=0)))
    assert beside_placement(simulate(unknown, Plan.of(timeline.placement.tolist()))) == [OTHER_KINDS]


def test_what_does_not_fit_is_said() -> None:
    (said,) = beside_placement(chain(memory=1.0))
    assert ", but does not fit: gpu:0 needs " in said


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
        (said,) = beside_placement(gaining, compared=True)
        assert told in said
        assert not any("PyTorch" in each for each in beside_placement(replace(timeline, step_seconds=alone.seconds)))


def test_a_replayed_step_is_named_where_issuing_binds_the_loop() -> None:
    timeline = placed("gpt", [0, 1])
    placement = Plan.of(timeline.placement.tolist())
    for runtime, is_said in (("parallelize", True), ("parallelize:host=none", False), ("replay", False)):
        found = simulate(replace(timeline.problem, runtime=runtime_of(runtime)), placement)
        told = [each for each in beside_placement(found, compared=True) if "replayed" in each]
        assert len(told) == is_said
        if is_said:
            assert f"replayed, a step of this plan takes {seconds(in_loop(timeline, 'replay'))}." in told[0]


def test_it_is_said_of_which_plans_the_bound_is() -> None:
    timeline = placed("gpt", [0, 1])
    assert kind_of(timeline) == "undivided op placements"
    divided = simulate(timeline.problem, DataParallel().place(timeline.problem).plan)
    assert kind_of(divided) == "plans with as many micro-batches and replicas"
