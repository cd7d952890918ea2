"""Graphs, clusters and suites by text: a file, a name with knobs, or a function in a user's file."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from graphs.cluster import Cluster
from graphs.devices.cluster_file import load_cluster_file
from graphs.files.graph_source import Graph, GraphSource, graph_source
from graphs.files.suites import suite_specs
from graphs.foundation import by_name
from graphs.foundation.errors import InputError, check_distinct
from graphs.foundation.knobs import knobs_of
from graphs.foundation.progress import progress
from graphs.op_graph import OpGraph
from graphs.op_graph.optimizers import check_optimizer
from graphs.op_groups.grouping import MODULES, Grouping, check_groups, tie_ops
from graphs.op_groups.whole_modules import tie_modules
from graphs.problem import Problem
from graphs.transforms.mixed_precision import AS_IT_IS

CLUSTER_FILES = (".toml", ".json")
_COUNTED = re.compile(r"(\w+)x(\d+)")


def load_graph(
    what: Graph | GraphSource, *, groups: Grouping = None, training: bool = True, with_law: bool = False
) -> OpGraph:
    """The graph that is meant by a graph, a graph file, a family spec, "file.py:callable", or a module with its inputs.

    A model is captured as a whole training step, or with `training=False` as its forward pass, unless that was done
    before and nothing has changed since (`graphs.capture.cache`), and again with another batch for a graph `with_law`;
    a graph and a graph file (`graphs.formats.graph_files`) are taken as they are. With `groups`, the ops are then tied
    into that number of op groups, as by `tie_ops`, or those of each module of a model, as by `tie_modules`.

    Raises InputError as `graph_source` does, and for a model that cannot be captured.
    """
    check_groups(groups)
    source = graph_source(what)
    if groups == MODULES:
        source.check_has_modules()
    return tied(source.graph(training=training, with_law=with_law), source, groups)


def tied(graph: OpGraph, source: GraphSource, groups: Grouping) -> OpGraph:
    """The graph of a source with its ops tied into a number of groups, those of each module, or, with None, as it is.

    Raises InputError for modules of a graph whose model is not known.
    """
    if groups == MODULES:
        return tie_modules(graph, source.module())
    return graph if groups is None else tie_ops(graph, groups)


def load_cluster(what: Cluster | str | os.PathLike[str]) -> Cluster:
    """The cluster that is meant by a cluster, a cluster file, or a spec such as "p100:devices=4", in short "p100x4".

    "file.py:function:knob=3" is a function in a user's file. Devices of the catalogue, such as "a100x2" or
    "rtx4090+rtx3060", are on the links of their boards, and the cluster's name says which. Raises InputError for an
    unknown name.
    """
    if isinstance(what, Cluster):
        return what
    if not isinstance(what, str | os.PathLike):
        raise InputError(f"expected a cluster, a cluster file or a preset such as p100x4, got {type(what).__name__}")
    text = os.fspath(what)
    if text.endswith(CLUSTER_FILES):
        return load_cluster_file(Path(text))
    spec = _in_full(text)
    if not by_name.own(spec) and not by_name.exists("graphs.clusters", spec.partition(":")[0]):
        from graphs.devices.clusters_of_devices import cluster_of_devices  # with the catalogue, which few names need

        if not (found := cluster_of_devices(text)):
            known = by_name.unknown("cluster", spec.partition(":")[0], by_name.names("graphs.clusters"))
            raise InputError(f"{known}; and devices, such as a100x2 or rtx4090+rtx3060, are a cluster as well")
        spec = found
    cluster: Cluster = by_name.build("graphs.clusters", spec)
    return cluster


def load_clusters(clusters: Iterable[Cluster | str | os.PathLike[str]]) -> list[Cluster]:
    """Several clusters, as `load_cluster` loads them. Raises InputError, too, for one that is given twice."""
    loaded = [load_cluster(what) for what in clusters]
    check_distinct("cluster", [(cluster.name, cluster.fingerprint) for cluster in loaded])
    return loaded


def load_suite(
    names: str, *, groups: Grouping = 128, optimizer: str = "adam", with_law: bool = False, precision: str = AS_IT_IS
) -> list[Problem]:
    """The problems of a suite or several, their ops tied into op groups, and `with_law` as `load_graph` has it.

    Raises InputError for an unknown suite.
    """
    pairs = suite_specs(names)
    check_optimizer(optimizer)
    clusters = {spec: load_cluster(spec) for spec in dict.fromkeys(cluster for _, cluster in pairs)}
    wanted = progress(dict(pairs), "capturing models", unit="model", leave=False)
    graphs = {
        spec: load_graph(graph_source(spec).in_precision(precision), groups=groups, with_law=with_law)
        for spec in wanted
    }
    return [Problem(graphs[graph], clusters[cluster], optimizer) for graph, cluster in pairs]


def _in_full(cluster: str) -> str:
    """The spec of a short form, "v100:devices=4" of "v100x4", if it has that knob; any other text as it is."""
    counted = _COUNTED.fullmatch(cluster)
    if counted is None or cluster in (known := by_name.names("graphs.clusters")) or counted[1] not in known:
        return cluster
    knobs = knobs_of(by_name.module("graphs.clusters", counted[1]).build)
    return f"{counted[1]}:devices={counted[2]}" if "devices" in knobs else cluster
