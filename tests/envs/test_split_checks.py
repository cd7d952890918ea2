"""What a plan's split cannot be, and what a file says of it."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from envs.files.plan_file import load_plan, save_plan
from envs.plans.mesh import Mesh, coordinates, parts, spaces
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from envs.simulation.simulator import simulate
from graphs.foundation.errors import InputError
from graphs.notation.ranges import Range
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from graphs.runtime import FIFO
from tests.envs.expansion.divided_graphs import mlp, random_split
from tests.oracle.toys import toy_cluster, toy_graph

GRAPH = mlp([8, 8], 4).graph  # x, mm0, relu0, relu0.grad, mm0.grad_weight, mm0.update
OPS = len(GRAPH)


def problem(graph: OpGraph = GRAPH, devices: int = 4) -> Problem:
    return Problem(graph, toy_cluster(devices), optimizer="sgd")


def split(**of: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(of.get(name, ()) for name in GRAPH.names)


def plan(splits: tuple[tuple[str, ...], ...], mesh: Mesh = (), devices: int = 2, **schedule: object) -> Plan:
    return Plan((tuple(range(devices)),) * OPS, "", Schedule(**schedule), splits, mesh)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (plan((), (2,)), "the plan has a mesh, and no split over it"),
        (plan(((),) * 2), "the plan's split is for 2 ops, 'net' has 6; give one for each"),
        (plan(split(mm0=("q",))), "op 'mm0' is divided along 'q'; it can be divided along n, o, i"),
        (plan(split(mm0=("n", "o"))), "op 'mm0' is divided along 2 axes, and its 2 devices have 1; name an index each"),
        (plan(split(mm0=("n",)), (3,)), "the mesh has 3 devices, and no op is on that many"),
        (plan(split(mm0=("n",)), (1, 2)), "the mesh has an axis 1; expected at least 2 parts"),
        (plan(split(mm0=("n",)), ((1, 0),)), "the mesh has an axis (1, 0); expected at least 2 parts"),
        (plan(split(relu0=("o", "o")), (4, 4), 16), "so that a shard has none; divide another, or use fewer devices"),
        (plan(split(), micro_batches=3, order="gpipe"), "3 micro-batches do not divide the 4 samples"),
        (plan(split(), micro_batches=4), "divides 'n', which has 1 value in a micro-batch, so that a shard has none"),
        (plan(split(), sharing="turns", micro_batches=2), "cannot be combined with replicas that take turns"),
        (
            plan(split(), update="micro_batch", micro_batches=2, order="gpipe"),
            "cannot be combined with an update after each micro-batch",
        ),
    ],
)
def test_a_split_that_is_none_is_refused(given: Plan, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        given.check(problem(devices=16))
    assert message in str(refusal.value)


def test_ops_without_a_description_are_not_divided() -> None:
    two = Problem(toy_graph([1, 1], [(0, 1)]), toy_cluster(2))
    whole = Plan(((0, 1),) * 2, split=((), ()))
    assert simulate(two, whole).busy_seconds.tolist() == [2, 2]  # each device does all of it
    with pytest.raises(InputError, match=r"op 'b' has no description, and is divided along 'n'; give it \(\)"):
        replace(whole, split=((), ("n",))).check(two)
    with pytest.raises(InputError, match="op 'a' is on one device, and is divided"):
        Plan(((0,), (0, 1)), split=(("n",), ())).check(two)


def test_a_mesh_is_row_major_and_divides_an_index_axis_by_axis() -> None:
    assert coordinates((2, (1, 3))) == ((0, 0), (0, 1), (1, 0), (1, 1))
    assert parts(8, (2, (1, 3))) == (Range(0, 0), Range(1, 3), Range(4, 4), Range(5, 7))
    whole = {"n": Range(0, 3), "o": Range(0, 7)}
    assert spaces(whole, ("o", "n"), (2, 2))[1] == {"o": Range(0, 3), "n": Range(2, 3)}
    assert spaces(whole, ("n", "n"), (2, 2))[2] == {"n": Range(2, 2), "o": Range(0, 7)}
    assert spaces(whole, ("", "o"), (2, 2))[0] == spaces(whole, ("", "o"), (2, 2))[2]


@pytest.mark.parametrize("mesh", [(2,), (2, 2), (2, (3, 1))])
@pytest.mark.parametrize("seed", range(4))
def test_a_plan_with_a_split_survives_in_a_file(tmp_path: Path, mesh: Mesh, seed: int) -> None:
    devices = math.prod(axis if isinstance(axis, int) else len(axis) for axis in mesh)
    graph = mlp([16, 16, 16], 16).graph
    splits = random_split(graph, (4,) * len(mesh), np.random.default_rng(seed))
    given = Plan((tuple(range(devices)),) * len(graph), FIFO, split=splits, mesh=mesh)
    path = tmp_path / "a.plan.json"
    here = problem(graph)
    save_plan(PlacerResult(given, "by hand", 0, 0), here, simulate(here, given), path)
    assert load_plan(path, here).plan == given
    content = json.loads(path.read_text())
    assert content["version"] == 6
    assert content["plan"]["mesh"] == [list(axis) if isinstance(axis, tuple) else axis for axis in mesh]
    content["plan"]["split"]["mm0.grad"] = ["q"]
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"a\.plan\.json.*'mm0\.grad'"):
        load_plan(path, here)
