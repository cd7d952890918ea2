"""Workloads of "Efficient Algorithms for Device Placement"."""

import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.costs.costs import costs_of
from envs.simulation.simulator import Simulator
from graphs.files.load import load_graph
from graphs.formats.msr import Workload, load_workload
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase
from tests.graphs.formats.written_profiles import save_workload

DATA = Path(__file__).parents[4] / "shared" / "data" / "msr"
TOTALS = {  # nodes, edges, accelerator and CPU milliseconds, bytes, accelerators: from the README of the data
    "latency/layer_gnmt_inference": (96, 122, 182.563, 1825.63, 2466507520, 6),
    "latency/operator_bert_l-3_inference": (235, 250, 49.3526, 1135.11, 1512867688, 4),
    "throughput/layer_bert24_inference": (32, 55, 92.406, 924.06, 1824824592, 6),
    "throughput/layer_bert24_training": (64, 110, 217.813, 2178.13, 3649649184, 6),
    "throughput/layer_gnmt_inference": (96, 122, 182.563, 1825.63, 2466507520, 6),
    "throughput/layer_gnmt_training": (192, 244, 520.453, 5204.53, 4933015040, 6),
    "throughput/layer_inceptionv3_inference": (326, 363, 310.969, 3109.69, 16795418824, 6),
    "throughput/layer_inceptionv3_training": (652, 726, 710.738, 7107.38, 33590837648, 6),
    "throughput/operator_bert_l-3_inference": (235, 250, 49.3526, 1135.11, 1512867688, 3),
    "throughput/operator_bert_l-3_training": (600, 817, 122.987, 2828.71, 3298392568, 3),
    "throughput/operator_resnet50_inference": (604, 619, 325.132, 7478.04, 3513477024, 6),
}


def content() -> dict[str, Any]:
    return {
        "maxSizePerFPGA": 100.0, "maxFPGAs": 2, "maxCPUs": 1,
        "nodes": [
            {"id": 1, "name": "a1", "supportedOnFpga": 1, "cpuLatency": 20.0, "fpgaLatency": 2.0, "isBackwardNode": 0,
             "colorClass": 7, "size": 60.0},
            {"id": 2, "name": "b2", "supportedOnFpga": 0, "cpuLatency": 30.0, "fpgaLatency": 3.0,
             "isBackwardNode": False, "size": 0.0},
            {"id": 3, "name": "a1grad", "supportedOnFpga": True, "cpuLatency": 40.0, "fpgaLatency": 4.0,
             "isBackwardNode": 1, "colorClass": 7, "size": 60.0},
        ],
        "edges": [
            {"sourceId": 1, "destId": 2, "cost": 5.0, "size": 9.0}, {"sourceId": 2, "destId": 3, "cost": 1.0},
        ],
    }  # fmt: skip


@pytest.mark.parametrize("name", TOTALS)
def test_a_real_workload_has_the_totals_of_its_source_and_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    path = DATA / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"{name} is not at hand")
    nodes, edges, accelerator, cpu, size, devices = TOTALS[name]
    workload = load_workload(path)
    assert (len(workload.nodes), len(workload.edges), workload.maxFPGAs) == (nodes, edges, devices)
    assert sum(node.fpgaLatency for node in workload.nodes) == pytest.approx(accelerator, rel=1e-5)
    assert sum(node.cpuLatency for node in workload.nodes) == pytest.approx(cpu, rel=1e-5)
    assert sum(node.size for node in workload.nodes) == pytest.approx(size, rel=1e-9)
    graph = workload.graph(name)
    assert graph.weights.sum() == pytest.approx(size, rel=1e-9)
    assert len(graph) == nodes
    save_workload(workload, tmp_path / "again.json")
    assert load_workload(tmp_path / "again.json") == workload


def test_a_workload_becomes_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text(json.dumps(content()))
    problem = load_workload(path).problem("w")
    graph = problem.graph
    assert graph.names == ("a1.1", "b2.2", "a1grad.3")
    assert graph.phase.tolist() == [Phase.FORWARD, Phase.FORWARD, Phase.BACKWARD]
    assert graph.units.tolist() == [0, 1, 0]
    assert graph.weights.tolist() == [60, 60]
    assert [device.name for device in problem.cluster.devices] == ["gpu:0", "gpu:1", "cpu:0"]
    timeline = Simulator(problem).timeline([0, 2])  # 2 ms, 5 ms to the CPU, 30 ms, 1 ms back, 4 ms
    assert timeline.step_seconds == pytest.approx(0.042)
    assert not timeline.fits  # 120 bytes on an accelerator of 100
    assert Simulator(problem).run([2, 0]).step_seconds > 1  # the second op cannot run on an accelerator
    assert problem.allowed is not None
    assert problem.allowed.tolist() == [[True, True, True], [False, False, True]]
    assert costs_of(problem).op_seconds[problem.allowed[graph.units]].tolist() == [
        0.002, 0.002, 0.02, 0.03, 0.004, 0.004, 0.04
    ]  # fmt: skip
    assert problem.timed_by == "recorded"


def test_memory_is_what_the_nodes_hold_and_not_what_transfers_move(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text(json.dumps(content() | {"maxSizePerFPGA": 120.0}))
    problem = load_workload(path).problem("w")
    assert problem.graph.sent_bytes.tolist() == [5e6, 1e6, 0]
    outcome = Simulator(problem).run([0, 2])
    assert outcome.peak_bytes.tolist() == [120, 0, 0]
    assert outcome.fits


@pytest.mark.parametrize("name", [name for name in TOTALS if name.startswith("latency/")])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_plan_fits_by_the_rule_of_the_file(name: str, seed: int) -> None:
    path = DATA / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"{name} is not at hand")
    workload = load_workload(path)
    problem = workload.problem(name)
    simulator = Simulator(problem)
    rng = np.random.default_rng(seed)
    for accelerators in range(1, workload.maxFPGAs + 1):
        placement = rng.integers(0, accelerators, problem.graph.num_units)
        device = placement[problem.graph.units]
        sums = np.bincount(device, weights=[node.size for node in workload.nodes], minlength=len(problem.cluster))
        outcome = simulator.run(placement)
        assert outcome.peak_bytes == pytest.approx(sums, rel=1e-12)
        assert outcome.fits == (sums[: workload.maxFPGAs] <= workload.maxSizePerFPGA).all()


def test_a_node_that_only_a_cpu_can_run_needs_one(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text(json.dumps(content() | {"maxCPUs": 0}))
    with pytest.raises(InputError, match=r"'b2\.2' only on cpu"):
        load_workload(path).problem("w")


def test_foreign_files_are_graphs_by_their_path(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(json.dumps(content()))
    assert load_graph(str(tmp_path / "w.json")).names == ("a1.1", "b2.2", "a1grad.3")
    line = "-- ReLU -- forward_compute_time=1, backward_compute_time=2, activation_size=3, parameter_size=0"
    (tmp_path / "graph.txt").write_text(f"node1 {line}\nnode2 {line}\n\tnode1 -- node2\n")
    assert len(load_graph(str(tmp_path / "graph.txt"))) == 4
    (tmp_path / "none.json").write_text("[]")
    with pytest.raises(InputError, match=r"none\.json"):
        load_graph(str(tmp_path / "none.json"))


@pytest.mark.parametrize(
    ("where", "key", "value", "sentence"),
    [
        ("nodes", "cpuLatency", -1.0, r"nodes\[0\].cpuLatency: expected a number >= 0, got -1.0"),
        ("nodes", "id", 2, "each with an id of its own"),
        ("nodes", "size", "much", r"nodes\[0\].size: expected a number"),
        ("edges", "destId", 9, r"edges\[0\]: no node has the id 9"),
        ("edges", "cost", -2.0, r"edges\[0\].cost: expected a number >= 0, got -2.0"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, where: str, key: str, value: object, sentence: str) -> None:
    wrong = content()
    wrong[where][0][key] = value
    path = tmp_path / "w.json"
    path.write_text(json.dumps(wrong))
    with pytest.raises(InputError, match=sentence):
        load_workload(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(content())), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(list(content())), JSON, st.integers(0, 2000))
def test_a_damaged_file_gives_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: object, cut: int
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "w.json"
    for raw in (msgspec.json.encode(content() | {key: value}), msgspec.json.encode(content())[:cut]):
        path.write_bytes(raw)
        with contextlib.suppress(InputError):  # anything else would be a traceback
            assert isinstance(load_workload(path), Workload)
