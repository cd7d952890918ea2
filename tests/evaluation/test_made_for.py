"""A plan says what it was made for, and is simulated for that unless another is asked for."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import placelab
from envs.files.plan_file import load_plan
from envs.plans.conditions import Conditions
from envs.simulation.simulator import simulate
from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.records.formatting import seconds
from graphs.devices.reserve import reserve_in, reserve_of
from graphs.files.load import load_cluster, load_graph
from graphs.formats.graph_file import save_graph
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import FIFO, IDEAL, Runtime, runtime_of
from tests.evaluation.some_records import to_text

MODEL, CLUSTER = "rnnlm:layers=1,steps=2,hidden=8,batch=4", "mixed:h100x2,link=nvlink4"


def place(path: Path, **options: Any) -> SimulatedPlan:
    return placelab.place(MODEL, cluster=CLUSTER, placer="round_robin", out=path, **options)


def again(path: Path, **options: Any) -> SimulatedPlan:
    return placelab.simulate(MODEL, path, cluster=CLUSTER, **options)


def made_for(path: Path) -> dict[str, str]:
    content: dict[str, dict[str, str]] = json.loads(path.read_text())
    return content["made_for"]


def test_a_plan_is_simulated_for_what_it_was_made_for(tmp_path: Path) -> None:
    """Step time and memory are those of the placer's problem, without a flag."""
    path = tmp_path / "a.plan.json"
    asked = {
        "runtime": "megatron:host=70us", "precision": "bf16-mixed", "cost_model": "roofline:efficiency=typical",
        "optimizer": "sgd", "reserve": "1.5GiB+8%",
    }  # fmt: skip
    placed = place(path, **asked)
    assert made_for(path) == asked
    found = again(path)
    assert found.conditions == Conditions(**asked)
    assert found.timeline.step_seconds == placed.timeline.step_seconds
    assert found.timeline.peak_bytes.tolist() == placed.timeline.peak_bytes.tolist()
    assert (found.problem.cluster.memory_bytes == placed.problem.cluster.memory_bytes).all()
    assert "the plan was made for" not in to_text(found)
    assert placelab.simulate(MODEL, placed.result, cluster=CLUSTER).record.step_seconds == placed.record.step_seconds


def test_a_plan_under_another_runtime_prints_both_times(tmp_path: Path) -> None:
    path = tmp_path / "a.plan.json"
    ideal = place(path, runtime="ideal", cost_model="roofline").record.step_seconds
    found = again(path, runtime="megatron")
    problem = replace(found.problem, runtime=runtime_of("megatron"))
    here = simulate(problem, found.plan).step_seconds
    assert found.timeline.step_seconds == here > ideal
    said = f"{seconds(here)} under `megatron`; the plan was made for `ideal`, where it takes {seconds(ideal)}."
    assert said in found.record.notes
    assert said in " ".join(to_text(found).split())
    assert found.record.conditions.runtime == "megatron"
    slower = again(path, runtime="megatron", cost_model="roofline:efficiency=typical")
    both = "under `megatron` and `roofline:efficiency=typical`; .* for `ideal` and `roofline`"
    assert re.search(both, slower.record.notes[-1])
    same = again(path, host="none", order="longest-path")
    assert same.record.step_seconds == ideal
    assert same.record.notes == ()


def test_a_plan_under_another_runtime_stays_one_for_the_first(tmp_path: Path) -> None:
    """A file of it does not say what a step takes elsewhere."""
    path, other = tmp_path / "a.plan.json", tmp_path / "b.plan.json"
    place(path, runtime="run")
    again(path, runtime="megatron").save(other)
    assert made_for(other) == made_for(path)
    assert json.loads(other.read_text())["predicted"] is None


def test_a_second_plan_is_run_as_the_first_and_as_it_was_made_for(tmp_path: Path) -> None:
    first, second = tmp_path / "first.plan.json", tmp_path / "second.plan.json"
    mine = place(first, runtime="run").record.step_seconds
    other = placelab.place(MODEL, cluster=CLUSTER, placer="single_device", runtime="parallelize", out=second)
    found = again(first, against=second)
    assert found.timeline.step_seconds == mine
    here = again(second, runtime="run").timeline.step_seconds
    assert here != other.timeline.step_seconds
    assert found.record.notes == (
        f"Against second: {seconds(here)} under `run`; the plan was made for `parallelize`, where it takes "
        f"{seconds(other.timeline.step_seconds)}.",
    )
    alike = again(first, against=second, runtime="parallelize").record.notes
    assert alike[0] == f"Against second: {seconds(other.timeline.step_seconds)}."
    assert "the plan was made for `run`" in alike[1]  # the first one, this time


def test_the_rule_belongs_to_the_runtime(tmp_path: Path) -> None:
    """A plan without an order of its own is run under the rule of whatever runtime runs it."""
    path = tmp_path / "a.plan.json"
    placed = place(path, runtime="ideal", order="fifo")
    assert "order" not in json.loads(path.read_text())["plan"]
    assert made_for(path)["runtime"] == "ideal:order=fifo"
    assert again(path).timeline.step_seconds == placed.timeline.step_seconds
    assert again(path, runtime="torch-pipelining").timeline.order == "program"


def test_a_file_of_an_earlier_version_was_made_for_the_ideal_machine(tmp_path: Path) -> None:
    """Its ops are timed by the roofline itself, as they were, and not at the shares of peaks that were measured."""
    path = tmp_path / "a.plan.json"
    content = {"schema": "placelab.plan", "version": 4, "plan": {"placement": {"": "gpu:1"}, "order": "program"}}
    path.write_text(json.dumps(content))
    problem = Problem(load_graph(MODEL), load_cluster(CLUSTER), runtime=IDEAL.with_knobs(order="program"))
    found = again(path)
    assert found.timeline.step_seconds == simulate(problem, found.plan).step_seconds
    assert (found.plan.order, found.result.made_for) == (
        None,
        Conditions(runtime="ideal:order=program", cost_model="recorded:otherwise=roofline", reserve="none"),
    )
    assert "the plan was made for `ideal:order=program`" in again(path, runtime="run").record.notes[0]


def test_half_precision_is_never_timed_as_single_precision(tmp_path: Path) -> None:
    """Whatever a file that was edited leaves out."""
    path, graph = tmp_path / "a.plan.json", tmp_path / "a.graph.json"
    placed = place(path, precision="bf16-mixed")
    with pytest.raises(InputError, match=r"a\.plan\.json: this plan is for graph .*, as in another precision"):
        again(path, precision="fp32")
    content = json.loads(path.read_text())
    del content["graph"]
    path.write_text(json.dumps(content))
    assert again(path).timeline.step_seconds == placed.timeline.step_seconds
    save_graph(load_graph(MODEL), graph)
    with pytest.raises(InputError, match="a graph keeps the types of tensors that it was captured with"):
        placelab.simulate(graph, path, cluster=CLUSTER)
    placelab.capture(MODEL, precision="bf16-mixed", out=graph)
    assert placelab.simulate(graph, path, cluster=CLUSTER).timeline.step_seconds == placed.timeline.step_seconds


def test_a_plan_of_a_graph_file_is_one_of_its_model(tmp_path: Path) -> None:
    """The graph knows in which precision it was captured."""
    path, graph = tmp_path / "a.plan.json", tmp_path / "a.graph.json"
    placelab.capture(MODEL, precision="bf16-mixed", out=graph)
    placed = placelab.place(graph, cluster=CLUSTER, placer="round_robin", groups=None, out=path)
    assert made_for(path)["precision"] == "bf16-mixed"
    assert again(path).timeline.step_seconds == placed.timeline.step_seconds


def test_other_verbs_take_what_a_plan_was_made_for(tmp_path: Path) -> None:
    path, drawing = tmp_path / "a.plan.json", tmp_path / "a.svg"
    placed = place(path, precision="bf16-mixed", runtime="megatron", groups="modules")
    placelab.show(MODEL, draw=drawing, plan=path, cluster=CLUSTER)
    assert drawing.exists()
    exported = placelab.export(MODEL, path, to="device_map", cluster=CLUSTER)
    assert exported.planned.record.step_seconds == placed.record.step_seconds
    with pytest.raises(InputError, match="this plan is for training in bf16-mixed"):
        placelab.run(MODEL, path, cluster=CLUSTER, devices=["cpu", "cpu"])


def test_a_plan_that_reserves_nothing_says_so_and_older_files_mean_it(tmp_path: Path) -> None:
    path = tmp_path / "a.plan.json"
    placed = place(path, runtime="megatron", reserve="none")
    assert made_for(path)["reserve"] == "none"
    content = json.loads(path.read_text())
    del content["made_for"]["reserve"]
    path.write_text(json.dumps(content))
    assert again(path).conditions == placed.conditions


def test_code_in_what_a_plan_was_made_for_is_refused(tmp_path: Path) -> None:
    path, mine = tmp_path / "a.plan.json", tmp_path / "mine.py"
    mine.write_text("raise RuntimeError('it ran')")
    content = {"schema": "placelab.plan", "version": 6, "plan": {"placement": {"": "gpu:1"}}}
    for said in ({"runtime": f"ideal:order={mine}:build"}, {"cost_model": f"{mine}:build"}):
        path.write_text(json.dumps(content | {"made_for": said}))
        with pytest.raises(InputError, match=r"a\.plan\.json: it names code, '.*mine.py:build'"):
            again(path)
        with pytest.raises(InputError, match=r"a\.plan\.json: it names code, '.*mine.py:build'"):
            load_plan(path, Problem(load_graph(MODEL), load_cluster(CLUSTER)))


def test_a_runtime_that_no_name_gives_is_not_said() -> None:
    problem = Problem(load_graph(MODEL), load_cluster(CLUSTER))
    for runtime in (Runtime("ideal", FIFO), Runtime("mine")):
        assert Conditions.of(replace(problem, runtime=runtime)).runtime == ""
    assert Conditions.of(problem).runtime == "ideal"


@pytest.mark.parametrize("order", ["my files/a=b,c/mine.py:build:k=1,m=2", "mine.py:build"])
def test_a_runtime_with_an_order_of_ones_own_is_read_from_its_name(order: str) -> None:
    runtime = runtime_of("run:host=30us").with_knobs(order=order)
    assert runtime_of(runtime.name) == runtime
    assert runtime_of(runtime.name).order.name == order
    assert runtime_of(f"run:order={order},host=30us") == runtime


@pytest.mark.parametrize("text", ["cuda", "1.5GiB+8%", "1.3GB", "7.3%", "none"])
def test_a_reserve_is_read_from_what_a_cluster_says(text: str) -> None:
    cluster, reserve = load_cluster(CLUSTER), reserve_of(text)
    reserved = cluster if reserve is None else reserve.on(cluster)
    said = reserve_of(reserve_in(reserved) or "none")
    assert (cluster if said is None else said.on(cluster)).devices == reserved.devices
