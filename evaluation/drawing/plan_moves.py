"""What two plans for the same ops place on other devices: a table for pages, the longest-running modules first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from envs.costs.costs import costs_of
from envs.timeline import Timeline
from evaluation import formatting
from evaluation.drawing.figures import page
from graphs.problem import Problem

TEMPLATE = Path(__file__).resolve().parent / "templates" / "moves.html.j2"
DEPTH = 2  # of the modules that have rows
MOST = 40  # rows


@dataclass
class Move:
    """Ops of a module that are on some devices in one plan, and on others in another."""

    module: str
    devices: tuple[str, str]  # in either plan; several are replicas, or parts
    ops: int = 0
    weights: float = 0.0  # bytes of parameters
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
    user, weight = graph.weight_uses.T
    weights = np.bincount(user, weights=graph.weights[weight], minlength=len(graph))
    found: dict[tuple[str, str, str], Move] = {}
    for op, (old, new) in enumerate(zip(_devices(before), _devices(after), strict=True)):
        if old == new:
            continue
        module = ".".join(graph.names[op].rpartition("/")[0].split(".")[:DEPTH]) or "the model itself"
        where = "+".join(names[each] for each in old), "+".join(names[each] for each in new)
        move = found.setdefault((module, *where), Move(module, where))
        move.ops += 1
        move.weights += float(weights[op])
        move.seconds += float(np.mean([seconds[op, device] for device in old]))
    return sorted(found.values(), key=lambda move: -move.seconds)


def moves_table(names: Sequence[str], before: Timeline, after: Timeline) -> str:
    """The moves from one plan to another as HTML, with what all of them amount to; empty if there are none."""
    found = moves(before, after)
    if not found:
        return ""
    total = f"{sum(move.ops for move in found):,} of {len(_given(before).graph):,} ops"
    weights, seconds = sum(move.weights for move in found), sum(move.seconds for move in found)
    rows = [
        (move.module, *move.devices, f"{move.ops:,}", formatting.memory(move.weights), formatting.seconds(move.seconds))
        for move in found[:MOST]
    ]
    said = f"{total} are on other devices, with {formatting.memory(weights)} of parameters and "
    said += f"{formatting.seconds(seconds)} of work."
    said += f" The {MOST} longest of {len(found)} rows are shown." if len(found) > MOST else ""
    heads = ("module", f"in {names[0]}", f"in {names[1]}", "ops", "parameters", "work")
    return page(TEMPLATE, heads=heads, rows=rows, said=said)


def _given(timeline: Timeline) -> Problem:
    """The problem of the plan, before it is written out."""
    return timeline.problem if timeline.expansion is None else timeline.expansion.given


def _devices(timeline: Timeline) -> Sequence[tuple[int, ...]]:
    """(ops,) the devices of each op of the plan."""
    if timeline.expansion is None:
        return [(device,) for device in timeline.placement.tolist()]
    return timeline.expansion.plan.devices
