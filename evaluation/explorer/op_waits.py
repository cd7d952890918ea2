"""What the page says of an op: where and when it runs, why it began no earlier, and what that waited for in turn."""

from __future__ import annotations

from typing import Any

import numpy as np

from envs.timelines.last_inputs import NONE, Waits
from envs.timelines.timeline import Timeline
from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.drawing.step_boxes import Reason, why_not_earlier
from evaluation.records.formatting import memory, seconds
from graphs.foundation.errors import InputError, unknown
from graphs.op_graph import Ints, Phase

CHAIN = 12  # ops that are followed back
SENT = 6  # transfers that are named


def op_answer(placed: SimulatedPlan, name: str) -> dict[str, Any]:
    """An op of the model, or one of its copies in a plan that is no op placement, by name.

    Raises InputError for an op that there is not.
    """
    timeline, given = placed.timeline, placed.problem.graph
    op, copies = _found(placed, name)
    names, graph = timeline.problem.graph.names, timeline.problem.graph
    origin = op if timeline.expansion is None else int(timeline.expansion.origin[op])
    own = "" if origin < 0 else given.names[origin]  # as the model has it
    waits = Waits.of(timeline)
    why, followed = _sentences(timeline, waits)
    chain = [op]
    while len(chain) <= CHAIN and followed[chain[-1]] not in (NONE, *chain):
        chain.append(int(followed[chain[-1]]))
    device = int(timeline.placement[op])
    return {
        "name": names[op],
        "op": origin,
        "own": own,
        "module": own.rpartition("/")[0],
        "what": f"{graph.kinds[op]}, {Phase(graph.phase[op]).name.lower()}",
        "device": _device(timeline, op),
        "start": float(timeline.start[op]),
        "finish": float(timeline.finish[op]),
        "when": _when(float(timeline.start[op]), float(timeline.finish[op])),
        "why": why(op),
        "chain": [
            {
                "name": names[each],
                "device": _device(timeline, each),
                "why": why(each),
                "start": float(timeline.start[each]),
                "finish": float(timeline.finish[each]),
            }
            for each in chain[1:]
        ],
        "sends": _sends(timeline, op),
        "output": memory(float(graph.output_bytes[op])),
        "memory": _memory_then(timeline, device, float(timeline.start[op])),
        "is_critical": op in waits.critical_path()[0],
        "copies": copies,
    }


def _found(placed: SimulatedPlan, name: str) -> tuple[int, int]:
    """An op of the timeline, the first copy if it has several, and how many these are."""
    timeline = placed.timeline
    if name in timeline.problem.graph.names:
        return timeline.problem.graph.names.index(name), 1
    if timeline.expansion is None or name not in placed.problem.graph.names:
        raise InputError(unknown("op", name, placed.problem.graph.names))
    origin = placed.problem.graph.names.index(name)
    copies: Ints = np.flatnonzero(timeline.expansion.origin == origin)
    if not len(copies):
        raise InputError(f"op {name!r} does not run in this plan; choose another")
    return int(copies[timeline.start[copies].argmin()]), len(copies)


def _sentences(timeline: Timeline, waits: Waits) -> tuple[Any, Ints]:
    """What says why an op began no earlier, and (ops,) the op that each waited for, or NONE.

    Where a launch or a message held the op, that is the op before it on its device.
    """
    reason, waited, awaited = why_not_earlier(timeline, waits)
    names = timeline.problem.graph.names

    def sentence(op: int) -> str:
        of, last = Reason(int(reason[op])), int(awaited[op])
        where = f" of {_device(timeline, last)}" if last != NONE else ""
        named = names[last] if last != NONE else ""
        return of.sentence.format(waited=seconds(float(waited[op])), awaited=named, where=where)

    return sentence, np.where(reason == Reason.HELD, waits.before, awaited)


def _sends(timeline: Timeline, op: int) -> list[str]:
    """Where the output of an op goes, and when."""
    moved, devices = timeline.transfers, timeline.problem.cluster.devices
    mine = np.flatnonzero(moved.producer == op)
    mine = mine[np.argsort(moved.finish[mine], kind="stable")][:SENT]
    size = timeline.graph.moved_bytes
    return [
        f"{memory(float(size[moved.output[each]]))} to {devices[moved.destination[each]].name}, "
        f"{_when(float(moved.start[each]), float(moved.finish[each]))}"
        for each in mine.tolist()
    ]


def _memory_then(timeline: Timeline, device: int, at: float) -> str:
    """What a device holds at a time, of what it may hold."""
    times, held = timeline.memory_curve(device)
    limit = float(timeline.problem.cluster.memory_bytes[device])
    of = f" of {memory(limit)}" if np.isfinite(limit) else ""
    return f"{memory(float(held[np.searchsorted(times, at, side='right') - 1]))}{of}"


def _device(timeline: Timeline, op: int) -> str:
    name: str = timeline.problem.cluster.devices[timeline.placement[op]].name
    return name


def _when(start: float, finish: float) -> str:
    return f"{seconds(start)} to {seconds(finish)}, {seconds(finish - start)} long"
