"""The objective flow: samples per second through stages whose replicas share requests by speed."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.objectives import evaluate_objective, evaluator_of
from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from graphs.foundation.errors import InputError
from graphs.op_graph.batch_law import BatchLaw
from graphs.problem import Problem, objective_of
from placers.pipelines.budget import spending
from placers.pipelines.pipeline_evaluator import PipelineEvaluator
from placers.planner import Planner
from tests.envs.expansion.pipelines import Pipeline, servers

SAMPLES = 12
SPEED = st.sampled_from([1.0, 2.0, 3.0, 5.0])


def serving(
    layers: int, speeds: list[float], *, sent: float = 0.0, bandwidth: float = 1.0, objective: str = "flow"
) -> Problem:
    """Layers that take a second of each sample on a device of speed 1, and send so many bytes of it."""
    chain = Pipeline(layers, forward=float(SAMPLES), activation=sent * SAMPLES, is_training=False)
    even = servers(len(speeds), bandwidth=bandwidth)
    devices = (replace(one, flops_per_second=speed) for one, speed in zip(even.devices, speeds, strict=True))
    graph = replace(chain.graph(), batch_law=BatchLaw(SAMPLES))
    return Problem(graph, replace(even, devices=tuple(devices)), objective=objective_of(objective))


def rate(problem: Problem, *stages: tuple[int, ...]) -> float:
    """Samples per second of stages on these devices, each of one layer."""
    plan = Plan(stages, schedule=Schedule(stages=tuple(range(len(stages)))))
    found = evaluate_objective(problem, plan)
    assert found is not None
    return 1 / found


def test_replicas_share_requests_by_speed() -> None:
    problem = serving(2, [4.0, 3.0, 2.0])
    assert rate(problem, (0,), (1, 2)) == pytest.approx(4)
    assert rate(problem, (1, 2), (0,)) == pytest.approx(4)
    assert rate(problem, (0, 1), (2,)) == pytest.approx(2)
    assert evaluate_objective(problem, Plan.of([0, 0])) == pytest.approx(2 / 4)


def test_what_a_link_does_not_carry_takes_another() -> None:
    """From each device on the left at most one sample in a second to each on the right."""
    problem = serving(2, [5.0, 1.0, 2.0, 2.0], sent=3.0, bandwidth=3.0)
    assert rate(problem, (0,), (2,)) == pytest.approx(1)
    assert rate(problem, (0,), (2, 3)) == pytest.approx(2)
    assert rate(problem, (0, 1), (2, 3)) == pytest.approx(3)
    assert evaluate_objective(problem, Plan.of([0, 2])) == pytest.approx(1)


@given(st.lists(SPEED, min_size=4, max_size=4), st.sampled_from([0.0, 0.5, 1.0]), st.integers(1, 3))
def test_it_is_the_least_of_all_cuts(speeds: list[float], sent: float, first: int) -> None:
    problem = serving(2, speeds, sent=sent)
    stages = tuple(range(first)), tuple(range(first, 4))
    link = 1 / sent if sent else np.inf
    cuts = []
    for left, right in itertools.product(*(itertools.product([False, True], repeat=len(each)) for each in stages)):
        cut = sum(speeds[d] for d, kept in zip(stages[0], left, strict=True) if not kept)
        cut += sum(speeds[d] for d, kept in zip(stages[1], right, strict=True) if kept)
        crossing = sum(left) * (len(right) - sum(right))  # from what the source reaches to what it does not
        cuts.append(cut + (link * crossing if crossing else 0.0))
    assert rate(problem, *stages) == pytest.approx(min(cuts), rel=1e-6)


@given(SPEED, SPEED)
def test_a_device_in_two_stages_shares_its_time_between_them(both: float, first: float) -> None:
    """It leaves the first stage to the other device as far as that is fast enough."""
    problem = serving(2, [both, first])
    assert rate(problem, (0, 1), (0,)) == pytest.approx(min(both, (both + first) / 2))
    assert rate(problem, (0,), (0,)) == pytest.approx(both / 2)


def test_a_link_that_two_stages_send_over_is_shared() -> None:
    """Of three stages, the first and the last on one device: a second there, a second to it and a second back."""
    problem = serving(3, [9.0, 9.0], sent=1.0)
    assert rate(problem, (0,), (1,), (0,)) == pytest.approx(1)
    problem = serving(4, [9.0, 9.0], sent=1.0)
    assert rate(problem, (0,), (1,), (0,), (1,)) == pytest.approx(1 / 2)


@given(st.lists(SPEED, min_size=3, max_size=3), st.sampled_from([0.0, 1.0]), st.data())
def test_a_stage_on_each_device_is_an_op_placement(speeds: list[float], sent: float, data: st.DataObject) -> None:
    problem = serving(6, speeds, sent=sent)
    cuts = sorted(data.draw(st.sets(st.integers(1, 5), min_size=2, max_size=2)))
    placement = np.searchsorted(cuts, np.arange(6), side="right")
    staged = Plan(tuple((each,) for each in placement.tolist()), schedule=Schedule(2))
    found = evaluate_objective(problem, staged)
    assert found == pytest.approx(evaluate_objective(problem, Plan.of(placement)), rel=1e-6)
    assert evaluator_of(problem).run_batch(placement[None]).step_seconds[0] == pytest.approx(found, rel=1e-6)


def with_rates(folder: Path, text: str) -> Problem:
    file = folder / "rates.toml"
    file.write_text(f'schema = "placelab.rates"\nversion = 1\n\n[samples_per_second]\n{text}')
    return serving(4, [1.0, 1.0], objective=f"flow:rates={file}")


def test_a_file_says_how_fast_a_device_is_with_the_layers_that_it_holds(tmp_path: Path) -> None:
    problem = with_rates(tmp_path, '"gpu" = [90, 40, 20]\n"gpu:1" = [30.5, 10, 5]\n')
    for placement, expected in (([0, 0, 0, 1], 20), ([0, 0, 1, 1], 10), ([0, 1, 1, 1], 5), ([0, 0, 0, 0], 0)):
        found = evaluate_objective(problem, Plan.of(placement))
        assert found == (pytest.approx(1 / expected) if expected else np.inf)
    shared = Plan(((0, 1), (0, 1), (0,), (0,)), schedule=Schedule(stages=(0, 0, 1, 1)))
    assert evaluate_objective(problem, shared) == np.inf  # four layers on the first device
    turns = Plan(((0,), (0, 1), (0,), (1,)), schedule=Schedule(stages=(0, 1, 2, 3)))  # a layer takes 1/60 or 1/20 s
    assert evaluate_objective(problem, turns) == pytest.approx(1 / 20)
    both = Plan(((0, 1), (0, 1), (0, 1), (0,)), schedule=Schedule(stages=(0, 0, 0, 1)))
    assert evaluate_objective(problem, both) == np.inf  # four layers on the first device


def test_the_planner_balances_stages_by_flow(tmp_path: Path) -> None:
    problem = with_rates(tmp_path, '"gpu:0" = [90, 40, 20, 10]\n"gpu:1" = [30, 20, 5, 4]\n')
    result = Planner().place(problem, budget=40)
    assert evaluate_objective(problem, result.plan) == pytest.approx(1 / 20)  # by [3, 1] as by [2, 2]; replicas: 14


def test_the_planner_says_where_no_devices_have_room_for_all_layers(tmp_path: Path) -> None:
    result = Planner(policy="", split=False).place(with_rates(tmp_path, '"gpu" = [90]\n'), budget=9)
    assert result.notes[0].endswith("plans would ever end by flow:rates=" + str(tmp_path / "rates.toml") + ".")


def test_pipelines_are_judged_by_it_at_the_grain_of_stages() -> None:
    problem = serving(4, [3.0, 1.0, 2.0])
    layers = Layers.of(problem, 4)
    pipeline = LayerPipeline((LayerStage(0, 2, (0, 1)), LayerStage(2, 4, (2,))), 3)
    with spending(9, "planning") as spent:
        found = PipelineEvaluator(LayerGrain(problem, layers), spent).merit(pipeline).value
    assert found == pytest.approx(1 / min(3 / 2 + 1 / 2, 2 / 2))
    assert found == evaluate_objective(problem, pipeline.plan(problem, layers))


def test_what_has_no_flow_is_refused(tmp_path: Path) -> None:
    problem = with_rates(tmp_path, '"gpu:0" = [90]\n')
    with pytest.raises(InputError, match=re.escape("unknown device 'gpu:1'")):
        evaluate_objective(problem, Plan.of([0] * 4))
    for wrong in ("-1", "0", "nan", "inf"):
        with pytest.raises(InputError, match=re.escape("rates.toml: samples_per_second of 'gpu' has")):
            evaluate_objective(with_rates(tmp_path, f'"gpu" = [90, {wrong}]\n'), Plan.of([0] * 4))
    in_parts = Plan(((0, 1),) * 4, schedule=Schedule(zero=1))
    with pytest.raises(InputError, match="compute requests alone, and the plan's hold weights in parts"):
        evaluate_objective(replace(problem, objective=objective_of("flow"), optimizer="adam"), in_parts)
    training = replace(Pipeline(2).graph(), batch_law=BatchLaw(SAMPLES))
    with pytest.raises(InputError, match="requests that follow one another through a forward pass; plan one"):
        evaluator_of(Problem(training, servers(2), objective=objective_of("flow")))
    unknown = replace(problem, graph=replace(problem.graph, batch_law=None), objective=objective_of("flow"))
    with pytest.raises(InputError, match="does not say how many samples"):
        evaluator_of(unknown)
