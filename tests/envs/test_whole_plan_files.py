"""Plan files of plans with replicas, stages and a schedule, and of graphs whose ops are tied into groups."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.files.plan_file import load_plan, read_plan, save_plan
from envs.files.plan_sections import ScheduleSection
from envs.plans.conditions import Conditions
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import AllReduce, Recomputing, Schedule, Sharing, Update
from envs.simulation.simulator import Outcome
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.op_groups.grouping import tie_ops
from graphs.op_groups.layer_names import named_blocks
from graphs.problem import Problem
from graphs.runtime import FIFO, PROGRAM
from tests.envs.test_plan_file import NAMES, named, written, written_as
from tests.oracle.toys import random_graph, toy_cluster

PREDICTED = Outcome(1.0, np.zeros(3), fits=True)


@st.composite
def whole_plans(draw: st.DrawFn) -> tuple[Problem, Plan]:
    """A graph without edges with awkward names, some of its ops tied, and a plan of all that a file can say."""
    names = draw(NAMES)
    ops = len(names)
    problem = named(*names, mirror=tuple(draw(st.lists(st.integers(-1, ops - 1), min_size=ops, max_size=ops))))
    units = problem.graph.num_units
    stage_of_unit = np.array(draw(st.lists(st.integers(0, 2), min_size=units, max_size=units)))
    stage = draw(st.permutations(range(3)).map(np.array))[stage_of_unit][problem.graph.units]
    stage = np.unique(stage, return_inverse=True)[1]
    several = st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True).map(tuple)
    of_stage = draw(st.lists(several, min_size=3, max_size=3))
    devices = tuple(of_stage[each] for each in stage.tolist())
    listed = draw(st.booleans())
    count = int(stage.max()) + 1 if listed else len(set(devices))
    update = draw(st.sampled_from(get_args(Update)))
    has_blocks = (named_blocks(problem.graph) >= 0).any()
    sharing: Sharing = draw(st.sampled_from(get_args(Sharing)))
    unequal = (
        tuple(tuple(range(1, len(devices[stage.tolist().index(each)]) + 1)) for each in range(count)) if listed else ()
    )
    schedule = Schedule(
        micro_batches=6 * draw(st.integers(1, 9)),
        stages=tuple(stage.tolist()) if listed else (),
        order=draw(st.sampled_from(("as_ready", "gpipe"))) if update == "step" else "gpipe",
        recompute=tuple(draw(st.sets(st.integers(0, count - 1)))),
        recompute_at=draw(st.sampled_from([each for each in get_args(Recomputing) if has_blocks or each != "block"])),
        sharing=sharing,
        shares=unequal if sharing == "split" and draw(st.booleans()) else (),
        update=update,
        all_reduce=draw(st.sampled_from(get_args(AllReduce))),
        bucket_bytes=draw(st.sampled_from((1.5, np.inf)) | st.just(Schedule().bucket_bytes)),
    )
    number = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from((1.0, 2.0))
    order = draw(st.lists(number, min_size=ops, max_size=ops).map(tuple) | st.sampled_from((FIFO, PROGRAM)))
    order = tuple(each + 0.0 for each in order) if isinstance(order, tuple) else order
    return problem, Plan(devices, order, schedule)


def grouped(problem: Problem, groups: Ints) -> Problem:
    """The same problem with ops tied into groups, (ops,)."""
    return Problem(replace(problem.graph, group=groups), problem.cluster)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(whole_plans())
def test_a_whole_plan_survives_in_whatever_groups_its_ops_are_tied(tmp_path: Path, case: tuple[Problem, Plan]) -> None:
    problem, plan = case
    path = tmp_path / "a.plan.json"
    result = PlacerResult(
        plan, "by hand", 3, 7, made_for=Conditions(runtime="ideal", cost_model="roofline", reserve="none")
    )
    number: dict[object, int] = {}
    where = list(zip(plan.devices, plan.schedule.stages or plan.devices, strict=True))
    together = grouped(problem, np.array([number.setdefault(each, len(number)) for each in where]))
    for given_as in (problem, together):
        save_plan(result, given_as, PREDICTED, path)
        assert load_plan(path, problem) == load_plan(path, together) == result
        assert not read_plan(path).is_of_groups
    if len({devices[0] for devices in plan.devices}) > 1:
        with pytest.raises(InputError, match="must share"):
            load_plan(path, grouped(problem, np.zeros(len(problem.graph), np.int64)))


def test_a_plan_of_few_groups_is_one_of_many_and_of_none(tmp_path: Path) -> None:
    path, graph = tmp_path / "a.plan.json", random_graph(60, 0)
    few, many, none = (Problem(each, toy_cluster(3)) for each in (tie_ops(graph, 4), tie_ops(graph, 16), graph))
    order = np.random.default_rng(0).random(60)
    result = PlacerResult.of_units(few, [0, 1, 2, 0], "by hand", 0, order=order)
    result = replace(result, made_for=Conditions.of(few))
    save_plan(result, few, PREDICTED, path)
    assert [load_plan(path, each) for each in (few, many, none)] == [result] * 3
    assert json.loads(path.read_text())["graph"]["fingerprint"] == graph.fingerprint


def test_a_file_of_version_3_is_for_as_many_groups_as_it_was_made_with(tmp_path: Path) -> None:
    path, graph = tmp_path / "a.plan.json", random_graph(20, 0)
    tied, other = (Problem(tie_ops(graph, groups), toy_cluster(3)) for groups in (2, 3))
    first = [graph.names[op] for op in tied.units.first_op]
    plan = {"placement": dict(zip(first, ("gpu:1", "gpu:2"), strict=True)), "order": dict.fromkeys(first, 1.0)}
    identity = {"name": graph.name, "fingerprint": tied.graph.fingerprint}
    written_as(path, plan, version=3, graph=identity)
    assert read_plan(path).is_of_groups
    assert load_plan(path, tied).plan == Plan.of_units(tied, [1, 2], order=[1.0] * 20)
    for problem in (other, Problem(graph, toy_cluster(3))):
        with pytest.raises(InputError, match=r"of the same name, but with other ops, costs or `groups`; to apply"):
            load_plan(path, problem)
    written_as(path, plan, version=4, graph=identity)
    with pytest.raises(InputError, match=r"other ops or costs, as in another precision; to apply"):
        load_plan(path, tied)


def test_an_op_without_an_entry_goes_where_its_group_goes(tmp_path: Path) -> None:
    problem = grouped(named("a", "b", "c"), np.array([0, 1, 0]))
    path = written(tmp_path / "a.plan.json", {"a": ["gpu:1", "gpu:0"], "b": "gpu:2"})
    assert load_plan(path, problem).plan == Plan(((1, 0), (2,), (1, 0)))
    with pytest.raises(InputError, match="no entry covers op 'c'"):
        load_plan(path, named("a", "b", "c"))


def test_a_pipeline_is_written_by_stage_and_only_what_differs_from_the_default(tmp_path: Path) -> None:
    problem = named("emb/add", "layers.0/mm", "layers.1/mm", "layers.1/mm.grad", "head/mm", mirror=(-1, -1, -1, 2, -1))
    schedule = Schedule(micro_batches=8, stages=(0, 0, 1, 1, 2), order="gpipe", recompute=(0, 1))
    plan = Plan(((0, 1), (0, 1), (2,), (2,), (0, 1)), FIFO, schedule)
    save_plan(PlacerResult(plan), problem, PREDICTED, tmp_path / "a.plan.json")
    assert json.loads((tmp_path / "a.plan.json").read_text())["plan"] == {
        "stages": [
            {"modules": ["emb", "layers.0"], "devices": ["gpu:0", "gpu:1"], "recompute": True},
            {"modules": ["layers.1"], "devices": "gpu:2", "recompute": True},
            {"modules": ["head"], "devices": ["gpu:0", "gpu:1"]},
        ],
        "order": "fifo",
        "schedule": {"micro_batches": 8, "order": "gpipe"},
    }


def test_data_parallelism_is_written_by_module(tmp_path: Path) -> None:
    problem = named("emb/add", "layers.0/mm", "head/mm")
    plan = Plan(((0, 1, 2), (0, 1, 2), (1,)), FIFO, Schedule(recompute=(1,), bucket_bytes=7.0))
    save_plan(PlacerResult(plan), problem, PREDICTED, tmp_path / "a.plan.json")
    assert json.loads((tmp_path / "a.plan.json").read_text())["plan"] == {
        "placement": {"emb": ["gpu:0", "gpu:1", "gpu:2"], "layers": ["gpu:0", "gpu:1", "gpu:2"], "head": "gpu:1"},
        "order": "fifo",
        "schedule": {"recompute": [1], "bucket_bytes": 7.0},
    }


def test_a_file_says_all_that_a_schedule_has() -> None:
    assert set(ScheduleSection.__struct_fields__) | {"stages"} == {field.name for field in fields(Schedule)}
    assert ScheduleSection().schedule() == Schedule()


A, B = {"modules": ["a"], "devices": "gpu:0"}, {"modules": ["b"], "devices": ["gpu:1", "gpu:2"]}


def test_stages_may_be_written_by_hand(tmp_path: Path) -> None:
    problem, path = named("a/x", "a/y", "b"), tmp_path / "a.plan.json"

    def plan(*stages: dict[str, Any], **more: object) -> Plan:
        return load_plan(written_as(path, {"stages": stages, **more}), problem).plan

    assert plan(A, B) == Plan(((0,), (0,), (1, 2)), schedule=Schedule(stages=(0, 0, 1)))
    with pytest.raises(InputError, match=r"a\.plan\.json: op 'c' goes where 'b' goes; place that one instead"):
        load_plan(
            written_as(path, {"stages": [A, B | {"modules": ["b", "c"]}]}), named("a", "b", "c", mirror=(-1, -1, 1))
        )
    closer, rest = {"modules": ["a/y"], "devices": "gpu:2"}, {"modules": [""], "devices": "gpu:1"}
    assert plan(rest, closer).schedule.stages == (0, 1, 0)
    assert plan(A, B | {"recompute": True}, schedule={"micro_batches": 2, "sharing": "turns"}).schedule == Schedule(
        2, (0, 0, 1), recompute=(1,), sharing="turns"
    )


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ({"stages": [A]}, "no entry covers op 'b'; add one for it, its module"),
        ({"stages": [A, B, {"modules": ["c"], "devices": "gpu:0"}]}, "unknown op or module 'c'"),
        ({"stages": [A, B, {"modules": ["a"], "devices": "gpu:0"}]}, "'a' is in stage 0 and again in stage 2"),
        ({"stages": [A, B, {"modules": [""], "devices": "gpu:0"}]}, "stage 2 has no op: other stages name all of its"),
        ({"stages": [A, B, {"modules": [], "devices": "gpu:0"}]}, "stage 2 has no op"),
        ({"stages": [A, B | {"devices": "gpu:4"}]}, "unknown device 'gpu:4'; did you mean 'gpu:2'"),
        ({"stages": [A, B | {"devices": []}]}, "stage 1 has no device; name one, or several for replicas"),
        ({"stages": [A, B | {"device": "gpu:4"}]}, "stages[1]: unknown key 'device'; did you mean 'devices'"),
        ({"stages": [A, B], "placement": {"": "gpu:0"}}, "has a placement, and stages, which say the same; remove one"),
        ({"stages": [A, B], "schedule": {"recompute": [1]}}, "give these `recompute: true`"),
        ({"placement": {"": "gpu:0"}, "schedule": {"microbatches": 2}}, "schedule: unknown key 'microbatches'; did"),
        ({"placement": {"": "gpu:0"}, "schedule": {"micro_batches": 0}}, "schedule: a schedule has 0 micro-batches"),
        ({"placement": {"": "gpu:0"}, "schedule": {"bucket_bytes": -1}}, "schedule: a bucket of gradients has -1.0"),
        ({"placement": {"": "gpu:0"}, "schedule": {"order": "gpip"}}, "schedule: unknown pass order 'gpip'"),
        ({"placement": {"": "gpu:0"}, "schedule": {"order": 1}}, "schedule.order: expected a text, got a whole"),
        ({"placement": {"": "gpu:0"}, "schedule": {"sharing": "turn"}}, "schedule.sharing: unknown value 'turn'"),
        ({}, "no entry covers op 'a'"),
    ],
)  # fmt: skip
def test_a_wrong_schedule_is_refused_naming_the_file_and_the_place(
    tmp_path: Path, plan: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError) as refusal:
        load_plan(written_as(tmp_path / "a.plan.json", plan), named("a", "b"))
    assert sentence in str(refusal.value)
    assert str(tmp_path / "a.plan.json") in str(refusal.value)
