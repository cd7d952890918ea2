"""A plan on disk, `*.plan.json`: devices by name, so that people can read it and edit it.

    {"schema": "placelab.plan", "version": 2, "plan": {"placement": {"layers.0": "gpu:0", "": "gpu:1"}}}

`plan` is what is decided, and `found` how it was found. An entry of `placement` is an op's name or a prefix of names
that ends before a "." or "/", as module paths do; if several cover an op the longest wins, and "" covers all. Ops that
are tied together go where the first of them goes. A file written by `save_plan` says more: which graph and cluster it
is for, which placer found it, and what it costs. Files of version 1 hold the placement and how it was found at the top.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from envs.placer_result import PlacerResult
from envs.plan import Plan
from envs.simulation.simulator import Outcome
from envs.timeline import Timeline
from graphs.cluster import Cluster
from graphs.foundation.by_name import unknown
from graphs.foundation.documents import read_document, write_document
from graphs.foundation.errors import InputError, located
from graphs.op_graph import OpGraph
from graphs.problem import Problem

VERSION = 2


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The graph or cluster that a plan was made for; a fingerprint left empty is not compared."""

    name: str = ""
    fingerprint: str = ""


class Predicted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the simulator said when the plan was saved."""

    step_seconds: float
    peak_bytes: dict[str, float]  # device name -> bytes


class PlanSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is decided."""

    placement: dict[str, str]  # op name or prefix -> device name


class Found(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the plan was found."""

    placer: str = ""
    seed: int = 0
    simulations: int = 0


class PlanFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a plan file holds; only the first two and `plan` are needed."""

    schema: Literal["placelab.plan"]
    version: int
    graph: Identity = Identity()
    cluster: Identity = Identity()
    plan: PlanSection
    found: Found = Found()
    predicted: Predicted | None = None


class FirstPlanFile(Found, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a plan file of version 1 holds: the placement and how it was found are at the top."""

    schema: Literal["placelab.plan"]
    version: int
    graph: Identity = Identity()
    cluster: Identity = Identity()
    predicted: Predicted | None = None
    placement: dict[str, str]


def save_plan(result: PlacerResult, problem: Problem, predicted: Outcome | Timeline, path: Path) -> None:
    """Write a plan and how it was found, each device once per module wherever all ops of the module share it.

    Raises InputError if it is not a plan for this problem, or places an op on several devices.
    """
    plan, graph, devices = result.plan, problem.graph, [device.name for device in problem.cluster.devices]
    plan.check_single(problem, "a plan file holds one per op")
    leaders = problem.units.first_op.tolist()
    content = PlanFile(
        schema="placelab.plan",
        version=VERSION,
        graph=Identity(graph.name, graph.fingerprint),
        cluster=Identity(problem.cluster.name, problem.cluster.fingerprint),
        plan=PlanSection(
            _compact([graph.names[op] for op in leaders], [devices[plan.devices[op][0]] for op in leaders])
        ),
        found=Found(result.placer, result.seed, result.simulations),
        predicted=Predicted(predicted.step_seconds, dict(zip(devices, predicted.peak_bytes.tolist(), strict=True))),
    )
    write_document(content, path)


def load_plan(path: Path, problem: Problem) -> PlacerResult:
    """The plan in a file, for a problem, and how it was found.

    Raises InputError, naming the file, if it is missing, damaged, or of another version; if it was made for another
    graph or cluster; if it names an unknown device or op, or leaves an op without a device.
    """
    remedy = f"`placelab place GRAPH --out {path}` writes one"
    earlier: dict[int, type[PlanFile | FirstPlanFile]] = {1: FirstPlanFile}
    content = read_document(path, PlanFile, version=VERSION, remedy=remedy, earlier=earlier)
    if isinstance(content, FirstPlanFile):
        placement, found = content.placement, Found(content.placer, content.seed, content.simulations)
    else:
        placement, found = content.plan.placement, content.found
    graph, cluster = problem.graph, problem.cluster
    _check_same("graph", content.graph, graph, path)
    _check_same("cluster", content.cluster, cluster, path)
    index = {device.name: position for position, device in enumerate(cluster.devices)}
    for device in placement.values():
        if device not in index:
            raise InputError(f"{path}: {unknown('device', device, index)}")
    leaders = [graph.names[op] for op in problem.units.first_op]
    _check_entries(placement, leaders, graph, path)
    per_unit = [index[_covering(placement, name, path)] for name in leaders]
    plan = Plan.of(np.array(per_unit)[graph.units])  # as the file says: what the graph forbids is refused, not moved
    with located(path):
        plan.check(problem)
    return PlacerResult(plan, found.placer, found.seed, found.simulations)


def _check_same(what: str, theirs: Identity, given: OpGraph | Cluster, path: Path) -> None:
    if theirs.fingerprint and theirs.fingerprint != given.fingerprint:
        other = " of the same name, but with other ops, costs or --groups" if theirs.name == given.name else ""
        raise InputError(
            f"{path}: this plan is for {what} {theirs.name!r} ({theirs.fingerprint}), given {given.name!r} "
            f"({given.fingerprint}){other}; to apply it all the same, remove the {what}'s fingerprint from the file"
        )


def _prefixes(name: str) -> list[str]:
    """The names that an entry which covers this op may have, from the shortest to the longest."""
    return ["", *(name[:end] for end, letter in enumerate(name) if letter in "./"), name]


def _compact(names: Sequence[str], devices: Sequence[str]) -> dict[str, str]:
    """The device by entry: of each op, its shortest prefix below which all ops are on one device, or its own name."""
    below: dict[str, set[str]] = defaultdict(set)
    for name, device in zip(names, devices, strict=True):
        for prefix in _prefixes(name):
            below[prefix].add(device)
    return {
        next((prefix for prefix in _prefixes(name) if len(below[prefix]) == 1), name): device
        for name, device in zip(names, devices, strict=True)
    }


def _covering(placement: Mapping[str, str], name: str, path: Path) -> str:
    for prefix in reversed(_prefixes(name)):
        if prefix in placement:
            return placement[prefix]
    raise InputError(f'{path}: no entry covers op {name!r}; add one for it, its module, or "" for all the rest')


def _check_entries(placement: Mapping[str, str], leaders: Sequence[str], graph: OpGraph, path: Path) -> None:
    """Raise InputError for an entry that decides nothing."""
    useful = {prefix for name in leaders for prefix in _prefixes(name)}
    for entry in placement:
        if entry in useful:
            continue
        if entry in graph.names:
            leader = leaders[graph.units[graph.names.index(entry)]]
            raise InputError(f"{path}: op {entry!r} goes where {leader!r} goes; place that one instead")
        raise InputError(f"{path}: {unknown('op or module', entry, sorted(useful - {''}))}")
