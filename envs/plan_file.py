"""A plan on disk, `*.plan.json`: devices by name, so that people can read it and edit it.

    {"schema": "placelab.plan", "version": 3,
     "plan": {"placement": {"layers.0": "gpu:0", "": "gpu:1"}, "order": "longest_path"}}

`plan` is what is decided, and `found` how it was found. An entry of `placement` is an op's name or a prefix of names
that ends before a "." or "/", as module paths do; if several cover an op the longest wins, and "" covers all. Ops that
are tied together go where the first of them goes. `order` is the rule under which the plan was simulated, or a number
by entry, the smaller first: {"layers.0": 1, "": 2}; tied ops have the number of the first of them, but for one that has
an entry of its own name. Without an order the plan is run under the rule of its problem.

A file written by `save_plan` says more: which graph and cluster it is for, which placer found it, and what it costs.
Files of versions 1 and 2 have no order: the plan is run as it was predicted then, first come, first served. Those of
version 1 hold the placement and how it was found at the top.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeVar

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
from graphs.problem import FIFO, Problem

VERSION = 3

Entry = TypeVar("Entry", str, float)  # what an entry says: a device, or a number


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
    order: str | dict[str, float] = ""  # a rule, or op name or prefix -> number


class SecondPlanSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is decided in a file of version 2."""

    placement: dict[str, str]


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


class SecondPlanFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a plan file of version 2 holds: no order."""

    schema: Literal["placelab.plan"]
    version: int
    graph: Identity = Identity()
    cluster: Identity = Identity()
    plan: SecondPlanSection
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

    A plan without an order of its own is written with the rule of its problem, under which it was simulated. Raises
    InputError if it is not a plan for this problem, or places an op on several devices.
    """
    plan, graph, devices = result.plan, problem.graph, [device.name for device in problem.cluster.devices]
    plan.check_single(problem, "a plan file holds one per op")
    placement = _compact({graph.names[op]: devices[plan.devices[op][0]] for op in problem.units.first_op.tolist()})
    order = (plan.order or problem.order) if isinstance(plan.order, str) else _order_entries(problem, plan.order)
    content = PlanFile(
        schema="placelab.plan",
        version=VERSION,
        graph=Identity(graph.name, graph.fingerprint),
        cluster=Identity(problem.cluster.name, problem.cluster.fingerprint),
        plan=PlanSection(placement, order),
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
    earlier: dict[int, type[PlanFile | SecondPlanFile | FirstPlanFile]] = {1: FirstPlanFile, 2: SecondPlanFile}
    content = read_document(path, PlanFile, version=VERSION, remedy=remedy, earlier=earlier)
    if isinstance(content, FirstPlanFile):
        decided, found = PlanSection(content.placement, FIFO), Found(content.placer, content.seed, content.simulations)
    elif isinstance(content, SecondPlanFile):
        decided, found = PlanSection(content.plan.placement, FIFO), content.found
    else:
        decided, found = content.plan, content.found
    graph, cluster = problem.graph, problem.cluster
    _check_same("graph", content.graph, graph, path)
    _check_same("cluster", content.cluster, cluster, path)
    index = {device.name: position for position, device in enumerate(cluster.devices)}
    for device in decided.placement.values():
        if device not in index:
            raise InputError(f"{path}: {unknown('device', device, index)}")
    leaders = [graph.names[op] for op in problem.units.first_op]
    _check_entries(decided.placement, leaders, graph, path)
    per_unit = [index[_covering(decided.placement, name, path)] for name in leaders]
    order = decided.order if isinstance(decided.order, str) else _order(decided.order, leaders, graph, path)
    # as the file says: what the graph forbids is refused, not moved
    plan = Plan.of(np.array(per_unit)[graph.units], order=order)
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


def _compact(
    values: Mapping[str, Entry], apart: Mapping[str, Entry] = MappingProxyType({}), tied: Iterable[str] = ()
) -> dict[str, Entry]:
    """By entry what ops have: of each op, its shortest prefix below which all have the same, or its own name.

    Ops `apart` have an entry of their own name each. No other entry has the name of an op that is `tied` to another:
    such an entry would be that op's own.
    """
    below: dict[str, set[str | float]] = defaultdict(set)
    for name, value in (*values.items(), *apart.items()):
        for prefix in _prefixes(name):
            below[prefix].add(value)
    taken = set(tied)
    entries = {
        next((prefix for prefix in _prefixes(name) if len(below[prefix]) == 1 and prefix not in taken), name): value
        for name, value in values.items()
    }
    return {**entries, **apart}


def _covering(entries: Mapping[str, Entry], name: str, path: Path) -> Entry:
    for prefix in reversed(_prefixes(name)):
        if prefix in entries:
            return entries[prefix]
    raise InputError(f'{path}: no entry covers op {name!r}; add one for it, its module, or "" for all the rest')


def _order_entries(problem: Problem, order: Sequence[float]) -> dict[str, float]:
    """Numbers by entry: of the first op of each unit, and of all ops by name that have another than that."""
    names, leader = problem.graph.names, problem.units.first_op[problem.graph.units].tolist()
    values = {names[op]: order[op] for op in problem.units.first_op.tolist()}
    apart = {name: order[op] for op, name in enumerate(names) if order[op] != order[leader[op]]}
    return _compact(values, apart, (name for op, name in enumerate(names) if op != leader[op]))


def _order(entries: Mapping[str, float], leaders: Sequence[str], graph: OpGraph, path: Path) -> list[float]:
    """(ops,) numbers: that of the op's own entry, or that of the first op that it is tied to."""
    useful = {prefix for name in leaders for prefix in _prefixes(name)} | set(graph.names)
    for entry in entries:
        if entry not in useful:
            raise InputError(f"{path}: order: {unknown('op or module', entry, sorted(useful - {''}))}")
    of_units = [_covering(entries, name, path) for name in leaders]
    return [entries.get(name, of_units[unit]) for name, unit in zip(graph.names, graph.units.tolist(), strict=True)]


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
