"""What is done with a file of each format: it is read, placed and simulated, and written again."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.console import Console

from envs.costs.costs import timed
from envs.files.plan_file import load_plan
from envs.simulation.simulator import simulate
from evaluation.benchmark.problem_file import Benchmark
from evaluation.benchmark.submission import SubmissionFolder
from evaluation.benchmark.verification import verify
from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.exports.formats import FORMATS, export_plan
from evaluation.records.journal import Journal, plans
from evaluation.records.run_files import load_evaluation
from evaluation.tables.graph_summary import GraphSummary
from graphs.devices.cluster_file import save_cluster
from graphs.files.graph_source import graph_source
from graphs.files.load import load_cluster, load_graph
from graphs.formats.graph_file import load_graph_file, save_graph
from graphs.foundation.documents import write_document
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.op_groups.named_modules import named_modules
from graphs.problem import Problem
from placers.expert import Expert
from placers.heft import build as heft
from placers.learned.lookup import placer_of
from placers.single_device import build as single_device
from tests.evaluation.benchmark import tiny
from tests.graphs.formats.torch_traces import NODES, trace
from training.recipe import load_recipe

GRAPH = {
    "schema": "placelab.graph", "version": 1, "name": "step",
    "nodes": [
        {"name": "layers.0/mm", "kind": "aten.mm", "flops": 8e9, "bytes_accessed": 4.8e6, "output_bytes": 1.6e6},
        {"name": "layers.0/view", "kind": "aten.slice", "output_bytes": 8e5, "group": 3},
        {"name": "layers.1/relu", "kind": "aten.relu", "bytes_accessed": 3.2e6, "output_bytes": 1.6e6, "group": 3},
        {"name": "layers.1/mm", "kind": "aten.mm", "flops": 8e9, "bytes_accessed": 4.8e6, "output_bytes": 1.6e6},
        {"name": "layers.1/mm.backward", "kind": "aten.mm.grad", "flops": 1.6e10, "bytes_accessed": 9.6e6,
         "output_bytes": 1.6e6, "phase": "backward", "mirror": "layers.1/mm"},
        {"name": "layers.0/mm.backward", "kind": "aten.mm.grad", "flops": 1.6e10, "bytes_accessed": 9.6e6,
         "output_bytes": 1.6e6, "phase": "backward", "mirror": 0},
        {"name": "layers.0/update", "kind": "update", "bytes_accessed": 64, "phase": "update", "mirror": 0},
    ],
    "edges": [["layers.0/mm", "layers.0/view"], [0, 2], [1, 3], ["layers.1/relu", "layers.1/mm"], [3, 4], [4, 5],
              [0, 5], [5, 6]],
    "control": [1], "weights": [1.6e6, 32], "weight_uses": [["layers.0/mm", 0], [3, 1], [5, 0], [6, 0]],
}  # fmt: skip
TIMED_GRAPH = {
    "schema": "placelab.graph", "version": 1, "name": "timed",
    "nodes": [
        {"name": "a", "kind": "any", "output_bytes": 1e6, "measured_seconds": 0.002, "transfer_bytes": 2e6},
        {"name": "b", "kind": "any", "output_bytes": 1e6, "measured_seconds": {"gpu": 0.001, "cpu:0": 0.3},
         "devices": ["gpu"]},
        {"name": "c", "kind": "any", "measured_seconds": 0.004},
    ],
    "edges": [["a", "b", 4096], ["a", "c"], ["b", "c"]],
}  # fmt: skip
CLUSTER = """\
schema = "placelab.cluster"
version = 1
name = "two and one"

[links]
latency = "10us"
bandwidth = "12GB/s"
channels = "per_source"
gap = ["1us", 0.0, 2e-6]
multicast = true

[[devices]]
name = "gpu:0"
kind = "gpu"
flops_per_second = "9.3TFLOP/s"
bytes_per_second = "732GB/s"
memory = "16GiB"
launch = "5us"

[[devices]]
name = "gpu:1"
kind = "gpu"
flops_per_second = 9.3e12
bytes_per_second = 7.32e11
memory = "inf"

[[devices]]
name = "cpu:0"
kind = "cpu"
flops_per_second = "1TFLOP/s"
bytes_per_second = "100GB/s"
memory = "64GiB"

[[pairs]]
source = "gpu:0"
target = "gpu:1"
latency = 0.0
bandwidth = "50GB/s"
channel = 1

[[levels]]
count = 2
latency = "25us"
bandwidth = "25Gbit/s"
shared = "group"
"""
WORKLOAD = {
    "maxSizePerFPGA": 17e9, "maxFPGAs": 2, "maxCPUs": 1,
    "nodes": [
        {"id": 1, "name": "Conv7", "supportedOnFpga": 1, "cpuLatency": 50.0, "fpgaLatency": 5.0, "isBackwardNode": 0,
         "size": 1e6, "colorClass": 1},
        {"id": 2, "name": "ReLU", "supportedOnFpga": 1, "cpuLatency": 5, "fpgaLatency": 1, "isBackwardNode": 0,
         "size": 0},
        {"id": 7, "name": "Grad", "supportedOnFpga": True, "cpuLatency": 50.0, "fpgaLatency": 5.0,
         "isBackwardNode": 1, "size": 2.5, "colorClass": 1, "layerId": 4},
    ],
    "edges": [{"sourceId": 1, "destId": 2, "cost": 0.5}, {"sourceId": 2, "destId": 7, "cost": 1.5, "size": 3.0}],
}  # fmt: skip


@cache
def step() -> OpGraph:
    """A training step of two layers."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "step.graph.json"
        path.write_text(json.dumps(GRAPH))
        return load_graph_file(path)


@cache
def problem() -> Problem:
    """The step on two cards."""
    return Problem(step(), load_cluster("p100x2"))


@cache
def row_problem() -> Problem:
    """A forward pass of four equal layers on two cards, which names modules and weights."""
    layer = {"flops": 8e9, "bytes_accessed": 4.8e6, "output_bytes": 1.6e6, "kind": "aten.mm"}
    nodes = [{"name": f"layers.{i}/mm", "call": [f"layers.{i}", "mm", 0], **layer} for i in range(4)]
    content = {
        "schema": "placelab.graph", "version": 1, "name": "row", "nodes": nodes, "edges": [[0, 1], [1, 2], [2, 3]],
        "weights": [1.6e6] * 4, "weight_uses": [[i, i] for i in range(4)],
        "weight_names": [f"layers.{i}.weight" for i in range(4)],
    }  # fmt: skip
    with TemporaryDirectory() as folder:
        path = Path(folder) / "row.graph.json"
        path.write_text(json.dumps(content))
        return Problem(load_graph_file(path), load_cluster("p100x2"))


def text(content: object) -> Callable[[Path], object]:
    """Write text, or JSON."""
    return lambda path: path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))


def check(placed: SimulatedPlan) -> None:
    """A plan that fits gives a step of a finite time, and whatever is said of it can be printed."""
    Console(quiet=True).print(placed)
    json.dumps(placed.to_json(), allow_nan=False)
    placed.require_fit()
    assert 0 < placed.timeline.step_seconds < np.inf
    assert (placed.timeline.peak_bytes >= 0).all()
    assert placed.timeline.start.min() >= 0


def place(what: Problem) -> None:
    """By a list scheduler and on a single device."""
    for placer in (heft(), single_device()):
        check(SimulatedPlan.by(placer, what))


def use_graph(path: Path) -> None:
    """Show, save, group and place."""
    graph = load_graph(str(path))
    Console(quiet=True).print(GraphSummary.of(graph))
    json.dumps(GraphSummary.of(graph).to_json(), allow_nan=False)
    save_graph(graph, path.with_name("again.graph.json"))
    assert load_graph_file(path.with_name("again.graph.json")).fingerprint == graph.fingerprint
    for each in (graph, load_graph(str(path), groups=2)):
        place(timed(Problem(each, load_cluster("p100x2"))))


def use_timeline(path: Path) -> None:
    """Place what it times, alone and with the trace of the same step."""
    observed = trace(path.with_name("step.json"), *NODES)
    for text in (str(path), f"{observed}:times={path}"):
        place(timed(Problem(load_graph(text), load_cluster("p100x2"))))


def use_cluster(path: Path) -> None:
    """Save, and place a step on it."""
    cluster = load_cluster(str(path))
    save_cluster(cluster, path.with_name("again.cluster.json"))
    assert load_cluster(str(path.with_name("again.cluster.json"))).fingerprint == cluster.fingerprint
    place(timed(Problem(step(), cluster)))


def use_workload(path: Path) -> None:
    """On the file's own devices, and on cards."""
    given = graph_source(str(path)).problem
    if given is not None:
        place(given)
    use_graph(path)


def use_cost_model(spec: str) -> Callable[[Path], None]:
    """Place a step that the file times."""
    return lambda path: place(timed(problem(), f"{spec}{path}"))


def use_plan(path: Path) -> None:
    """Simulate it."""
    check(SimulatedPlan.of(problem(), load_plan(path, problem())))


def use_export(path: Path) -> None:
    """Write it in all formats that take it, simulate what they say, and print it."""
    plan, refused = load_plan(path, row_problem()).plan, list[InputError]()
    for to in FORMATS:
        try:
            written = export_plan(row_problem(), plan, named_modules(row_problem().graph), to)
        except InputError as error:
            refused.append(error)
            continue
        check(SimulatedPlan.of(written.problem, written.plan))
        assert "inf" not in written.text
        assert "nan" not in written.text
    if len(refused) == len(FORMATS):
        raise refused[0]


def use_policy(path: Path) -> None:
    """Place by the policy in the folder, in which this file is damaged and the others are fine."""
    check(SimulatedPlan.by(placer_of(path.parent), problem()))


def use_journal(path: Path) -> None:
    """Simulate its plans, and open it twice: the first may drop a line that was cut off."""
    for kept in plans(path):
        simulate(problem(), kept.plan(problem()))
    found = []
    for _ in range(2):
        with Journal.open(path) as journal:
            found.append(journal.entries)
    assert found[0] == found[1]


def use_evaluation(path: Path) -> None:
    """Read it, and write it again."""
    content = load_evaluation(path)
    write_document(content, path.with_name("again.json"))
    assert load_evaluation(path.with_name("again.json")) == content


def use_submission(path: Path) -> None:
    """Verify it, with whatever it says."""
    verify([SubmissionFolder.load(path.parent)], Benchmark.load(tiny.FOLDER))


def use_recipe(path: Path) -> None:
    """Read it, and write it again."""
    recipe = load_recipe(str(path))
    path.with_name("again.toml").write_text(recipe.to_toml())
    assert load_recipe(str(path.with_name("again.toml"))) == recipe


def use_split(path: Path) -> None:
    """Place by it."""
    check(SimulatedPlan.by(Expert(str(path)), problem()))


def use_ids(path: Path) -> None:
    """Place a workload, whose nodes have ids, by it."""
    text(WORKLOAD)(path.with_name("workload.json"))
    given = graph_source(str(path.with_name("workload.json"))).problem
    assert given is not None
    check(SimulatedPlan.by(Expert(str(path)), given))
