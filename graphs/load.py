"""Graphs, clusters and suites by text: a file, a name with knobs, or a function in a user's file."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from graphs.batch import check_samples
from graphs.batch_law import BatchLaw
from graphs.capture.cache import captured, is_kept, kept, warned
from graphs.capture.training_step import training_step
from graphs.cluster import Cluster
from graphs.cluster_file import load_cluster_file
from graphs.formats import name_of
from graphs.formats.msr import is_workload, load_workload
from graphs.formats.onnx import load_onnx
from graphs.formats.pipedream import load_layer_profile
from graphs.formats.pytorch_traces import what_it_is
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.knobs import knobs_of
from graphs.foundation.progress import progress, waiting
from graphs.graph_file import load_graph_file
from graphs.grouping import MODULES, Grouping, check_groups, tie_ops
from graphs.op_graph import OpGraph
from graphs.problem import Problem, check_optimizer
from graphs.suites import suite_specs
from graphs.whole_modules import tie_modules

Graph = OpGraph | str | os.PathLike[str]  # a graph, or what names one
GRAPH_FILES = (".json", ".json.gz", ".txt", ".onnx", ".et")
_GRAPHS = (
    f"a graph is also given as a file, *.graph.json or {', '.join(f'*{ending}' for ending in GRAPH_FILES)}, or as "
    "file.py:callable"
)
CLUSTER_FILES = (".toml", ".json")
_OF_BATCH = re.compile(r"(.+\.(?:json|json\.gz|txt)):batch=(\d+)")
_COUNTED = re.compile(r"(\w+)x(\d+)")


def load_graph(what: Graph, *, groups: Grouping = None, training: bool = True, with_law: bool = False) -> OpGraph:
    """The graph that is meant by a graph, a graph file, a family spec, or "file.py:callable".

    Graph files are our own, layer profiles of PipeDream or DAPPLE (`*.txt`), workloads of "Efficient Algorithms for
    Device Placement" (`*.json`), ONNX models (`*.onnx`), which are forward passes, or Chakra execution traces
    (`*.et`), which are what one rank ran; "model.onnx:batch=8" gives a size to what the model only names. A graph whose
    file gives it no name is called by the file, or by its folder if the file is called `graph.txt` or the like.

    A model is captured as a whole training step, or with `training=False` as its forward pass, unless that was done
    before and nothing has changed since (`graphs.capture.cache`); a graph and a graph file are taken as they are. A
    model is captured again, with another batch, for a graph `with_law`: it then knows exactly what does not grow with
    the batch (`graphs.capture.second_batch`). "graph.txt:batch=32" says how many samples a step of a file has. With
    `groups`, the ops are then tied into that number of op groups, as by `tie_ops`, or those of each module of a model,
    as by `tie_modules`.

    Raises InputError as `check_graph` does, and for a model that cannot be captured.
    """
    check_groups(groups)
    if groups == MODULES:
        check_modules(what)
    graph = what if isinstance(what, OpGraph) else _named(_text(what), training, with_law)
    if groups == MODULES:
        from graphs.capture.examples import example_of  # with torch, seconds to import

        return tie_modules(graph, example_of(_text(what)).module)
    return graph if groups is None else tie_ops(graph, groups)


def check_modules(what: Graph) -> None:
    """Raise InputError for a graph, which has no modules that ops could be tied by."""
    if isinstance(what, OpGraph) or is_file(_text(what)):
        name = what.name if isinstance(what, OpGraph) else _text(what)
        raise InputError(
            f"{name}: a graph has no modules to tie its ops by; give the model that it was captured from, or a number "
            "of op groups"
        )


def check_graph(what: Graph) -> None:
    """Check all that can be checked of a graph without capturing a model.

    Raises InputError for an unknown name, a file that is missing or damaged, and a knob that is unknown or has a wrong
    value.
    """
    _opened(what)


def check_graphs(graphs: Iterable[Graph]) -> None:
    """Check several graphs as `check_graph` does. Raises InputError, too, for one that is given twice."""
    opened_graphs(graphs)


def opened_graphs(graphs: Iterable[Graph]) -> list[OpGraph | str]:
    """Several graphs, checked as by `check_graphs`; those of files, which that takes loading, are loaded."""
    graphs = list(graphs)
    given = [(g.name, g.fingerprint) if isinstance(g, OpGraph) else (_text(g), "") for g in graphs]
    _check_distinct("graph", given)
    return [_opened(graph) for graph in graphs]


def load_cluster(what: Cluster | str | os.PathLike[str]) -> Cluster:
    """The cluster that is meant by a cluster, a cluster file, or a spec such as "p100:devices=4", in short "p100x4".

    "file.py:function:knob=3" is a function in a user's file. Raises InputError for a name that is none of these.
    """
    if isinstance(what, Cluster):
        return what
    if not isinstance(what, str | os.PathLike):
        raise InputError(f"expected a cluster, a cluster file or a preset such as p100x4, got {type(what).__name__}")
    text = os.fspath(what)
    if text.endswith(CLUSTER_FILES):
        return load_cluster_file(Path(text))
    spec = _in_full(text)
    if not by_name.own(spec) and spec.partition(":")[0] not in by_name.names("graphs.clusters"):
        from graphs.suggested_clusters import suggested  # with the catalogue, which few names need

        if meant := suggested(text):
            raise InputError(f"unknown cluster {text!r}: these are devices; their cluster is {meant!r}, or a file")
    cluster: Cluster = by_name.build("graphs.clusters", spec)
    return cluster


def load_clusters(clusters: Iterable[Cluster | str | os.PathLike[str]]) -> list[Cluster]:
    """Several clusters, as `load_cluster` loads them. Raises InputError, too, for one that is given twice."""
    loaded = [load_cluster(what) for what in clusters]
    _check_distinct("cluster", [(cluster.name, cluster.fingerprint) for cluster in loaded])
    return loaded


def problem_in_file(what: str | os.PathLike[str]) -> Problem | None:
    """The problem in a file that lists devices in addition to its graph, as workloads do; None for anything else."""
    path = Path(what)
    return load_workload(path).problem(name_of(path)) if is_workload(path) else None


def load_suite(names: str, *, groups: Grouping = 128, optimizer: str = "adam", with_law: bool = False) -> list[Problem]:
    """The problems of a suite or several, their ops tied into op groups, and `with_law` as `load_graph` has it.

    Raises InputError for an unknown suite.
    """
    pairs = suite_specs(names)
    check_optimizer(optimizer)
    clusters = {spec: load_cluster(spec) for spec in dict.fromkeys(cluster for _, cluster in pairs)}
    wanted = progress(dict(pairs), "capturing models", unit="model", leave=False)
    graphs = {spec: load_graph(spec, groups=groups, with_law=with_law) for spec in wanted}
    return [Problem(graphs[graph], clusters[cluster], optimizer) for graph, cluster in pairs]


def _text(what: Graph) -> str:
    """The text of a path or a spec."""
    if isinstance(what, str | os.PathLike):
        return os.fspath(what)
    raise InputError(
        f"expected a graph, a graph file, a family such as rnnlm:layers=4 or file.py:callable, got "
        f"{type(what).__name__}; graphs.capture.forward.capture makes a graph of a torch module"
    )


def _check_distinct(what: str, given: list[tuple[str, str]]) -> None:
    """Raise InputError for two of the same name and content."""
    twice = [name for (name, _), count in Counter(given).items() if count > 1]
    if twice:
        raise InputError(f"{what} {twice[0]!r} is given twice; give each {what} once")


def _in_full(cluster: str) -> str:
    """The spec of a short form, "v100:devices=4" of "v100x4", if it has that knob; any other text as it is."""
    counted = _COUNTED.fullmatch(cluster)
    if counted is None or cluster in (known := by_name.names("graphs.clusters")) or counted[1] not in known:
        return cluster
    knobs = knobs_of(by_name.module("graphs.clusters", counted[1]).build)
    return f"{counted[1]}:devices={counted[2]}" if "devices" in knobs else cluster


def _opened(what: Graph) -> OpGraph | str:
    """A graph as it is, the graph of a file, or the name of a model, which is checked."""
    if isinstance(what, OpGraph):
        return what
    text = _text(what)
    if is_file(text):
        return _from_file(text)
    _check_model(text)
    return text


def _named(what: str, training: bool, with_law: bool) -> OpGraph:
    if is_file(what):
        return _from_file(what)
    if (graph := kept(what, training=training, with_law=with_law)) is not None:
        return graph
    if not with_law:
        _check_model(what)
        with waiting(f"capturing {what}"):
            return captured(what, partial(_captured, what, training), training=training)
    with warned() as before:
        graph = _named(what, training, with_law=False)
    from graphs.capture.second_batch import with_law as of_two_batches  # likewise

    again = partial(_captured, what, training)
    with waiting(f"capturing {what} with another batch"):
        return captured(what, lambda: of_two_batches(graph, again), training=training, with_law=True, before=before)


def _captured(what: str, training: bool, samples: int = 0) -> OpGraph:
    """A model, captured now, with its own or another number of samples."""
    from graphs.capture.forward import traced_model  # with torch, seconds to import: once the name is known

    traced = traced_model(what, samples) if samples else traced_model(what)
    if training and not samples:  # the second of two captures need not say so again
        traced.warn_of_eval()
    forward = traced.build()
    return training_step(forward) if training else forward


def is_file(what: str) -> bool:
    """Whether the text names a graph file, and not a model."""
    return what.endswith(GRAPH_FILES) or ".onnx:" in what or _OF_BATCH.fullmatch(what) is not None


def _from_file(what: str) -> OpGraph:
    """Our own files, and those that other systems write."""
    if ".onnx:" in what:
        name, _, text = what.rpartition(":")
        sizes = _sizes(what, text)
        return _of_samples(load_onnx(Path(name), sizes=sizes), sizes.get("batch", 0))
    if named := _OF_BATCH.fullmatch(what):
        check_samples(samples := int(named[2]))
        return _of_samples(_from_file(named[1]), samples)
    path = Path(what)
    if path.suffix == ".txt":
        return load_layer_profile(path).graph()
    if path.suffix == ".onnx":
        return load_onnx(path)
    if path.suffix == ".et":
        from graphs.formats.chakra import load_chakra  # with protobuf, which few files need

        return load_chakra(path)
    if is_workload(path):
        return load_workload(path).graph(name_of(path))
    try:
        return load_graph_file(path)
    except InputError as error:
        if sentence := what_it_is(path):
            raise InputError(sentence) from error
        raise


def _of_samples(graph: OpGraph, samples: int) -> OpGraph:
    """The graph, whose file does not say how many samples it has, with what the user says; 0 for nothing."""
    law = graph.batch_law or BatchLaw()
    if law.samples and samples not in (0, law.samples):
        raise InputError(f"a step of {graph.name!r} has {law.samples} samples, by its file, and not {samples}")
    return replace(graph, batch_law=replace(law, samples=samples)) if samples else graph


def _sizes(what: str, text: str) -> dict[str, int]:
    """The sizes of named dimensions in "model.onnx:batch=8,tokens=128"."""
    try:
        sizes = {name: int(size) for name, size in by_name.parse(f":{text}")[1].items()}
    except ValueError:
        sizes = {}
    if not sizes or min(sizes.values()) < 1:
        raise InputError(f"{what!r}: expected sizes as model.onnx:batch=8, got {text!r}")
    return sizes


def _check_model(what: str) -> None:
    """What can be checked of a family spec, or of a function in a user's file, which is not run."""
    if own := by_name.own(what):
        if not os.path.isfile(own.file):  # noqa: PTH113 - a name may be too long for a path
            raise InputError(f"{own.file}: no such Python file; expected path/to/file.py:callable")
        return
    name, families = what.partition(":")[0], by_name.names("graphs.families")
    if name not in families:
        if what and os.path.exists(what):  # noqa: PTH110 - likewise
            kind = "a folder" if Path(what).is_dir() else "no graph file by its name"
            raise InputError(f"{what} is {kind}; {_GRAPHS}")
        raise InputError(f"{by_name.unknown('model family', name, families)}; {_GRAPHS}")
    if not is_kept(what):  # to check its knobs takes the seconds that torch takes to be imported
        by_name.check("graphs.families", what)
