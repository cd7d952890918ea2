"""An expert's split, read from a file: which ops go to which device.

Either the JSON of "Efficient Algorithms for Device Placement of DNN Graph Operators", which lists the ids of nodes per
accelerator and CPU, `{"fpgas": [{"nodes": [1, 2]}, ...], "cpus": [{"nodes": []}]}`, or devices with patterns of op
names, in JSON or TOML, `"gpu:0" = ["embedding*", "layers.0.*"]`; "0" is the first device, whatever its name. Ops that
the file does not name go where the rest of their unit goes, as a backward op goes with its forward op.
"""

import re
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from envs.plans.placer_result import PlacerResult
from graphs.foundation.by_name import unknown
from graphs.foundation.documents import read_document
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.problem import Problem

BY_REQUEST = True  # it needs a file
REMEDY = 'write one, such as {"gpu:0": ["embedding*"], "gpu:1": ["*"]}'


class SplitDevice(msgspec.Struct, frozen=True):
    """One device of a released split."""

    nodes: list[int]


class Split(msgspec.Struct, frozen=True):
    """A released split."""

    fpgas: list[SplitDevice] = []
    cpus: list[SplitDevice] = []


@dataclass(frozen=True)
class Expert:
    """A split in a file."""

    split: str

    @property
    def name(self) -> str:
        """Its spec."""
        return f"expert:{self.split}"

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002 - nothing to search
        """Without any simulation.

        Raises InputError, naming the file and the op or device, for a split that is not one of this problem.
        """
        path = Path(self.split)
        content: dict[str, Any] = read_document(path, dict[str, Any], version=1, remedy=REMEDY)
        devices = _by_ids if content.keys() <= {"fpgas", "cpus", "maxLoad"} else _by_patterns
        per_op = devices(problem, content, path)
        return PlacerResult.of_units(problem, _of_units(problem, per_op, path), self.name, seed)


build = Expert


def _by_ids(problem: Problem, content: dict[str, Any], path: Path) -> Ints:
    """(ops,) devices, or -1; a node's id ends the name of its op."""
    try:
        split = msgspec.convert(content, Split)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {error}") from error
    of_id = {name.rpartition(".")[2]: op for op, name in enumerate(problem.graph.names)}
    per_op = np.full(len(problem.graph), -1)
    for what, machines, wanted in (("accelerators", split.fpgas, False), ("CPUs", split.cpus, True)):
        there = np.flatnonzero(problem.cluster.is_cpu == wanted).tolist()
        used = [machine for machine in machines if machine.nodes]
        if len(used) > len(there):
            raise InputError(f"{path}: {len(used)} {what} for a cluster with {len(there)}; add devices or take another")
        for device, machine in zip(there, used, strict=False):
            for node in machine.nodes:
                if str(node) not in of_id:
                    raise InputError(f"{path}: graph {problem.graph.name!r} has no node {node}; remove it")
                per_op[of_id[str(node)]] = device
    return per_op


def _by_patterns(problem: Problem, content: dict[str, Any], path: Path) -> Ints:
    """(ops,) devices, or -1; of several patterns that match an op the first counts."""
    index = {str(number): number for number in range(len(problem.cluster))}
    index |= {device.name: number for number, device in enumerate(problem.cluster.devices)}
    per_op = np.full(len(problem.graph), -1)
    for device, patterns in content.items():
        if device not in index:
            raise InputError(f"{path}: {unknown('device', device, index)}")
        if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
            raise InputError(f"{path}: {device}: expected a list of patterns of op names, such as ['embedding*']")
        for pattern in patterns:
            matches = re.compile(translate(pattern)).match
            found = np.array([matches(name) is not None for name in problem.graph.names])
            if not found.any():
                raise InputError(
                    f"{path}: {device}: no op of {problem.graph.name!r} is named like {pattern!r}; change it"
                )
            per_op[found & (per_op < 0)] = index[device]
    return per_op


def _of_units(problem: Problem, per_op: Ints, path: Path) -> Ints:
    """(units,) devices; the ops of a unit that the file names must agree."""
    graph, named = problem.graph, np.flatnonzero(per_op >= 0)
    placement = np.full(graph.num_units, -1)
    placement[graph.units[named[::-1]]] = per_op[named[::-1]]  # of the ops of a unit, the first counts
    if len(apart := named[placement[graph.units[named]] != per_op[named]]):
        raise InputError(
            f"{path}: op {graph.names[apart[0]]!r} is not with the ops that must share its device; put it there"
        )
    if len(left := np.flatnonzero(placement[graph.units] < 0)):
        raise InputError(f"{path}: no device for op {graph.names[left[0]]!r}; add a last pattern '*' to one")
    return placement
