import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.costs.costs import BY_LINKS
from envs.files.plan_file import load_plan, save_plan
from envs.plans.conditions import Conditions
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator, simulate
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from graphs.runtime import LONGEST_PATH
from tests.oracle.toys import Toy, toy_cluster, toy_graph

NAMES = st.lists(st.text("ab./", max_size=5), min_size=1, max_size=8, unique=True)  # every awkward prefix


def named(*names: str, mirror: tuple[int, ...] = (), devices: int = 3) -> Problem:
    ops = len(names)
    zeros = np.zeros(ops)
    graph = OpGraph(
        "named", names, ("any",) * ops, zeros, zeros, zeros, np.zeros((0, 2), np.int64), mirror=np.array(mirror)
    )
    return Problem(graph, toy_cluster(devices))


def saved(problem: Problem, per_unit: list[int], path: Path) -> dict[str, Any]:
    result = PlacerResult.of_units(problem, per_unit, "by hand", seed=3, simulations=7)
    save_plan(result, problem, Simulator(problem).run(per_unit), path)
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def written(path: Path, placement: dict[str, Any], **decided: object) -> Path:
    return written_as(path, {"placement": placement, **decided})


def written_as(path: Path, plan: dict[str, Any], **more: object) -> Path:
    path.write_text(json.dumps({"schema": "placelab.plan", "version": 4, "plan": plan} | more))
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(NAMES, st.data())
def test_a_saved_plan_is_loaded_as_it_was(tmp_path: Path, names: list[str], data: st.DataObject) -> None:
    problem = named(*names)
    per_unit = data.draw(st.lists(st.integers(0, 2), min_size=len(names), max_size=len(names)))
    saved(problem, per_unit, tmp_path / "a.plan.json")
    expected = PlacerResult.of_units(problem, per_unit, "by hand", seed=3, simulations=7)
    expected = replace(expected, made_for=Conditions.of(problem))
    assert load_plan(tmp_path / "a.plan.json", problem) == expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(NAMES, st.data())
def test_the_order_of_a_plan_survives_bit_for_bit(tmp_path: Path, names: list[str], data: st.DataObject) -> None:
    """By unit and by op, of tied ops and of others, whatever prefixes they share."""
    ops = len(names)
    problem = named(*names, mirror=tuple(data.draw(st.lists(st.integers(-1, ops - 1), min_size=ops, max_size=ops))))
    units = problem.graph.num_units
    number = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from((1.0, 2.0, 0.1))
    count = data.draw(st.sampled_from((units, ops)))
    order = data.draw(st.lists(number, min_size=count, max_size=count) | st.sampled_from(("fifo", "program")))
    plan = Plan.of_units(problem, [0] * units, order=order)
    path = tmp_path / "a.plan.json"
    save_plan(PlacerResult(plan), problem, simulate(problem, plan), path)
    found = load_plan(path, problem).plan
    assert found == plan
    if not isinstance(order, str):
        assert np.array(found.order).tobytes() == np.array(plan.order).tobytes()


def test_an_order_is_written_by_module(tmp_path: Path) -> None:
    """Op x, tied to the first one, has a number of its own."""
    problem = named("emb/add", "layers.0/mm", "layers.0/add", "x", "y", mirror=(-1, -1, -1, 0, 1))
    plan = Plan.of([0, 1, 1, 0, 1], order=[1, 2, 2, 5, 2])
    save_plan(PlacerResult(plan), problem, simulate(problem, plan), tmp_path / "a.plan.json")
    content = json.loads((tmp_path / "a.plan.json").read_text())
    assert content["plan"]["order"] == {"emb": 1.0, "layers": 2.0, "x": 5.0}


def test_an_order_may_be_written_by_hand(tmp_path: Path) -> None:
    problem = named("a/x", "a/y", "b", mirror=(-1, -1, 0))
    path = tmp_path / "a.plan.json"

    def order(said: object) -> object:
        return load_plan(written_as(path, {"placement": {"": "gpu:0"}, "order": said}, version=6), problem).plan.order

    assert order({"": 1, "a/y": -2.5}) == (1.0, -2.5, 1.0)
    assert order({"": 1, "b": 3}) == (1.0, 1.0, 3.0)
    assert order("longest-path") == LONGEST_PATH
    for wrong, sentence in (
        ("longestpath", "unknown order 'longestpath'; did you mean 'longest_path'"),
        ({"a": 1, "c": 2}, "order: unknown op or module 'c'"),
        ({"a/x": 1}, "no entry covers op 'a/y'"),
        ({"": "gpu:0"}, "expected a number, got a text"),
        ([1, 2, 3], "order"),
    ):
        with pytest.raises(InputError, match=r"a\.plan\.json: .*" + re.escape(sentence)):
            order(wrong)


def test_a_plan_is_written_by_module(tmp_path: Path) -> None:
    problem = named("emb/add", "layers.0/mm", "layers.0/add", "layers.1/mm", "layers.1/add", "layers.10/mm")
    content = saved(problem, [0, 0, 0, 1, 2, 1], tmp_path / "a.plan.json")
    assert content["plan"]["placement"] == {
        "emb": "gpu:0",
        "layers.0": "gpu:0",
        "layers.1/mm": "gpu:1",
        "layers.1/add": "gpu:2",
        "layers.10": "gpu:1",
    }
    assert saved(problem, [1] * 6, tmp_path / "b.plan.json")["plan"]["placement"] == {"": "gpu:1"}


def test_a_plan_says_where_it_comes_from_and_what_it_costs(tmp_path: Path, four_ops_two_devices: Toy) -> None:
    problem = four_ops_two_devices.problem
    content = saved(problem, list(four_ops_two_devices.best_placement), tmp_path / "a.plan.json")
    assert content["graph"] == {"name": "toy", "fingerprint": problem.graph.fingerprint}
    assert content["cluster"] == {"name": "toy2", "fingerprint": problem.cluster.fingerprint}
    assert content["found"] == {"placer": "by hand", "seed": 3, "simulations": 7}
    assert content["predicted"]["step_seconds"] == four_ops_two_devices.best_seconds
    assert list(content["predicted"]["peak_bytes"]) == ["gpu:0", "gpu:1"]


def test_a_hand_written_plan_needs_only_a_placement_and_the_longest_prefix_wins(tmp_path: Path) -> None:
    problem = named("layers.0/mm", "layers.1/mm", "layers.1/add", "layers.10/mm", "head/mm")
    path = written(
        tmp_path / "a.plan.json", {"layers": "gpu:1", "layers.1": "gpu:2", "layers.1/add": "gpu:0", "": "gpu:0"}
    )
    assert load_plan(path, problem).plan == Plan.of([1, 2, 0, 1, 0])


def test_tied_ops_go_where_the_first_of_them_goes(tmp_path: Path) -> None:
    problem = named("a/mm", "b/mm", "other/mm", mirror=(-1, -1, 0))
    path = written(tmp_path / "a.plan.json", {"a": "gpu:2", "b": "gpu:1"})
    assert load_plan(path, problem).plan == Plan.of([2, 1, 2])
    assert saved(problem, [2, 1], path)["plan"]["placement"] == {"a": "gpu:2", "b": "gpu:1"}
    with pytest.raises(InputError, match="op 'other/mm' goes where 'a/mm' goes; place that one instead"):
        load_plan(written(path, {"": "gpu:0", "other/mm": "gpu:1"}), problem)


def test_a_plan_for_another_graph_or_cluster_is_refused_naming_both(tmp_path: Path) -> None:
    path, problem = tmp_path / "a.plan.json", Problem(toy_graph([1, 2], [(0, 1)], name="first"), toy_cluster(2))
    saved(problem, [0, 1], path)
    other = Problem(toy_graph([1, 3], [(0, 1)], name="second"), problem.cluster)
    with pytest.raises(InputError, match=r"this plan is for graph 'first' .* given 'second'"):
        load_plan(path, other)
    with pytest.raises(
        InputError, match=r"this plan is for cluster 'toy2' .* given 'toy3'.*remove `cluster.fingerprint` from the file"
    ):
        load_plan(path, Problem(problem.graph, toy_cluster(3)))


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        ({"": "gpu:9"}, "unknown device 'gpu:9'; did you mean 'gpu:.'"),
        ({"layers.0": "gpu:0"}, "no entry covers op 'head/mm'"),
        ({"": "gpu:0", "layer.0": "gpu:0"}, "unknown op or module 'layer.0'; did you mean 'layers.0'"),
        ({"": 1}, "expected a text | array, got a whole number"),
        ({"": ["gpu:0", "gpu:7"]}, "unknown device 'gpu:7'; did you mean 'gpu:.'"),
        ({"layers.0": [], "": "gpu:0"}, "'layers.0' has no device; name one, or several for replicas"),
        ({}, "no entry covers op 'layers.0/mm'"),
    ],
)
def test_a_wrong_placement_is_refused(tmp_path: Path, placement: dict[str, str], message: str) -> None:
    path = written(tmp_path / "a.plan.json", placement)
    with pytest.raises(InputError, match=message) as refusal:
        load_plan(path, named("layers.0/mm", "head/mm"))
    assert str(path) in str(refusal.value)


def test_what_is_not_a_plan_is_refused(tmp_path: Path) -> None:
    path, problem = tmp_path / "a.plan.json", named("a")
    with pytest.raises(InputError, match=r"a\.plan\.json does not exist"):
        load_plan(path, problem)
    with pytest.raises(InputError, match="unknown key 'colour'"):
        load_plan(written(path, {"": "gpu:0"}, colour="red"), problem)
    with pytest.raises(InputError, match="version 7, this placelab reads versions 1, 2, 3, 4, 5 and 6"):
        load_plan(written_as(path, {"placement": {"": "gpu:0"}}, version=7), problem)
    with pytest.raises(InputError, match="unknown key 'mesh'"):
        load_plan(written_as(path, {"placement": {"": "gpu:0"}, "mesh": [2]}), problem)
    with pytest.raises(InputError, match=r"a\.plan\.json: this is a file of 'placelab\.graph'"):
        load_plan(written_as(path, {"placement": {"": "gpu:0"}}, schema="placelab.graph"), problem)
    for text in ("{", "[]", "\xff"):
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(InputError, match=r"a\.plan\.json"):
            load_plan(path, problem)
    with pytest.raises(InputError, match="cannot be read"):
        load_plan(tmp_path, problem)


def test_the_file_format_stays_as_it_is(tmp_path: Path) -> None:
    problem = Problem(toy_graph([1, 2], [(0, 1)]), toy_cluster(2))
    saved(problem, [0, 1], tmp_path / "a.plan.json")
    assert (
        (tmp_path / "a.plan.json").read_text()
        == f"""{{
  "schema": "placelab.plan",
  "version": 6,
  "graph": {{
    "name": "toy",
    "fingerprint": "{problem.graph.fingerprint}"
  }},
  "cluster": {{
    "name": "toy2",
    "fingerprint": "{problem.cluster.fingerprint}"
  }},
  "made_for": {{
    "runtime": "ideal",
    "cost_model": "roofline",
    "reserve": "none"
  }},
  "plan": {{
    "placement": {{
      "a": "gpu:0",
      "b": "gpu:1"
    }}
  }},
  "found": {{
    "placer": "by hand",
    "seed": 3,
    "simulations": 7
  }},
  "predicted": {{
    "step_seconds": 4.0,
    "peak_bytes": {{
      "gpu:0": 1.0,
      "gpu:1": 2.0
    }}
  }}
}}
"""
    )


def test_a_file_of_an_earlier_version_runs_as_it_was_predicted(tmp_path: Path) -> None:
    """Before version 3 first come, first served: there was no other order."""
    path, problem = tmp_path / "a.plan.json", Problem(toy_graph([1, 2], [(0, 1)]), toy_cluster(2))
    saved(problem, [0, 1], path)
    content = json.loads(path.read_text())
    decision, found = content.pop("plan") | {"order": "program"}, content.pop("found")
    del content["made_for"]
    expected = PlacerResult.of_units(problem, [0, 1], "by hand", seed=3, simulations=7)
    expected = replace(
        expected, made_for=Conditions(runtime="ideal:order=program", cost_model=BY_LINKS, reserve="none")
    )
    for several in ({"": ["gpu:0"]}, {"": 1}):
        path.write_text(json.dumps(content | {"plan": decision | {"placement": several}, "version": 3}))
        with pytest.raises(InputError, match="expected a text, got "):
            load_plan(path, problem)
    path.write_text(json.dumps(content | {"plan": decision | {"schedule": {}}, "version": 3}))
    with pytest.raises(InputError, match="unknown key 'schedule'"):
        load_plan(path, problem)
    path.write_text(json.dumps(content | {"plan": decision, "found": found, "version": 3}))
    assert load_plan(path, problem) == expected
    expected = replace(expected, made_for=Conditions(runtime="ideal:order=fifo", cost_model=BY_LINKS, reserve="none"))
    path.write_text(json.dumps(content | {"plan": decision, "found": found, "version": 2}))
    with pytest.raises(InputError, match="unknown key 'order'"):
        load_plan(path, problem)
    del decision["order"]
    path.write_text(json.dumps(content | {"plan": decision, "found": found, "version": 2}))
    assert load_plan(path, problem) == expected
    first = content | decision | found | {"version": 1}
    path.write_text(json.dumps(first))
    assert load_plan(path, problem) == expected
    path.write_text(json.dumps(first | {"placement": {"": 1}}))
    with pytest.raises(InputError, match=r"placement\.\S+: expected a text, got a whole number"):
        load_plan(path, problem)
    path.write_text(json.dumps(first | {"plan": {}}))
    with pytest.raises(InputError, match="unknown key 'plan'"):
        load_plan(path, problem)
