"""Every verb takes what its command line takes, and objects and paths as well; what it cannot take is refused first."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import placelab
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from evaluation.commands.arguments import as_declared
from evaluation.commands.load_placer import with_micro_batches
from evaluation.records.formatting import seconds
from graphs.files.load import load_cluster, load_graph
from graphs.formats.graph_file import load_graph_file, save_graph
from graphs.foundation.errors import DoesNotFitError, InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.heft import Heft
from tests.evaluation.some_records import to_text
from tests.oracle.toys import random_graph

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A small graph in a file."""
    path = tmp_path / "small.graph.json"
    save_graph(random_graph(20, seed=1), path)
    return path


def test_text_and_paths_are_the_same(graph: Path, tmp_path: Path) -> None:
    plan = tmp_path / "a.plan.json"
    placed = placelab.place(graph, cluster="p100x2", placer="heft", out=str(plan))
    first, step, memory, fits = str(placed).splitlines()
    assert first == f"{placed.problem.name}, by heft"
    assert step.startswith("One step takes ")
    assert "The fastest device alone, gpu:0, takes " in step
    assert memory.startswith("Memory, used / limit: gpu:0 ")
    assert fits == "It fits."
    assert repr(placed) == str(placed)
    again = placelab.place(str(graph), cluster=load_cluster("p100x2"), placer=Heft(), out=tmp_path / "b.plan.json")
    assert placed.plan.devices == again.plan.devices
    assert plan.read_bytes() == (tmp_path / "b.plan.json").read_bytes()
    trace, gantt = tmp_path / "t.json", tmp_path / "g.svg"
    simulated = placelab.simulate(graph, str(plan), cluster="p100x2", trace=str(trace), gantt=gantt)
    assert simulated.timeline.step_seconds == placed.timeline.step_seconds
    assert trace.exists()
    assert gantt.exists()
    shown = placelab.show(graph, draw=str(tmp_path / "d.svg"))
    assert shown.ops == 20
    assert str(shown).split() == to_text(shown.__rich__(), width=80).split()
    assert placelab.capture("layered", out=str(tmp_path / "l.graph.json")).ops > 0


def test_a_graph_file_is_loaded_once(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Path] = []

    def noted(path: Path) -> OpGraph:
        loaded.append(path)
        return load_graph_file(path)

    monkeypatch.setattr("graphs.formats.graph_files.load_graph_file", noted)
    found = placelab.compare([graph, "layered"], clusters="p100x2,v100x2", placers="heft")
    assert len(found.problems) == 4
    assert loaded == [graph]


def test_text_is_a_list_with_commas(graph: Path, tmp_path: Path) -> None:
    journal = str(tmp_path / "journal.jsonl")
    found = placelab.compare(str(graph), placers="metis,heft", clusters="p100x2,v100x2", journal=journal)
    assert found.placers == ("metis", "heft")
    assert len(found.problems) == 2
    again = placelab.compare([graph], placers=["metis:seeds=2", Heft()], clusters=[load_cluster("p100x2")])
    assert again.placers == ("metis:seeds=2", "heft")


def test_a_module_with_its_inputs_is_a_graph() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    summary = placelab.capture((model, (torch.zeros(2, 8),)))
    assert summary.ops_by_phase["forward"] > 3
    assert placelab.capture((model, torch.zeros(2, 8)), training=False).ops_by_phase.keys() == {"forward"}
    with pytest.raises(InputError, match=r"give \(module, example inputs\)"):
        placelab.place(model)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"budget": 1.5}, "budget is 1.5; expected a whole number >= 0"),
        ({"budget": -1}, "budget is -1; expected a whole number >= 0"),
        ({"budget": "many"}, "budget is 'many'"),
        ({"budget": True}, "budget is True"),
        ({"seed": None}, "seed is None"),
        ({"seed": -1}, "seed is -1; expected a whole number >= 0"),
        ({"groups": 0}, "groups is 0; expected at least 1, or `none`"),
        ({"groups": -4}, "groups is -4"),
        ({"cluster": 3}, "cluster: expected a cluster file, a preset such as p100x4, or a Cluster; got 3"),
        ({"placer": 3}, "placer: expected the spec of a placer"),
        ({"cost_model": 3}, "cost_model: expected the spec of a cost model"),
        ({"cost_model": "rooflin"}, "unknown cost model 'rooflin'"),
        ({"optimizer": "adamw"}, "unknown optimizer 'adamw'"),
        ({"objective": "tim"}, "unknown objective 'tim'"),
        ({"order": "longest"}, "unknown order 'longest'; did you mean 'longest_path'"),
        ({"order": "mine.py:build"}, "mine.py"),
        ({"order": 3}, "order: expected text, got 3"),
        ({"out": 3}, "out: expected a file"),
        ({"out": ""}, "out: expected a file"),
        ({"out": "x.txt"}, "must end in .plan.json"),
        ({"robust": "yes"}, "robust is 'yes'; expected True or False"),
    ],
)
def test_what_cannot_be_taken_is_refused_first(
    keywords: dict[str, Any], sentence: str, graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def searched(*_: object, **__: object) -> None:
        pytest.fail("placed before it was refused")

    monkeypatch.setattr(Heft, "place", searched)
    with pytest.raises(InputError) as refused:
        placelab.place(graph, **{"placer": "heft", **keywords})
    assert sentence in str(refused.value)


def test_numbers_are_taken_as_text(graph: Path) -> None:
    placed = placelab.place(graph, placer="random", budget="5", seed="3", groups="none")  # type: ignore[arg-type]
    assert (placed.result.simulations, placed.result.seed) == (5, 3)


@pytest.mark.parametrize("wrong", [3, object(), ("a", "b"), 1.5])
def test_no_graph_at_all(wrong: Any) -> None:
    with pytest.raises(InputError, match="graph: expected a graph file, a family spec"):
        placelab.place(wrong)


def test_an_empty_entry_of_a_list_is_refused() -> None:
    with pytest.raises(InputError, match="empty"):
        as_declared("placers", ["metis", ""], "Sequence[PlacerLike]")


@pytest.mark.parametrize("package", ["graphs", "envs", "evaluation"])
def test_a_folder_that_hides_a_package_is_named(package: str, tmp_path: Path) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").touch()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    command = [sys.executable, "-c", "import placelab"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert f"placelab's package {package!r} is hidden by {tmp_path / package}" in last
    script = tmp_path / "placelab"
    script.write_text("import placelab\nplacelab.main()\n")
    done = subprocess.run(
        [sys.executable, "-P", str(script), "list"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("placelab: placelab's package")
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_plan_is_also_timed_under_noise_and_without_contention(graph: Path, tmp_path: Path) -> None:
    plan = tmp_path / "a.plan.json"
    placed = placelab.place(graph, cluster="p100x2", placer="round_robin", robust=True, out=plan)
    record, found = placed.record, placed.robustness
    assert found is not None
    assert (record.robust_seconds, record.worst_seconds) == (found.median_seconds, found.worst_seconds)
    assert found.worst_seconds >= found.median_seconds > 0
    assert 0 < found.free_seconds <= placed.timeline.step_seconds
    again = placelab.simulate(graph, plan, cluster="p100x2", robust=True)
    assert again.robustness == found
    assert "at worst" in to_text(again)
    assert "First come, first served, the same plan takes" in " ".join(to_text(again).split())
    assert "at worst" not in to_text(placelab.simulate(graph, plan, cluster="p100x2"))


def test_an_order_is_the_problems_the_plans_or_that_of_the_command(tmp_path: Path) -> None:
    graph, plan = tmp_path / "long.graph.json", tmp_path / "a.plan.json"
    ops = random_graph(40, seed=1)
    save_graph(replace(ops, flops=1e10 * ops.flops), graph)
    given: dict[str, Any] = {"cluster": "p100x2", "groups": None, "runtime": "ideal", "cost_model": "roofline"}
    steps = {}
    for order in ("fifo", "program", "longest_path"):
        placed = placelab.place(graph, placer="round_robin", order=order, out=plan, **given)
        steps[order] = placed.timeline.step_seconds
        assert placed.problem.runtime.order.name == order
        found = placelab.simulate(graph, plan, cluster="p100x2")
        assert found.timeline.step_seconds == steps[order], "as it was made for"
    assert len(set(steps.values())) > 1
    again = placelab.simulate(graph, plan, order="fifo", **given)
    assert again.timeline.step_seconds == steps["fifo"]
    both = f"{seconds(steps['fifo'])} under `ideal:order=fifo`; the plan was made for `ideal`, where it takes"
    assert f"{both} {seconds(steps['longest_path'])}." in " ".join(to_text(again).split())
    assert "the plan was made for" not in to_text(placelab.simulate(graph, plan, order="longest-path", **given))
    numbers = Plan.of(again.plan.placement, order=np.arange(40))
    assert "not in the plan's own, given." in to_text(placelab.simulate(graph, numbers, order="fifo", **given))
    assert placed.record.order == "longest_path"
    assert placed.to_json()["program_seconds"] == steps["program"]
    assert "Order: longest_path. In PyTorch's own order (program)" in to_text(placed)
    given["clusters"] = given.pop("cluster")
    by_fifo = placelab.compare([graph], placers="round_robin", order="fifo", **given)
    assert by_fifo.records[0].step_seconds == steps["fifo"]


def test_a_report_says_what_timed_it_and_what_the_objective_says(graph: Path) -> None:
    placed = placelab.place(graph, cluster="p100x2", placer="heft", objective="max-load", cost_model="roofline")
    assert "Cost model: roofline." in to_text(placed)
    assert "Its max-load is" in to_text(placed)
    assert placed.to_json()["cost_model"] == "roofline"


def test_no_output_is_an_input(graph: Path, tmp_path: Path) -> None:
    before, plan = graph.read_bytes(), tmp_path / "a.plan.json"
    with pytest.raises(InputError, match="the same command reads or writes it already"):
        placelab.place(graph, placer="heft", out=graph)
    with pytest.raises(InputError, match=r"must end in \.plan\.json"):
        placelab.place(graph, placer="heft", out=tmp_path / "other.graph.json")
    placelab.place(graph, cluster="p100x2", placer="heft", out=plan)
    with pytest.raises(InputError, match="the same command reads or writes it already"):
        placelab.simulate(graph, plan, cluster="p100x2", trace=plan)
    with pytest.raises(InputError, match="the same command reads or writes it already"):
        placelab.capture(graph, out=graph)
    assert graph.read_bytes() == before


def test_what_place_returned_is_a_plan_and_any_whole_number_is_one(graph: Path) -> None:
    placed = placelab.place(graph, cluster="p100x2", placer="random", budget=np.int64(3))  # type: ignore[arg-type]
    assert placed.result.simulations == 3
    again = placelab.simulate(graph, placed, cluster="p100x2")  # type: ignore[arg-type]
    assert again.timeline.step_seconds == placed.timeline.step_seconds


def test_a_placer_that_gives_no_plan_is_named(graph: Path) -> None:
    class Five:
        name = "five"

        def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> int:
            return 5

    with pytest.raises(InputError, match=r"placer 'five': expected a placelab\.Plan or .* from `place`, got int"):
        placelab.place(graph, placer=Five())  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"Plan\.of\(placement\) makes one"):
        Plan(np.zeros(3, int))  # type: ignore[arg-type]


def test_a_plan_is_simulated_in_whatever_groups_it_was_found(graph: Path, tmp_path: Path) -> None:
    plan = tmp_path / "a.plan.json"
    placed = placelab.place(graph, cluster="p100x2", placer="round_robin", groups=5, runtime="ideal", out=plan)
    choices: list[dict[str, Any]] = [{}, {"groups": None}, {"groups": 5}]
    for given in choices:
        again = placelab.simulate(graph, plan, cluster="p100x2", **given)
        assert again.plan == placed.plan
        assert again.timeline.step_seconds == placed.timeline.step_seconds
    other = placelab.simulate(graph, placed.result, cluster="p100x2", runtime="ideal")
    assert other.record.step_seconds == again.record.step_seconds
    with pytest.raises(InputError, match=r"a\.plan\.json: op .* must share a device with"):
        placelab.simulate(graph, plan, cluster="p100x2", groups=1)
    placelab.show(graph, draw=tmp_path / "a.svg", plan=plan, cluster="p100x2")


WHOLE = {
    "schema": "placelab.plan", "version": 4,
    "plan": {
        "placement": {"": ["gpu:0", "gpu:1"]},
        "schedule": {"micro_batches": 2, "order": "gpipe"},
    },
}  # fmt: skip


def test_a_whole_plan_is_simulated_charted_and_traced(graph: Path, tmp_path: Path) -> None:
    plan, trace, gantt, drawing = (tmp_path / name for name in ("a.plan.json", "t.json", "g.svg", "d.html"))
    plan.write_text(json.dumps(WHOLE))
    placed = placelab.simulate(graph, plan, cluster="p100x2", robust=True, trace=trace, gantt=gantt)
    assert placed.timeline.expansion is not None
    assert (placed.record.micro_batches, placed.record.replicas, placed.record.pass_order) == (2, (2,), "gpipe")
    assert placed.robustness is not None
    assert placed.robustness.median_seconds == placed.record.robust_seconds
    assert placed.record.lower_bound_seconds <= placed.record.step_seconds
    assert placed.record.program_seconds is not None
    said = placed.to_json()
    assert said["schedule"] == {"micro_batches": 2, "order": "gpipe"}
    assert set(map(tuple, said["placement"].values())) == {("gpu:0", "gpu:1")}
    assert "stages" not in said
    assert json.loads(trace.read_text())
    assert gantt.exists()
    placelab.show(graph, draw=drawing, plan=plan, cluster="p100x2")
    assert "gpu:0+gpu:1" in drawing.read_text()
    again = tmp_path / "b.plan.json"
    placed.save(again)
    assert json.loads(again.read_text())["plan"] == WHOLE["plan"]
    assert placelab.simulate(graph, placed.plan, cluster="p100x2").plan == placed.plan


@pytest.mark.parametrize(("placer", "named"), [("heft", True), ("planner:placements=2", False)])
def test_a_placement_that_does_not_fit_names_what_tries_other_kinds(graph: Path, placer: str, *, named: bool) -> None:
    roomy = load_cluster("p100x2")
    tight = replace(roomy, devices=tuple(replace(device, memory_bytes=1.0) for device in roomy.devices))
    placed = placelab.place(graph, cluster=tight, placer=placer, budget=2)
    with pytest.raises(DoesNotFitError, match=r"optimizer='sgd'`; `placelab fits` shows") as told:
        placed.require_fit()
    assert ("`placelab place --plans all`, without a placer, tries" in str(told.value)) == named


def test_a_plan_file_that_does_not_fit_is_not_searched_longer(graph: Path, tmp_path: Path) -> None:
    roomy = load_cluster("p100x2")
    tight = replace(roomy, devices=tuple(replace(device, memory_bytes=1.0) for device in roomy.devices))
    path = tmp_path / "searched.plan.json"
    searched = placelab.place(graph, cluster=tight, placer="hill_climbing", budget=3)
    searched.save(path)
    for placed, is_search in ((searched, True), (placelab.simulate(graph, path, cluster=tight, reserve="none"), False)):
        with pytest.raises(DoesNotFitError) as told:
            placed.require_fit()
        assert ("a larger `budget`" in str(told.value)) == is_search
        assert str(told.value).startswith("this plan does not fit") != is_search


def test_a_whole_plan_that_does_not_fit_says_what_holds_the_memory(graph: Path) -> None:
    roomy = load_cluster("p100x2")
    tight = replace(roomy, devices=tuple(replace(device, memory_bytes=1.0) for device in roomy.devices))
    plan = Plan(((0,),) * 20, schedule=Schedule(2))
    with pytest.raises(
        DoesNotFitError,
        match=r"^this plan does not fit .*gpu:0 needs .* activations .*more micro-batches, recomputation",
    ) as told:
        placelab.simulate(graph, plan, cluster=tight).require_fit()
    assert "budget" not in str(told.value), "nothing was searched"
    op = re.search(r"the largest output is .* \((.*), output of micro-batch \d\)", str(told.value))
    assert op is not None
    assert op[1] in load_graph(graph).names


def test_micro_batches_may_be_asked_for_in_place_of_the_plans_own(graph: Path, tmp_path: Path) -> None:
    plan = tmp_path / "a.plan.json"
    plan.write_text(json.dumps(WHOLE))
    four = placelab.simulate(graph, plan, cluster="p100x2", micro_batches=4)
    assert four.plan.schedule == Schedule(4, order="gpipe")
    assert "Simulated in 4 micro-batches, not in the plan's own, 2." in to_text(four)
    assert "not in the plan's own" not in to_text(placelab.simulate(graph, plan, cluster="p100x2", micro_batches=2))
    placed = placelab.place(graph, cluster="p100x2", placer="round_robin")
    parts = placelab.simulate(graph, placed.plan, cluster="p100x2", micro_batches=2)
    assert (parts.record.micro_batches, parts.timeline.expansion is None) == (2, False)
    given: list[str | Path | Placer] = ["dapple", "heft", "dapple:micro_batches=4", Heft(), "dapple:layers=9"]
    assert with_micro_batches(given, 2) == [
        "dapple:micro_batches=2", "heft", "dapple:micro_batches=4", given[3], "dapple:layers=9,micro_batches=2",
    ]  # fmt: skip
    assert with_micro_batches(given, None) == given


def test_what_takes_placements_refuses_whole_plans(graph: Path) -> None:
    problem = Problem(load_graph(str(graph)), load_cluster("p100x2"))
    ops = len(problem.graph)
    for plan, what in (
        (Plan(((0, 1),) * ops), "places ops on 2 devices each"),
        (Plan.of([0] * ops), ""),
        (Plan(((0,),) * ops, schedule=Schedule(3)), "runs 3 micro-batches"),
        (Plan(((0,),) * ops, schedule=Schedule(stages=(0,) * ops)), "has stages"),
        (Plan(((0,),) * ops, schedule=Schedule(recompute=(0,))), "has a schedule"),
    ):
        if not what:
            assert plan.per_unit(problem).tolist() == [0] * ops
            continue
        with pytest.raises(
            InputError, match=f"a search takes op placements only, and this plan {what}; place with --plans placement"
        ):
            plan.per_unit(problem, "a search")


def test_a_plan_file_of_groups_is_read_with_as_many(graph: Path, tmp_path: Path) -> None:
    """As they were written before version 4, by default for 256 groups."""
    plan, tied = tmp_path / "a.plan.json", load_graph(str(graph), groups=256)
    content = {
        "schema": "placelab.plan", "version": 3, "graph": {"name": tied.name, "fingerprint": tied.fingerprint},
        "plan": {"placement": {"": "gpu:1"}, "order": "fifo"},
    }  # fmt: skip
    plan.write_text(json.dumps(content))
    placed = placelab.simulate(graph, plan, cluster="p100x2")
    assert placed.plan == Plan.of([1] * len(tied))
    assert placed.problem.runtime.order.name == "fifo"
    with pytest.raises(InputError, match="but with other ops, costs or `groups`"):
        placelab.simulate(graph, plan, cluster="p100x2", groups=5)
