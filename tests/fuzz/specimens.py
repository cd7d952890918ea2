"""One small file of each format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from envs.costs.costs import timed
from envs.costs.efficiency_file import Efficiencies, KindClass, save_efficiencies
from envs.costs.profile_file import MeasuredOp, Profile, ProfiledMachine, save_profile
from envs.files.chakra_traces import chakra_traces
from envs.files.plan_file import save_plan
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from envs.simulation.simulator import Simulator, simulate
from evaluation.benchmark.submission import bench
from evaluation.records.journal import Journal, JournalEntry
from evaluation.records.record import Record
from evaluation.records.run_files import EvaluationFile, ProblemFile, load_problem
from graphs.devices.cluster_file import save_cluster
from graphs.files.load import load_cluster
from graphs.formats.chakra_messages import attribute, new, written
from graphs.formats.graph_file import save_graph
from graphs.formats.onnx import save_onnx
from graphs.foundation.documents import write_document
from graphs.op_groups.grouping import tie_ops
from graphs.runtime import LONGEST_PATH
from placers.learned.gdp.policy import OneShotPolicy
from placers.learned.policy_file import save_policy
from placers.learned.policy_meta import Meta
from placers.random import build as random_placements
from tests.evaluation.benchmark import tiny
from tests.fuzz.mutations import CHAKRA, GZIP, JSON, ONNX, TENSORS, TEXT, TOML, Mutation
from tests.fuzz.uses import (
    CLUSTER,
    GRAPH,
    TIMED_GRAPH,
    WORKLOAD,
    place,
    problem,
    row_problem,
    step,
    text,
    use_cluster,
    use_cost_model,
    use_evaluation,
    use_export,
    use_graph,
    use_ids,
    use_journal,
    use_plan,
    use_policy,
    use_recipe,
    use_split,
    use_submission,
    use_timeline,
    use_workload,
)
from tests.graphs.formats.torch_traces import CALLS, KERNELS, NODES, timeline, trace
from training.recipe import RECIPES

_FIRST = [unit < 2 for unit in step().units.tolist()]  # in the first stage
WHOLE_PLAN = Plan(
    tuple((0, 1) if first else (1,) for first in _FIRST), LONGEST_PATH,
    Schedule(2, tuple(int(not first) for first in _FIRST), "gpipe", recompute=(0,)),
)  # fmt: skip
PLAN_BY_DEGREES = {
    "schema": "placelab.plan", "version": 5,
    "plan": {"parallel": {"dp": 1, "pp": 2, "micro_batches": 1, "recompute": True, "order": "gpipe", "stages": "1+1"}},
}  # fmt: skip
NETWORK = "graphsage_transformer:width=8,sage_layers=1,transformer_layers=1,heads=2"
PIPEDREAM = """\
node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=8.0, parameter_size=0.000
node2 -- LSTM(2, 4) -- forward_compute_time=3.190, backward_compute_time=5.348, activation_size=[6.0; 1.0], \
parameter_size=50.0, stage_id=1
node3 -- ReLU(inplace) -- forward_compute_time=2.2, backward_compute_time=4.1, activation_size=9.0, parameter_size=0.0
\tnode1 -- node2
\tnode2 -- node3
"""
DAPPLE = """\
node1 -- Layer1 -- forward_compute_time=1.5, backward_compute_time=3.0, activation_size=1e6, parameter_size=2000
node2 -- Layer2 -- forward_compute_time=1.5, backward_compute_time=3.0, activation_size=1e6, parameter_size=2000
  node1 -- node2
 \tnode1 -- node2
"""


@dataclass(frozen=True)
class Specimen:
    """A format."""

    name: str  # of its file
    made: Callable[[Path], object]  # writes a file that is fine
    used: Callable[[Path], None]  # raises for a file that cannot be used, and AssertionError for a senseless result
    mutations: tuple[Mutation, ...]


# ---- the formats ---------------------------------------------------------------------------------------------


def make_plan(path: Path) -> None:
    """A plan on two cards."""
    result = PlacerResult.of_units(problem(), [0, 1, 1], "by hand", seed=0)
    save_plan(result, problem(), Simulator(problem()).run(result.plan.per_unit(problem())), path)


def make_whole_plan(path: Path) -> None:
    """Two stages in two micro-batches, the first of them on both cards."""
    save_plan(PlacerResult(WHOLE_PLAN), problem(), simulate(problem(), WHOLE_PLAN), path)


def make_policy(path: Path) -> None:
    """An untrained policy of GDP."""
    save_policy(path.parent, OneShotPolicy.new(NETWORK, 0).state_dict(), Meta(placer="gdp", network=NETWORK, seed=0))


def make_profile(path: Path) -> None:
    """Of all ops of the step."""
    machine = ProfiledMachine(
        name="a card", kind="gpu", torch="2.9", threads=1, flops_per_second=1e12, bytes_per_second=1e11,
        memory_bytes=1e10, launch_seconds=1e-6, autograd_seconds=0.0,
    )  # fmt: skip
    ops = [
        MeasuredOp(
            kind=kind, signature=name, flops=flops, bytes_accessed=accessed, seconds=1e-3, spread=0.1, repeats=3,
            ops={"step": [name]},
        )
        for name, kind, flops, accessed in zip(
            step().names, step().kinds, step().flops.tolist(), step().bytes_accessed.tolist(), strict=True
        )
        if flops or accessed
    ]  # fmt: skip
    save_profile(Profile(date="2025-01-01", machine=machine, ops=ops), path)


def make_trace(path: Path) -> None:
    """What one device runs of a plan, and a node as MLCommons' converter writes it."""
    made = problem()
    outputs = new("IOInfo", values="[[7, 1, 0, 6, 4, 'cuda:0']]", types="['Tensor(float)']")
    recorded = new("Node", id=999, name="aten::mm", type=4, ctrl_deps=[0], duration_micros=7, outputs=outputs)
    units = np.arange(made.graph.num_units) % 2
    path.write_bytes(chakra_traces(simulate(made, Plan.of_units(made, units)))[0] + written([recorded]))


def make_onnx_model(path: Path) -> None:
    """A product, a view, and an Einsum."""
    import onnx
    from onnx import TensorProto, helper

    weights = onnx.numpy_helper.from_array(np.zeros((8, 4), np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="/layers.0/MatMul"),
        helper.make_node("Relu", ["y"], ["z"], name="/layers.0/Relu"),
        helper.make_node("Reshape", ["z", "shape"], ["v"]),
        helper.make_node("Einsum", ["v", "w"], ["out"], equation="ij,kj->ik"),
    ]
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [2, 4])
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])]
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, [2, 8])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, [weights, shape])
    path.write_bytes(helper.make_model(graph).SerializeToString(deterministic=True))


def make_fused_onnx_model(path: Path) -> None:
    """Operators of ONNX Runtime, whose sizes the file says, weights in a Constant, and a table that is looked up."""
    import onnx
    from onnx import TensorProto, helper

    table, weight = (onnx.numpy_helper.from_array(np.zeros(each, np.float32)) for each in ((16, 8), (8, 24)))
    table.name = "table"
    nodes = [
        helper.make_node("Cast", ["x"], ["ids"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "ids"], ["h"]),
        helper.make_node("Constant", [], ["w"], value=weight),
        helper.make_node("Attention", ["h", "w"], ["a"], domain="com.microsoft", num_heads=2),
        helper.make_node("FusedMatMul", ["a", "h"], ["b"], domain="com.microsoft", transB=1),
        helper.make_node("Mystery", ["b"], ["out"], domain="own"),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [2, 4]), ("out", [2, 4, 4]), ("a", [2, 4, 8]), ("b", [2, 4, 4]))
    ]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:2], [table], value_info=values[2:])
    domains = [helper.make_opsetid(*each) for each in (("", 17), ("com.microsoft", 1), ("own", 1))]
    made = helper.make_model(graph, opset_imports=domains, ir_version=9)
    path.write_bytes(made.SerializeToString(deterministic=True))


def make_symbolic_trace(path: Path) -> None:
    """What a generator of traces writes: operations and bytes, and no durations."""
    on_gpu = attribute("is_cpu_op", "bool_val", False)
    counted = [on_gpu, attribute("num_ops", "int64_val", 10**12), attribute("tensor_size", "uint64_val", 10**6)]
    summed = [on_gpu, attribute("comm_type", "int64_val", 0), attribute("comm_size", "uint64_val", 10**8)]
    nodes = [
        new("Node", id=0, name="first", type=4, attr=counted),
        new("Node", id=1, name="sum", type=7, data_deps=[0], attr=summed),
        new("Node", id=2, name="second", type=4, data_deps=[1], attr=counted),
    ]
    path.write_bytes(written([new("GlobalMetadata", version="0.0.4"), *nodes]))


def make_row_plan(path: Path) -> None:
    """Four layers on two cards, as files say them for exports."""
    made, cards = row_problem(), np.arange(row_problem().graph.num_units) * 2 // row_problem().graph.num_units
    result = PlacerResult.of_units(made, cards, "by hand", seed=0)
    save_plan(result, made, Simulator(made).run(result.plan.per_unit(made)), path)


def make_submission(path: Path) -> None:
    """Of a quick placer, with all files of its folder."""
    bench(random_placements(), "all", path.parent, budget=1, problems=tiny.FOLDER, quiet=True)


RECORD = Record(
    problem="step@p100x2", placer="heft", seed=0, step_seconds=0.5, fits=True, peak_bytes=(1.0, 2.0), simulations=1,
    search_seconds=0.1, lower_bound_seconds=0.25, curve=((1, 0.5),),
)  # fmt: skip


def make_journal(path: Path) -> None:
    """Three placements and a whole plan."""
    with Journal.open(path) as journal:
        for seed in range(3):
            record = msgspec.structs.replace(RECORD, seed=seed, key=f"{seed:08x}")
            graph, cluster = step().fingerprint, problem().cluster.fingerprint
            journal.add(JournalEntry(record=record, graph=graph, cluster=cluster, devices=(0, 1, 1)))
        journal.add(JournalEntry.of(msgspec.structs.replace(RECORD, seed=3, key="3" * 8), problem(), WHOLE_PLAN))


def make_efficiencies(path: Path) -> None:
    """Two classes of ops."""
    classes = [
        KindClass(name="product", kinds=["aten.mm"], arithmetic=0.5, traffic=0.75),
        KindClass(name="other", kinds=["aten.relu", "update"], traffic=0.25),
    ]
    save_efficiencies(Efficiencies(source="by hand", classes=classes), path)


def make_times(path: Path) -> None:
    """Times by name, by kind with costs, and by kind."""
    ops = [
        {"name": "layers.0/mm", "seconds": {"gpu": 1e-3, "cpu": 2e-2}},
        {"kind": "aten.relu", "flops": 0, "bytes_accessed": 3.2e6, "seconds": {"gpu": 1e-3}},
        *({"kind": kind, "seconds": {"gpu": 2e-3}} for kind in ("aten.mm", "aten.mm.grad", "update")),
    ]
    text({"schema": "placelab.times", "version": 1, "ops": ops})(path)


def make_recipe(path: Path) -> None:
    """That of GDP."""
    path.write_bytes((RECIPES / "gdp.toml").read_bytes())


def make_problem(path: Path) -> None:
    """A graph file on two cards."""
    graph = path.with_name("step.graph.json")
    text(GRAPH)(graph)
    write_document(ProblemFile(graph=str(graph), groups=2, cluster="p100x2", optimizer="adam"), path)


SPECIMENS = {
    "graph": Specimen("x.graph.json", text(GRAPH), use_graph, JSON),
    "timed graph": Specimen("x.graph.json", text(TIMED_GRAPH), use_graph, JSON),
    "grouped graph": Specimen("x.graph.json", lambda path: save_graph(tie_ops(step(), 2), path), use_graph, JSON),
    "compressed graph": Specimen("x.graph.json.gz", lambda path: save_graph(step(), path), use_graph, GZIP),
    "cluster": Specimen("x.cluster.toml", text(CLUSTER), use_cluster, TOML),
    "cluster in JSON": Specimen(
        "x.cluster.json", lambda path: save_cluster(load_cluster("v100x2"), path), use_cluster, JSON
    ),
    "plan": Specimen("x.plan.json", make_plan, use_plan, JSON),
    "exported plan": Specimen("x.plan.json", make_row_plan, use_export, JSON),
    "whole plan": Specimen("x.plan.json", make_whole_plan, use_plan, JSON),
    "plan by degrees": Specimen("x.plan.json", text(PLAN_BY_DEGREES), use_plan, JSON),
    "pipedream": Specimen("x.txt", text(PIPEDREAM), use_graph, TEXT),
    "dapple": Specimen("x.txt", text(DAPPLE), use_graph, TEXT),
    "msr": Specimen("x.json", text(WORKLOAD), use_workload, JSON),
    "own onnx": Specimen("x.onnx", lambda path: save_onnx(step(), path), use_graph, ONNX),
    "plain onnx": Specimen("x.onnx", make_onnx_model, use_graph, ONNX),
    "fused onnx": Specimen("x.onnx", make_fused_onnx_model, use_graph, ONNX),
    "chakra": Specimen("x.et", make_trace, use_graph, CHAKRA),
    "symbolic chakra": Specimen("x.et", make_symbolic_trace, use_graph, CHAKRA),
    "observed step": Specimen("x.json", lambda path: trace(path, *NODES), use_graph, JSON),
    "timeline": Specimen("x.json", lambda path: timeline(path, *CALLS, *KERNELS), use_timeline, JSON),
    "efficiency": Specimen("x.toml", make_efficiencies, use_cost_model("roofline:efficiency="), TOML),
    "times": Specimen("x.json", make_times, use_cost_model("recorded:file="), JSON),
    "profile": Specimen("x.profile.json", make_profile, use_cost_model("profiled:file="), JSON),
    "compressed profile": Specimen("x.profile.json.gz", make_profile, use_cost_model("profiled:file="), GZIP),
    "split": Specimen("x.toml", text('"gpu:0" = ["layers.0/mm*", "*update"]\n1 = ["*"]\n'), use_split, TOML),
    "split by ids": Specimen(
        "x.json", text({"fpgas": [{"nodes": [1, 7]}, {"nodes": []}], "cpus": [{"nodes": [2]}]}), use_ids, JSON
    ),
    "journal": Specimen("x.jsonl", make_journal, use_journal, JSON),
    "evaluation": Specimen(
        "evaluation.json", lambda path: write_document(EvaluationFile(records=(RECORD,)), path), use_evaluation, JSON
    ),
    "problem": Specimen("x.problem.json", make_problem, lambda path: place(timed(load_problem(path))), JSON),
    "submission": Specimen("submission.toml", make_submission, use_submission, TOML),
    "submitted records": Specimen("records.jsonl", make_submission, use_submission, JSON),
    "recipe": Specimen("x.toml", make_recipe, use_recipe, TOML),
    "weights": Specimen("policy.safetensors", make_policy, use_policy, TENSORS),
    "meta": Specimen("meta.json", make_policy, use_policy, JSON),
}
