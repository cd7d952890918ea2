"""What two plans for the same ops place on other devices: a table for pages, the longest-running modules first."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from markupsafe import escape

from envs.costs.costs import costs_of
from envs.timelines.timeline import Timeline
from evaluation.drawing.sections import Sheet, sheets_html
from evaluation.records import formatting
from graphs.problem import Problem

DEPTH = 2  # of the modules that have rows
MOST = 40  # rows


@dataclass
class Move:
    """Ops of a module that are on some devices in one plan, and on others in another."""

    module: str
    devices: tuple[str, str]  # in either plan; several are replicas, or parts
    ops: int = 0
    weights: set[int] = field(default_factory=set)  # parameters that they use
    seconds: float = 0.0  # of the ops where the first plan has them, all replicas together


def moves(before: Timeline, after: Timeline) -> list[Move]:
    """What is on other devices in the second step's plan than in the first's, by module, the most seconds first.

    Empty if nothing is, or the steps are not of the same ops and devices.
    """
    problem = _given(before)
    if problem.graph.names != _given(after).graph.names or len(problem.cluster) != len(_given(after).cluster):
        return []
    names = [device.name for device in problem.cluster.devices]
    graph, seconds = problem.graph, costs_of(problem).op_seconds
    used: dict[int, list[int]] = {}
    for op, weight in graph.weight_uses.tolist():
        used.setdefault(op, []).append(weight)
    found: dict[tuple[str, str, str], Move] = {}
    for op, (old, new) in enumerate(zip(_devices(before), _devices(after), strict=True)):
        if old == new:
            continue
        module = ".".join(graph.names[op].rpartition("/")[0].split(".")[:DEPTH]) or "the model itself"
        where = "+".join(names[each] for each in old), "+".join(names[each] for each in new)
        move = found.setdefault((module, *where), Move(module, where))
        move.ops += 1
        move.weights.update(used.get(op, ()))
        move.seconds += float(np.mean([seconds[op, device] for device in old]))
    return sorted(found.values(), key=lambda move: -move.seconds)


def moves_table(names: Sequence[str], before: Timeline, after: Timeline) -> str:
    """The moves from one plan to another as HTML, with what all of them amount to; empty if there are none."""
    found = moves(before, after)
    if not found:
        return ""
    total = f"{sum(move.ops for move in found):,} of {len(_given(before).graph):,} ops"
    sizes, seconds = _given(before).graph.weights, sum(move.seconds for move in found)

    def size(weights: set[int]) -> str:
        return formatting.memory(float(sizes[sorted(weights)].sum()))

    rows = [
        (move.module, *move.devices, f"{move.ops:,}", size(move.weights), formatting.seconds(move.seconds))
        for move in found[:MOST]
    ]
    weights = size(set().union(*(move.weights for move in found)))
    said = f"{total} are on other devices. They use {weights} of parameters, and take {formatting.seconds(seconds)}."
    said += f" The {MOST} longest of {len(found)} rows are shown." if len(found) > MOST else ""
    heads = ("module", f"in {names[0]}", f"in {names[1]}", "ops", "parameters used", "time")
    return f"<h2>What moved where</h2><p>{escape(said)}</p>{sheets_html(Sheet(heads, tuple(rows), words=3))}"


def _given(timeline: Timeline) -> Problem:
    """The problem of the plan, before it is written out."""
    return timeline.problem if timeline.expansion is None else timeline.expansion.given


def _devices(timeline: Timeline) -> Sequence[tuple[int, ...]]:
    """(ops,) the devices of each op of the plan."""
    if timeline.expansion is None:
        return [(device,) for device in timeline.placement.tolist()]
    return timeline.expansion.plan.devices
