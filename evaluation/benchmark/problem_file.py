"""Frozen problems on disk: an index, and the graphs and clusters that its problems share, each named by its hash.

    benchmark/placelab-bench-1/problems.json
    benchmark/placelab-bench-1/graphs/3f2a...graph.json.gz
    benchmark/placelab-bench-1/clusters/91bc...cluster.json

Files are as `placelab capture` and `placelab.graphs.cluster_file` write them. A problem is refused, with what to do, if
its graph or cluster is not what was frozen, or if this placelab computes other op times from them or simulates by other
rules: nothing that has changed counts as a result of this benchmark.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from envs.costs.costs import costs_of, timed
from envs.simulation.simulator import RULES
from graphs.cluster import Cluster
from graphs.devices.cluster_file import load_cluster_file
from graphs.formats.graph_file import load_graph_file
from graphs.foundation.by_name import specs, unknown
from graphs.foundation.code_in_files import named_in_file
from graphs.foundation.documents import decompressed, read_document
from graphs.foundation.errors import InputError, located
from graphs.foundation.files import check_links
from graphs.op_graph import OpGraph
from graphs.op_groups.grouping import Grouping
from graphs.problem import Problem
from graphs.runtime import IDEAL, LONGEST_PATH, runtime_of
from graphs.transforms.mixed_precision import AS_IT_IS

NAME = "placelab-bench-1"
FOLDER = Path(__file__).resolve().parents[2] / "benchmark" / NAME  # in the repository, not in the wheel
INDEX = "problems.json"
VERSION = 1
ADAM = "adam"
NO_RESERVE = "none"
ALL = 0.0  # memory as the cluster has it
DEFAULTS = {
    "optimizer": ADAM, "runtime": IDEAL.name, "order": LONGEST_PATH.name, "precision": AS_IT_IS, "reserve": NO_RESERVE,
    "room": ALL,
}  # fmt: skip
DIGITS = 16  # of a hash, in the name of a file


class FrozenProblem(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One problem."""

    name: str  # graph@cluster
    suites: tuple[str, ...]
    graph: str  # sha256 of its file, decompressed
    cluster: str  # sha256 of its file
    op_seconds: str  # sha256 of (ops, devices) seconds as the cost model gives them, little-endian float64
    cost_model: str
    made_from: tuple[str, str]  # specs of the graph and the cluster
    groups: Grouping  # into which ops were tied before it was frozen
    units: int  # what is decided
    devices: int
    optimizer: str = ADAM
    runtime: str = IDEAL.name
    order: str = LONGEST_PATH.name  # of older files, which name no runtime
    whole_plans: bool = False  # whether plans may divide the batch
    precision: str = AS_IT_IS  # that of the model; its graph knows it
    reserve: str = NO_RESERVE  # of the memory of GPUs; the cluster knows it, and the next
    room: float = ALL  # memory over the least that a plan needs

    def __post_init__(self) -> None:
        for key, default in DEFAULTS.items():
            if getattr(self, key) == default:  # msgspec leaves out a default only if it is the same object
                msgspec.structs.force_setattr(self, key, default)

    @property
    def sha256(self) -> str:
        """Of all that defines it: a plan is for the problem of this hash."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


class IndexFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the index holds."""

    schema: Literal["placelab.benchmark"] = "placelab.benchmark"
    version: int = VERSION
    name: str
    rules: int  # of the simulator
    made_on_request: tuple[str, ...] = ()  # graphs that are left out of the repository: `freeze-large` makes them
    problems: tuple[FrozenProblem, ...]


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A benchmark that was frozen, in its folder."""

    folder: Path
    index: IndexFile

    @classmethod
    def load(cls, folder: Path = FOLDER) -> Benchmark:
        """Raises InputError for a folder without one, and one for other rules of the simulator than this placelab's."""
        if not (folder / INDEX).is_file():
            raise InputError(
                f"{folder} holds no benchmark ({INDEX} is missing); it is in placelab's repository, not in its wheel: "
                "give the folder benchmark/placelab-bench-1, or -2, of a clone as `problems`"
            )
        check_links(folder)
        index = read_document(
            folder / INDEX, IndexFile, version=VERSION, remedy="`python -m evaluation.benchmark freeze`"
        )
        if index.rules != RULES:
            raise InputError(
                f"{index.name} was frozen for rules {index.rules} of the simulator, and this placelab simulates by "
                f"rules {RULES}: times would not compare; use the placelab that the benchmark came with"
            )
        return cls(folder, index)

    @cached_property
    def by_name(self) -> dict[str, FrozenProblem]:
        """Its problems."""
        return {each.name: each for each in self.index.problems}

    @property
    def suites(self) -> tuple[str, ...]:
        """The names of its suites."""
        return tuple(dict.fromkeys(suite for each in self.index.problems for suite in each.suites))

    def chosen(self, suite: str) -> list[FrozenProblem]:
        """The problems of a suite, of several with commas, or of "all". Raises InputError for an unknown one."""
        names = list(self.suites) if suite == "all" else specs(suite)
        for name in names:
            if name not in self.suites:
                raise InputError(unknown("suite", name, (*self.suites, "all")))
        return [each for each in self.index.problems if {*each.suites} & {*names}]

    def named(self, name: str) -> FrozenProblem:
        """The problem of a name. Raises InputError for an unknown one."""
        if name not in self.by_name:
            raise InputError(
                f"{self.index.name} has no problem {name!r}; it may be of another version of the benchmark"
            )
        return self.by_name[name]

    def problem(self, frozen: FrozenProblem) -> Problem:
        """The problem, as it was frozen.

        Raises InputError for a file or op times that are others by now, and for an index that names code.
        """
        graph = _graph(self.folder / graph_path(frozen.graph), frozen.graph)
        cluster = _cluster(self.folder / cluster_path(frozen.cluster), frozen.cluster)
        with located(f"{self.folder / INDEX}: {frozen.name}"):
            runtime, cost_model = runtime_of(frozen.runtime, order=frozen.order), named_in_file(frozen.cost_model)
            named_in_file(runtime.order.name)
        problem = timed(Problem(graph, cluster, frozen.optimizer, runtime=runtime), cost_model)
        if (found := seconds_sha256(problem)) != frozen.op_seconds:
            raise InputError(
                f"{frozen.name}: cost model {frozen.cost_model!r} gives other times than when {self.index.name} was "
                f"frozen ({found[:DIGITS]}, then {frozen.op_seconds[:DIGITS]}); use the placelab that it came with"
            )
        return problem


def suite_sha256(problems: Iterable[FrozenProblem]) -> str:
    """The hash of several problems, whatever their order."""
    return hashlib.sha256("\n".join(sorted(each.sha256 for each in problems)).encode()).hexdigest()


def seconds_sha256(problem: Problem) -> str:
    """The hash of what ops cost."""
    return hashlib.sha256(np.ascontiguousarray(costs_of(problem).op_seconds, "<f8").tobytes()).hexdigest()


def graph_path(sha256: str) -> str:
    """Where a graph is, in the folder of a benchmark."""
    return f"graphs/{sha256[:DIGITS]}.graph.json.gz"


def cluster_path(sha256: str) -> str:
    """Where a cluster is, in the folder of a benchmark."""
    return f"clusters/{sha256[:DIGITS]}.cluster.json"


def content_sha256(path: Path) -> str:
    """The hash of what a file holds, decompressed: how it is compressed does not matter. Raises InputError."""
    try:
        raw = path.read_bytes()
        return hashlib.sha256(decompressed(path, raw) if path.suffix == ".gz" else raw).hexdigest()
    except FileNotFoundError:
        raise InputError(
            f"{path} is missing; `python -m evaluation.benchmark freeze-large` makes the graphs that the repository "
            "leaves out, and git has the others"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}; `git checkout {path}` restores it") from error


@lru_cache(maxsize=2)  # problems of a graph follow one another
def _graph(path: Path, sha256: str) -> OpGraph:
    _check(path, sha256)
    return load_graph_file(path)


@lru_cache(maxsize=64)
def _cluster(path: Path, sha256: str) -> Cluster:
    _check(path, sha256)
    return load_cluster_file(path)


def _check(path: Path, sha256: str) -> None:
    if (found := content_sha256(path)) != sha256:
        raise InputError(
            f"{path} is not what was frozen: its hash is {found[:DIGITS]}, expected {sha256[:DIGITS]}; `git checkout "
            f"{path}` restores it"
        )


def in_order(problems: Sequence[FrozenProblem]) -> list[FrozenProblem]:
    """By graph, so that each graph is read once; problems of a graph in their order."""
    first = {each.graph: number for number, each in reversed(list(enumerate(problems)))}
    return sorted(problems, key=lambda each: first[each.graph])
