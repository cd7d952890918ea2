"""Graphs and clusters by text: a file, a name with knobs, or a function in a user's file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from graphs import by_name
from graphs.cluster import Cluster
from graphs.cluster_file import load_cluster_file
from graphs.errors import InputError
from graphs.graph_file import load_graph_file
from graphs.grouping import group_ops
from graphs.op_graph import OpGraph
from graphs.training_step import training_step

GRAPH_FILES = (".json", ".json.gz")
CLUSTER_FILES = (".toml", ".json")


def load_graph(what: OpGraph | str, *, groups: int | None = None, training: bool = True) -> OpGraph:
    """The graph that is meant by a graph, a graph file, a family spec, or "file.py:callable".

    A model is captured as a whole training step, or with `training=False` as its forward pass; a graph and a graph
    file are taken as they are. With `groups`, the ops are then merged into at most that many op groups.
    Raises InputError for a name that is none of these, and whatever the named thing itself is refused for.
    """
    graph = what if isinstance(what, OpGraph) else _named(what, training)
    return graph if groups is None else group_ops(graph, groups)


def load_cluster(what: Cluster | str) -> Cluster:
    """The cluster that is meant by a cluster, a cluster file, or a spec such as "p100:devices=4".

    Raises InputError for a name that is none of these.
    """
    if isinstance(what, Cluster):
        return what
    if what.endswith(CLUSTER_FILES):
        return load_cluster_file(Path(what))
    cluster: Cluster = by_name.build("graphs.clusters", what)
    return cluster


def split(families: Sequence[str], which: Literal["train", "test"]) -> list[str]:
    """The specs of the families' training graphs, or of the graphs kept aside for tests, as the families list them."""
    key = which.upper()
    return [f"{name}:{knobs}" for name in families for knobs in by_name.constants("graphs.families", name)[key]]


def _named(what: str, training: bool) -> OpGraph:
    if what.endswith(GRAPH_FILES):
        return load_graph_file(Path(what))
    family = by_name.parse(what)[0] if ".py:" not in what else ""
    if family and family not in by_name.names("graphs.families") and Path(what).suffix:
        raise InputError(f"{what!r} is not a graph: expected *.graph.json, *.graph.json.gz, or file.py:callable")
    from graphs.capture import capture, capture_file  # imports torch: pay for that only if asked

    if not family:
        forward = capture_file(what)
    else:
        module, args = by_name.build("graphs.families", what)
        forward = capture(module, args, name=what)
    return replace(training_step(forward), name=forward.name) if training else forward
