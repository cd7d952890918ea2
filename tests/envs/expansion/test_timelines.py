"""Timelines of whole plans: passes as people draw them, what the step is spent on, and what holds memory."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from envs.files.plan_file import load_plan
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from envs.simulation.simulator import simulate
from envs.simulation.step_shares import SHARES, StepShares
from envs.timelines.timeline import Timeline
from evaluation.tables.plan_table import plan_table
from graphs.problem import Problem
from tests.drawn import examples
from tests.envs.drawings import drawn_rows
from tests.envs.expansion.pipelines import Pipeline, interleaved, servers
from tests.envs.expansion.plan_drawings import BLOCK, DOCUMENT, DRAWINGS, document
from tests.envs.expansion.random_plans import planned
from tests.evaluation.some_records import to_text
from tests.oracle.toys import toy_cluster, toy_graph


def shares(timeline: Timeline) -> list[dict[str, float]]:
    """Of each device what it spends time on."""
    seconds = StepShares.of(timeline).seconds.round(9).tolist()
    return [{name: spent for name, spent in zip(SHARES, row, strict=True) if spent} for row in seconds]


def test_the_document_shows_what_the_code_draws() -> None:
    assert DOCUMENT.read_text() == document()
    assert {block["name"] for block in BLOCK.finditer(DOCUMENT.read_text())} == set(DRAWINGS)


def test_the_plan_file_in_the_document_is_one(tmp_path: Path) -> None:
    _, text = re.findall(r"```json\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)  # after one that says degrees alone
    (tmp_path / "a.plan.json").write_text(text)
    graph = replace(toy_graph([1, 1, 1], [(0, 1), (1, 2)]), names=("embedding/op", "layers.0/op", "layers.1/op"))
    plan = load_plan(tmp_path / "a.plan.json", Problem(graph, toy_cluster(3))).plan
    assert plan.devices == ((0, 1), (0, 1), (2,))
    assert plan.schedule == Schedule(8, (0, 0, 1), "early_backward_a", recompute=(0,))


def test_two_stages_of_gpipe() -> None:
    pipeline = Pipeline(2, 3, backward=2, update=1)
    timeline = simulate(pipeline.problem(), pipeline.plan("gpipe"))
    assert drawn_rows(timeline, 3) == [
        "gpu:0 |F0 F1 F2 .........B0--- B1--- B2--- U- |",
        "gpu:1 |...F0 F1 F2 B0--- B1--- B2--- U- ......|",
    ]
    assert shares(timeline) == [{"forward": 3, "backward": 6, "update": 1, "bubble": 3}] * 2


def test_one_forward_one_backward_through_three_stages_with_transfers() -> None:
    pipeline = Pipeline(3, 3, activation=1, gradient=1)
    timeline = simulate(pipeline.problem(servers(3, bandwidth=2)), pipeline.plan("early_backward_a"))
    assert drawn_rows(timeline, 4) == [
        "gpu:0       |F0- F1- F2- ................B0- ....B1- ........B2- |",
        "gpu:1       |......F0- F1- ........B0- F2- B1- ........B2- ......|",
        "gpu:2       |............F0- B0- F1- B1- ....F2- B2- ............|",
        "gpu:0>gpu:1 |....==..==..==......................................|",
        "gpu:1>gpu:0 |..........................==......==..........==....|",
        "gpu:1>gpu:2 |..........==..==..............==....................|",
        "gpu:2>gpu:1 |....................==......==..........==..........|",
    ]
    assert shares(timeline) == [
        {"forward": 3, "backward": 3, "transfers": 1.5, "bubble": 5.5},
        {"forward": 3, "backward": 3, "transfers": 1.5, "bubble": 5.5},
        {"forward": 3, "backward": 3, "transfers": 1, "bubble": 6},
    ]


def test_stages_are_computed_again_when_the_gradient_has_arrived() -> None:
    pipeline = Pipeline(4, 3, backward=2)
    timeline = simulate(pipeline.problem(), pipeline.plan("early_backward_a", recompute=(0, 1, 2, 3)))
    assert drawn_rows(timeline, 3) == [
        "gpu:0 |F0 F1 F2 ..............................R0 B0--- ...R1 B1--- ...R2 B2--- |",
        "gpu:1 |...F0 F1 F2 ..................R0 B0--- ...R1 B1--- ...R2 B2--- .........|",
        "gpu:2 |......F0 F1 .........R0 B0--- F2 R1 B1--- ...R2 B2--- ..................|",
        "gpu:3 |.........F0 R0 B0--- F1 R1 B1--- F2 R2 B2--- ...........................|",
    ]
    assert shares(timeline) == [{"forward": 3, "backward": 6, "recomputation": 3, "bubble": 12}] * 4


def test_weight_gradients_are_apart_where_the_order_has_them_so() -> None:
    pipeline = Pipeline(2, 3, weight_gradient=1)
    timeline = simulate(pipeline.problem(), pipeline.plan("zb_h1"))
    assert drawn_rows(timeline, 3) == [
        "gpu:0 |F0 F1 ...I0 W0 F2 I1 W1 I2 W2 |",
        "gpu:1 |...F0 I0 F1 I1 W0 F2 I2 W1 W2 |",
    ]
    assert shares(timeline) == [{"forward": 3, "backward": 6, "bubble": 1}] * 2


def test_replicas_sum_up_their_gradients_before_they_update() -> None:
    pipeline = Pipeline(1, 2, forward=2, backward=2, weights=4, update=1)
    timeline = simulate(pipeline.problem(servers(2, bandwidth=2)), pipeline.plan(replicas=2))
    assert drawn_rows(timeline, 3) == [
        "gpu:0       |F0 B0 F1 B1 ......U- |",
        "gpu:1       |F0 B0 F1 B1 ......U- |",
        "gpu:0>gpu:1 |............++++++...|",
        "gpu:1>gpu:0 |............++++++...|",
    ]
    assert shares(timeline) == [{"forward": 2, "backward": 2, "update": 1, "all_reduce": 2}] * 2


@pytest.mark.parametrize("order", ["gpipe", "early_backward_a"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 1), (2, 8), (4, 4), (4, 16), (8, 8)])
def test_the_bubble_of_equal_stages(order: str, stages: int, micro_batches: int) -> None:
    pipeline = Pipeline(stages, micro_batches, backward=2)
    timeline = simulate(pipeline.problem(), pipeline.plan(order))
    bubble = StepShares.of(timeline)["bubble"] / timeline.step_seconds
    np.testing.assert_allclose(bubble, (stages - 1) / (micro_batches + stages - 1), rtol=1e-9)


@pytest.mark.parametrize("order", ["as_ready", "gpipe", "early_backward_a", "early_backward_b", "zb_h1"])
def test_shares_add_up_and_hold_all_the_work(order: str) -> None:
    pipeline = Pipeline(
        3,
        4,
        forward=[1, 2, 1.5],
        backward=[2, 1, 1],
        weight_gradient=1,
        activation=3,
        gradient=2,
        weights=5,
        update=0.5,
    )
    cluster = servers(6, bandwidth=7, latency=0.1, launch=0.05)
    timeline = simulate(pipeline.problem(cluster), pipeline.plan(order, replicas=2, recompute=(0, 2)))
    found = StepShares.of(timeline)
    assert (found.seconds >= 0).all()
    np.testing.assert_allclose(found.seconds.sum(axis=1), timeline.step_seconds)
    np.testing.assert_allclose(found["forward"], np.repeat([4, 8, 6], 2) / 2)
    np.testing.assert_allclose(found["backward"], np.repeat([12, 8, 8], 2) / 2)
    np.testing.assert_allclose(found["recomputation"], np.repeat([4, 0, 6], 2) / 2)
    np.testing.assert_allclose(found["update"], 0.5)
    assert (found["all_reduce"] > 0).all()
    assert (found["launch"] > 0).all()


def test_many_micro_batches_stay_readable() -> None:
    pipeline = Pipeline(4, 64, backward=2)
    timeline = simulate(pipeline.problem(), pipeline.plan("gpipe"))
    assert timeline.draw(80).split("\n") == [
        "gpu:0 |FFFFFFFFFFFFFFFFFFFFFFF...BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB|",
        "gpu:1 |FFFFFFFFFFFFFFFFFFFFFFF..BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB.|",
        "gpu:2 |.FFFFFFFFFFFFFFFFFFFFFFF.BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB.|",
        "gpu:3 |.FFFFFFFFFFFFFFFFFFFFFFFBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB..|",
        "      0                                                                   201 s",
        "F forward  B backward  . idle",
    ]


def test_a_device_with_several_stages_says_which_one() -> None:
    pipeline = Pipeline(4, 2)
    timeline = simulate(pipeline.problem(servers(2)), pipeline.plan("looped_bfs", ranks=interleaved(2)))
    assert drawn_rows(timeline, 4) == [
        "gpu:0 |0F0 0F1 2F0 2F1 ........2B1 2B0 0B1 0B0 |",
        "gpu:1 |....1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0 ....|",
    ]


def test_what_holds_memory_at_the_peak() -> None:
    pipeline = Pipeline(4, 6, activation=10, weights=100)
    problem = pipeline.problem(servers(4, memory=135))
    timeline = simulate(problem, pipeline.plan("early_backward_a"))
    assert [timeline.peak(device).micro_batches for device in range(4)] == [4, 3, 2, 1]
    assert timeline.overflow() == (
        "gpu:0 needs 140 bytes of its 135 bytes (parameters, gradients and optimizer state 100 bytes, activations 40 "
        "bytes of 4 micro-batches at the peak); 1 other device needs more than there is, too"
    )
    text = " ".join(to_text(plan_table(timeline, 1.0, 1.0)).split())
    assert "40 B of 4 micro-batches" in text
    assert "Schedule: 6 micro-batches through 4 stages on 1 device each; passes in the order early" in text


@settings(max_examples=examples(100, 12), deadline=None, suppress_health_check=list(HealthCheck))
@given(planned())
def test_shares_and_passes_of_any_plan_hold_all_that_its_devices_do(case: tuple[Problem, Plan]) -> None:
    problem, plan = case
    timeline = simulate(problem, plan)
    found, passes = StepShares.of(timeline), timeline.passes
    assert (found.seconds >= -1e-9).all()
    np.testing.assert_allclose(found.seconds.sum(axis=1), timeline.step_seconds, atol=1e-9)
    if passes is None:
        return
    spent = np.bincount(passes.device, weights=passes.finish - passes.start, minlength=len(problem.cluster))
    assert (spent >= timeline.busy_seconds - 1e-9).all()
    assert (spent <= timeline.busy_seconds + found["launch"] + 1e-9).all()
    same_device = passes.device[1:] == passes.device[:-1]
    assert (passes.start[1:] >= passes.finish[:-1] - 1e-9)[same_device].all()
    for device in range(len(problem.cluster)):
        peak = timeline.peak(device)
        parts = peak.static + peak.gradients + peak.activations + peak.versions + peak.sums
        assert parts == pytest.approx(peak.total)
        assert peak.activations >= -1e-9
    assert {len(line) for line in timeline.draw(80).split("\n") if line.endswith("|")} == {80}


def test_versions_of_weights_are_apart() -> None:
    pipeline = Pipeline(3, 6, activation=10, weights=100, update=1)
    timeline = simulate(pipeline.problem(), pipeline.plan("early_backward_a", update="micro_batch"))
    assert [timeline.peak(device).versions for device in range(3)] == [200, 100, 0]
    small = replace(timeline.problem, cluster=servers(3, memory=300))
    assert (
        "200 bytes of earlier versions of weights at the peak"
        in replace(timeline, problem=small, fits=False).overflow()
    )
