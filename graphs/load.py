"""Graphs and clusters by text: a file, a name with knobs, or a function in a user's file."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from graphs import by_name
from graphs.cluster import Cluster
from graphs.cluster_file import load_cluster_file
from graphs.errors import InputError
from graphs.formats.msr import is_workload, load_workload
from graphs.formats.onnx import load_onnx
from graphs.formats.pipedream import load_layer_profile
from graphs.graph_file import load_graph_file
from graphs.grouping import tie_ops
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from graphs.training_step import training_step

GRAPH_FILES = (".json", ".json.gz", ".txt", ".onnx")
CLUSTER_FILES = (".toml", ".json")
_COUNTED = re.compile(r"(\w+)x(\d+)")


def load_graph(what: OpGraph | str, *, groups: int | None = None, training: bool = True) -> OpGraph:
    """The graph that is meant by a graph, a graph file, a family spec, or "file.py:callable".

    Graph files are our own, layer profiles of PipeDream or DAPPLE (`*.txt`), workloads of "Efficient Algorithms for
    Device Placement" (`*.json`), or ONNX models (`*.onnx`), which are forward passes; "model.onnx:batch=8" gives a
    size to what the model only names.

    A model is captured as a whole training step, or with `training=False` as its forward pass; a graph and a graph
    file are taken as they are. With `groups`, the ops are then tied into at most that many op groups.
    Raises InputError for a name that is none of these, and whatever the named thing itself is refused for.
    """
    graph = what if isinstance(what, OpGraph) else _named(what, training)
    return graph if groups is None else tie_ops(graph, groups)


def load_cluster(what: Cluster | str) -> Cluster:
    """The cluster that is meant by a cluster, a cluster file, or a spec such as "p100:devices=4", in short "p100x4".

    Raises InputError for a name that is none of these.
    """
    if isinstance(what, Cluster):
        return what
    if what.endswith(CLUSTER_FILES):
        return load_cluster_file(Path(what))
    cluster: Cluster = by_name.build("graphs.clusters", _in_full(what))
    return cluster


def problem_in_file(what: str) -> Problem | None:
    """The problem in a file that lists devices beside its graph, as workloads do; None for anything else."""
    path = Path(what)
    if path.suffix != ".json" or not is_workload(path):
        return None
    return load_workload(path).problem(path.stem)


def split(families: Sequence[str], which: Literal["train", "test"]) -> list[str]:
    """The specs of the families' training graphs, or of the graphs kept aside for tests, as the families list them."""
    key = which.upper()
    return [f"{name}:{knobs}" for name in families for knobs in by_name.constants("graphs.families", name)[key]]


def _in_full(cluster: str) -> str:
    """The spec of what is told in short, "v100:devices=4" of "v100x4", if it has that knob; any other text as it is."""
    counted = _COUNTED.fullmatch(cluster)
    if counted is None or cluster in (known := by_name.names("graphs.clusters")) or counted[1] not in known:
        return cluster
    knobs = inspect.signature(by_name.module("graphs.clusters", counted[1]).build).parameters
    return f"{counted[1]}:devices={counted[2]}" if "devices" in knobs else cluster


def _named(what: str, training: bool) -> OpGraph:
    if what.endswith(GRAPH_FILES):
        return _from_file(Path(what))
    if ".onnx:" in what:
        path, _, sizes = what.rpartition(":")
        return load_onnx(Path(path), sizes=_sizes(what, sizes))
    forward = _captured(what)
    return training_step(forward) if training else forward


def _from_file(path: Path) -> OpGraph:
    """Our own files, and those that other systems write."""
    if path.suffix == ".txt":
        return load_layer_profile(path).graph()
    if path.suffix == ".onnx":
        return load_onnx(path)
    return load_workload(path).graph(path.stem) if is_workload(path) else load_graph_file(path)


def _sizes(what: str, text: str) -> dict[str, int]:
    """The sizes of named dimensions in "model.onnx:batch=8,tokens=128"."""
    try:
        return {name: int(size) for name, size in by_name.parse(f":{text}")[1].items()}
    except ValueError:
        raise InputError(f"{what!r}: expected sizes as model.onnx:batch=8, got {text!r}") from None


def _captured(what: str) -> OpGraph:
    """The forward pass of a model. Imports torch, which takes seconds: only here, and only if the name is known."""
    if ".py:" in what:
        from graphs.capture import capture_file

        return capture_file(what)
    name, families = what.partition(":")[0], by_name.names("graphs.families")
    if name not in families:
        sentence = by_name.unknown("model family", name, families)
        raise InputError(f"{sentence}; a graph is also given as a *.graph.json file or as file.py:callable")
    from graphs.capture import capture

    module, args = by_name.build("graphs.families", what)
    return capture(module, args, name=what)
