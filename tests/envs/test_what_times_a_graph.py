"""What times a graph follows from what it knows, and is never in doubt."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from envs.costs.costs import AUTO, cost_model_of, costs_of, timed, timing
from envs.files.plan_file import load_plan
from graphs.cluster import Cluster, Device
from graphs.files.load import load_cluster
from graphs.formats.graph_file import load_graph_file, save_graph
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.heft import Heft
from tests.oracle.toys import toy_cluster


def graph(tmp_path: Path, *nodes: dict[str, object], **more: object) -> OpGraph:
    """A chain of the nodes, read from a file."""
    listed = [{"name": f"op{i}", "kind": "any"} | node for i, node in enumerate(nodes)]
    chain = [[i, i + 1] for i in range(len(nodes) - 1)]
    content = {"schema": "placelab.graph", "version": 1, "name": "g", "nodes": listed, "edges": chain} | more
    path = tmp_path / "g.graph.json"
    path.write_text(json.dumps(content))
    return load_graph_file(path)


def unlike() -> Cluster:
    """A processor and two cards, one of them faster."""
    devices = tuple(
        Device(name, name.partition(":")[0], speed, 1.0, 1e3)
        for name, speed in (("cpu:0", 0.1), ("gpu:0", 1.0), ("gpu:1", 2.0))
    )
    return Cluster("unlike", devices, np.zeros((3, 3)), np.ones((3, 3)), np.arange(9).reshape(3, 3))


def test_measured_times_count_where_there_are_no_flops(tmp_path: Path) -> None:
    problem = Problem(graph(tmp_path, {"measured_seconds": 2.0}, {"measured_seconds": 3.0}), toy_cluster(2))
    assert timing(problem) == "recorded"
    assert costs_of(problem).op_seconds.tolist() == [[2.0, 2.0], [3.0, 3.0]]
    assert timed(problem).timed_by == "recorded"


def test_flops_count_where_nothing_is_measured(tmp_path: Path) -> None:
    problem = Problem(graph(tmp_path, {"flops": 8.0}, {"bytes_accessed": 4.0}), toy_cluster(2))
    assert timing(problem) == "roofline"
    assert timed(problem, "roofline:efficiency=typical").timed_by == "roofline:efficiency=typical"


def test_verbs_and_environments_take_measured_shares_on_gpus_and_times_that_a_problem_has(tmp_path: Path) -> None:
    counted = graph(tmp_path, {"flops": 8.0}, {"bytes_accessed": 4.0})
    on_gpus = timed(Problem(counted, load_cluster("p100x2")), AUTO)
    assert on_gpus.timed_by == "roofline:efficiency=measured"
    assert timed(on_gpus, AUTO) is on_gpus
    assert timed(on_gpus).timed_by == "roofline"
    on_cpus = replace(toy_cluster(2).devices[0], kind="cpu")
    assert (
        timed(
            Problem(counted, Cluster.uniform("cpus", on_cpus, 2, latency=0.0, bandwidth=1.0, shared_out=False)), AUTO
        ).timed_by
        == "roofline"
    )
    measured = graph(tmp_path, {"measured_seconds": 2.0}, {"measured_seconds": 3.0})
    assert timed(Problem(measured, load_cluster("p100x2")), AUTO).timed_by == "recorded"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"measured_seconds": 2.0, "flops": 1.0}, {"measured_seconds": 3.0, "flops": 1.0}),
        ({"measured_seconds": 2.0}, {"flops": 1.0}),
        ({"measured_seconds": 2.0}, {"bytes_accessed": 1.0}),
        ({"measured_seconds": {"gpu": 1.0}}, {"flops": 1.0}),
    ],
)
def test_a_mixture_is_refused_with_the_remedy(
    first: dict[str, object], second: dict[str, object], tmp_path: Path
) -> None:
    mixed = graph(tmp_path, first, second)
    with pytest.raises(InputError, match=r"`cost_model='recorded'` .* recorded:otherwise=roofline .* or roofline"):
        cost_model_of(mixed)
    with pytest.raises(InputError, match="say which count"):
        timed(Problem(mixed, toy_cluster(2)))
    assert timed(Problem(mixed, toy_cluster(2)), "recorded:otherwise=roofline").op_seconds is not None


def test_an_op_without_a_time_among_measured_ones_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no time on 'gpu' devices for 1 of the 2 ops of 'g': 'op1'"):
        timed(Problem(graph(tmp_path, {"measured_seconds": 2.0}, {}), toy_cluster(2)))


@pytest.mark.parametrize("node", [{}, {"measured_seconds": 0.0}, {"output_bytes": 5.0}])
def test_work_of_no_time_at_all_is_refused(node: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="all ops of g@toy2 take 0 s"):
        timed(Problem(graph(tmp_path, node, node), toy_cluster(2)))


def test_times_are_those_of_the_device_then_of_its_kind_then_of_any(tmp_path: Path) -> None:
    problem = Problem(
        graph(
            tmp_path,
            {"measured_seconds": {"gpu": 1.0, "gpu:1": 0.5, "cpu": 9.0}},
            {"measured_seconds": {"any": 4.0, "cpu:0": 8.0}},
        ),
        unlike(),
    )
    assert timed(problem).op_seconds.tolist() == [[9.0, 1.0, 0.5], [8.0, 4.0, 4.0]]  # type: ignore[union-attr]


def test_a_time_on_any_device_is_refused_where_devices_differ(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"hold on one kind of device.*cpu and gpu.*recorded:file=FILE"):
        timed(Problem(graph(tmp_path, {"measured_seconds": 2.0}), unlike()))
    cards = Cluster("cards", unlike().devices[1:], np.zeros((2, 2)), np.ones((2, 2)), np.arange(4).reshape(2, 2))
    with pytest.raises(InputError, match="gpus of different speeds"):
        timed(Problem(graph(tmp_path, {"measured_seconds": 2.0}), cards))


def test_an_op_runs_only_where_the_graph_allows(tmp_path: Path) -> None:
    problem = timed(
        Problem(graph(tmp_path, {"flops": 5.0, "devices": ["cpu"]}, {"flops": 5.0, "devices": ["gpu:0"]}), unlike())
    )
    plan = Heft().place(problem).plan
    assert plan.placement.tolist() == [0, 1]
    assert problem.made_allowed(np.array([2, 2])).tolist() == [0, 1]


def test_where_an_op_may_not_run_no_time_is_needed(tmp_path: Path) -> None:
    nodes = ({"measured_seconds": {"gpu": 1.0}, "devices": ["gpu"]}, {"measured_seconds": {"gpu": 1.0, "cpu": 2.0}})
    seconds = timed(Problem(graph(tmp_path, *nodes), unlike())).op_seconds  # type: ignore[arg-type]
    assert seconds is not None
    assert seconds[:, 1:].tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert seconds[0, 0] > 1000
    assert seconds[1, 0] == 2.0


def test_a_plan_file_may_not_place_an_op_where_the_graph_forbids_it(tmp_path: Path) -> None:
    problem = Problem(graph(tmp_path, {"flops": 5.0, "devices": ["cpu"]}, {"flops": 5.0}), unlike())
    path = tmp_path / "a.plan.json"
    path.write_text('{"schema": "placelab.plan", "version": 1, "placement": {"": "gpu:1"}}')
    with pytest.raises(InputError, match=r"a\.plan\.json: op 'op0' is placed on 'gpu:1'; the graph allows cpu:0"):
        load_plan(path, problem)


def test_ops_that_no_device_may_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'op0' only on tpu; it has cpu:0, gpu:0, gpu:1"):
        Problem(graph(tmp_path, {"flops": 5.0, "devices": ["tpu"]}), unlike())
    tied = {"flops": 5.0, "group": 0}
    with pytest.raises(InputError, match="'op0' only on cpu; 'op1' only on gpu:1"):
        Problem(graph(tmp_path, tied | {"devices": ["cpu"]}, tied | {"devices": ["gpu:1"]}), unlike())


def test_what_a_file_says_comes_back(tmp_path: Path) -> None:
    first = graph(
        tmp_path,
        {"measured_seconds": {"gpu": 1.0, "any": 2.0}, "devices": ["gpu"], "transfer_bytes": 7.0, "output_bytes": 3.0},
        {"measured_seconds": 2.0},
        {},
        edges=[["op0", "op1", 12], [0, 2], [1, 2]],
        control=[2],
    )
    save_graph(first, tmp_path / "h.graph.json.gz")
    second = load_graph_file(tmp_path / "h.graph.json.gz")
    assert second.fingerprint == first.fingerprint
    assert second.carried_bytes.tolist() == [12.0, 7.0, 0.0]
    assert second.sent_bytes.tolist() == [7.0, 0.0, 0.0]
    assert second.devices == (("gpu",), (), ())


def test_a_control_edge_has_no_message(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"edges\[0\]\[2\]: expected no bytes on a control edge, got 4"):
        graph(tmp_path, {"flops": 1}, {"flops": 1}, edges=[[0, 1, 4]], control=[0])
