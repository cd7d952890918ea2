"""A problem by its specs, `*.problem.json`: enough to build it again, beside a plan for it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from graphs.errors import InputError
from graphs.load import load_cluster, load_graph
from graphs.problem import Problem


class ProblemFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the file holds."""

    graph: str  # a family spec, a graph file, or file.py:callable
    groups: int | None  # op groups, or none for single ops
    cluster: str  # a preset or a cluster file
    optimizer: str


def save_problem(content: ProblemFile, path: Path) -> None:
    """Write the specs as JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def load_problem(path: Path) -> Problem:
    """Build the problem. Raises InputError, naming file and field, if it is damaged or names what does not exist."""
    try:
        spec = msgspec.json.decode(path.read_bytes(), type=ProblemFile)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InputError(f"{path}: {error}") from error
    return Problem(load_graph(spec.graph, groups=spec.groups), load_cluster(spec.cluster), spec.optimizer)
