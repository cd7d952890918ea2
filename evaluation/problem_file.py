"""A problem by its specs, `*.problem.json`: enough to build it again, next to a plan for it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from envs.costs.costs import AUTO, timed
from graphs.foundation.documents import read_document
from graphs.foundation.files import write_whole
from graphs.load import load_cluster, load_graph
from graphs.problem import Problem


class ProblemFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the file holds."""

    graph: str  # a family spec, a graph file, or file.py:callable
    groups: int | None  # op groups, or none for single ops
    cluster: str  # a preset or a cluster file
    optimizer: str
    cost_model: str = AUTO


def save_problem(content: ProblemFile, path: Path) -> None:
    """Write the specs as JSON."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def load_problem(path: Path) -> Problem:
    """Build the problem. Raises InputError, naming file and field, if it is damaged or names what does not exist."""
    spec = read_document(path, ProblemFile, version=1, remedy="`placelab finetune` writes one")
    cluster = load_cluster(spec.cluster)
    return timed(Problem(load_graph(spec.graph, groups=spec.groups), cluster, spec.optimizer), spec.cost_model)
