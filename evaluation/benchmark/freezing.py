"""Freezing: the problems of the suites are captured, and written as files; or captured again, to see what differs."""

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from envs.costs.costs import cost_model_of, load_cost_model, timed
from envs.simulation.simulator import RULES
from evaluation.benchmark.problem_file import (
    INDEX,
    NAME,
    Benchmark,
    FrozenProblem,
    IndexFile,
    cluster_path,
    content_sha256,
    graph_path,
    seconds_sha256,
)
from evaluation.benchmark.suites import SUITES, Suite
from graphs.cluster import Cluster
from graphs.devices.cluster_file import save_cluster
from graphs.devices.reserve import reserve_of
from graphs.files.graph_source import graph_source
from graphs.files.load import load_cluster, load_graph
from graphs.formats.graph_file import save_graph
from graphs.foundation.code_in_files import named_in_file
from graphs.foundation.documents import write_document
from graphs.foundation.errors import InputError
from graphs.foundation.progress import progress
from graphs.op_graph import OpGraph
from graphs.op_groups.grouping import Grouping
from graphs.problem import Problem
from graphs.runtime import IDEAL, runtime_of
from training.problems.scarce import least_fullness

MOST_UNITS = 20_000  # of a graph that is kept in the repository


@dataclass(frozen=True)
class Made:
    """What a problem is made from."""

    graph: str  # a spec
    cluster: str  # a spec
    groups: Grouping
    whole_plans: bool
    runtime: str  # a spec
    cost_model: str  # a spec; "" for the one that follows from the graph
    precision: str
    reserve: str
    room: float  # memory over what the plan needs that needs least; 0: as the cluster has it


def freeze(folder: Path, suites: Mapping[str, Suite] = SUITES, *, name: str = NAME) -> Benchmark:
    """Write a benchmark of the problems of suites.

    Raises InputError if another one is there, for two problems of the same name, for a runtime or a cost model that
    there is not, or that is the user's code, which files may not name, and for a cluster that the runtime does not
    run on.
    """
    for kind in suites.values():
        named_in_file(runtime_of(kind.runtime).order.name)
        if kind.cost_model:
            load_cost_model(named_in_file(kind.cost_model))
    if (folder / INDEX).exists():
        raise InputError(f"{folder} holds a frozen benchmark, which never changes; name another folder")
    for part in ("graphs", "clusters"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    wanted: dict[Made, list[str]] = defaultdict(list)
    for suite, kind in suites.items():
        for graph, cluster in kind.pairs():
            wanted[
                Made(
                    graph, cluster, kind.groups, kind.whole_plans, kind.runtime, kind.cost_model, kind.precision,
                    kind.reserve, kind.room,
                )
            ].append(suite)  # fmt: skip
    names = [f"{made.graph}@{made.cluster}" for made in wanted]
    if twice := [each for each in names if names.count(each) > 1]:
        raise InputError(
            f"two problems are called {twice[0]!r}, in other groups or of other plans; choose another cluster"
        )
    by_graph = sorted(wanted, key=lambda made: [each.graph for each in wanted].index(made.graph))
    found = {made: _frozen(made, wanted[made], folder) for made in progress(by_graph, "freezing", unit="problem")}
    left_out = {each.graph for each in found.values() if each.units > MOST_UNITS}
    index = IndexFile(
        name=name, rules=RULES, problems=tuple(found[made] for made in wanted), made_on_request=tuple(sorted(left_out))
    )
    write_document(index, folder / INDEX)
    (folder / ".gitignore").write_text("".join(f"/{graph_path(sha256)}\n" for sha256 in sorted(left_out)))
    return Benchmark(folder, index)


def make_left_out(benchmark: Benchmark) -> list[Path]:
    """Make the graphs that are left out of the repository. Raises InputError if they are captured otherwise by now."""
    made = []
    for sha256 in benchmark.index.made_on_request:
        frozen = next(each for each in benchmark.index.problems if each.graph == sha256)
        path = benchmark.folder / graph_path(sha256)
        if not path.exists():
            found, _ = _write_graph(_made(frozen), benchmark.folder)
            if found != sha256:
                raise InputError(
                    f"{frozen.name}: captured now, its graph is not the one that was frozen; "
                    f"capture it with the placelab and the torch that {benchmark.index.name} came with"
                )
        made.append(path)
    return made


def drifted(benchmark: Benchmark, problems: list[FrozenProblem]) -> Iterator[str]:
    """A sentence for each problem whose graph or cluster would be another one if it were captured now.

    The frozen problem stays as it is, and results on it stay comparable; a new version of the benchmark would differ.
    """
    with tempfile.TemporaryDirectory() as name:
        for part in ("graphs", "clusters"):
            (Path(name) / part).mkdir()
        for frozen in problems:
            now = _frozen(_made(frozen), list(frozen.suites), Path(name))
            parts = [part for part in ("graph", "cluster", "op_seconds") if getattr(now, part) != getattr(frozen, part)]
            if parts:
                yield (
                    f"{frozen.name} has drifted: captured now, its {' and its '.join(parts)} would differ from what "
                    f"{benchmark.index.name} froze; the frozen files count, and stay as they are"
                )


def _made(frozen: FrozenProblem) -> Made:
    runtime = runtime_of(frozen.runtime, order=frozen.order).name
    return Made(
        *frozen.made_from, frozen.groups, frozen.whole_plans, runtime, frozen.cost_model, frozen.precision,
        frozen.reserve, frozen.room,
    )  # fmt: skip


def _frozen(made: Made, suites: list[str], folder: Path) -> FrozenProblem:
    graph_hash, graph = _write_graph(made, folder)
    cluster = _cluster_of(made, graph)
    if not graph.precisions:  # the problem does not depend on peaks in others than single precision
        cluster = replace(cluster, devices=tuple(replace(each, flops_by_precision={}) for each in cluster.devices))
    unfinished = folder / "clusters" / "unfinished.cluster.json"
    save_cluster(cluster, unfinished)
    cluster_hash = content_sha256(unfinished)
    unfinished.replace(folder / cluster_path(cluster_hash))
    model = made.cost_model or cost_model_of(graph)
    problem = Problem(graph, cluster, runtime=runtime_of(made.runtime))
    return FrozenProblem(
        name=f"{made.graph}@{made.cluster}",
        suites=tuple(suites),
        graph=graph_hash,
        cluster=cluster_hash,
        op_seconds=seconds_sha256(timed(problem, model)),
        cost_model=model,
        made_from=(made.graph, made.cluster),
        groups=made.groups,
        units=graph.num_units,
        devices=len(cluster),
        runtime=problem.runtime.name,
        whole_plans=made.whole_plans,
        precision=made.precision,
        reserve=made.reserve,
        room=made.room,
    )


def _cluster_of(made: Made, graph: OpGraph) -> Cluster:
    """The cluster with what is reserved of its memory, and with room for few plans if that is asked for."""
    cluster = load_cluster(made.cluster)
    if (reserve := reserve_of(made.reserve)) is not None:
        cluster = reserve.on(cluster)
    if not made.room:
        return cluster
    problem = Problem(graph, cluster.unreserved, runtime=runtime_of(made.runtime))
    has = problem.cluster.memory_bytes
    room = has * least_fullness(problem, has, np.random.default_rng(0)) * made.room
    devices = zip(problem.cluster.devices, room.tolist(), strict=True)
    return replace(problem.cluster, devices=tuple(replace(each, memory_bytes=own) for each, own in devices))


def _write_graph(made: Made, folder: Path) -> tuple[str, OpGraph]:
    """The hash of the graph's file, which is written, and the graph."""
    is_ideal = runtime_of(made.runtime) == IDEAL
    return _written(made.graph, made.groups, made.whole_plans, is_ideal, made.precision, folder)


@lru_cache(maxsize=1)  # problems of a graph follow one another
def _written(
    spec: str, groups: Grouping, with_law: bool, is_ideal: bool, precision: str, folder: Path
) -> tuple[str, OpGraph]:
    graph = load_graph(graph_source(spec).in_precision(precision), groups=groups, with_law=with_law)
    if is_ideal:  # whose published problems were frozen before any of these was known
        nothing = np.zeros(0)
        graph = replace(graph, held=None, unsent_bytes=nothing, working_bytes=nothing)
    unfinished = folder / "graphs" / "unfinished.graph.json.gz"
    save_graph(graph, unfinished)
    sha256 = content_sha256(unfinished)
    unfinished.replace(folder / graph_path(sha256))
    return sha256, graph
