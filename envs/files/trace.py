"""The timeline as a trace in Chrome's JSON format, which Perfetto (ui.perfetto.dev) opens.

Devices and links are tracks, ops and transfers slices on them, memory a counter per device; an arrow leads from an op
to each transfer of its output, and from there to the first op that reads the copy. Of a plan that is no op placement
there are also a track of passes per device; ops have the names that they have in the user's graph, and say of which
pass, micro-batch and replica, or shard, they are. Times are in microseconds, as the format has it ("Trace Event
Format", Google, 2016).
"""

import gzip
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from envs.expansion.expanded import Role
from envs.timelines.pass_spans import SpanKind
from envs.timelines.timeline import Timeline
from graphs.cluster import FREE
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from graphs.op_graph import Floats, Ints, Phase

ENDINGS = (".json", ".json.gz")
GROUPS = PASSES, DEVICES, LINKS = 0, 1, 2  # the format's processes: groups of tracks

Event = dict[str, Any]


def save_trace(timeline: Timeline, path: Path) -> None:
    """Write a trace, packed if the name ends with `.gz`. Raises InputError for another ending."""
    _save(trace_events(timeline), path)


def save_traces(timelines: Mapping[str, Timeline], path: Path) -> None:
    """Write several steps as one trace, each with tracks of its own, under its name; as `save_trace`."""
    _save(events_of_several(timelines), path)


def events_of_several(timelines: Mapping[str, Timeline]) -> Iterator[Event]:
    """The events of several steps, which begin together."""
    for number, (name, timeline) in enumerate(timelines.items()):
        for event in trace_events(timeline):
            own: Event = {"pid": event["pid"] + len(GROUPS) * number}
            if "id" in event:
                own["id"] = event["id"] * len(timelines) + number
            if event["name"] == "process_name":
                own["args"] = {"name": f"{name}: {event['args']['name']}"}
            yield event | own


def _save(events: Iterator[Event], path: Path) -> None:
    if not path.name.endswith(ENDINGS):
        raise InputError(f"cannot tell what to write to {path}: a trace is {' or '.join(f'*{end}' for end in ENDINGS)}")
    text = msgspec.json.encode({"displayTimeUnit": "ms", "traceEvents": list(events)})
    write_whole(path, gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def trace_events(timeline: Timeline) -> Iterator[Event]:
    """The events of the trace, tracks first."""
    links, track = _links(timeline)
    yield from _tracks(timeline, links)
    yield from _passes(timeline)
    yield from _ops(timeline)
    yield from _transfers(timeline, track)
    yield from _arrows(timeline, track)
    yield from _memory(timeline)


def _links(timeline: Timeline) -> tuple[list[str], Ints]:
    """The tracks of the links, by name, and that of each transfer, (transfers,).

    There are as many of a link as it has transfers at once, since the slices of a track do not overlap: of a free link,
    or of one that was measured. The copies of a multicast transfer are one slice.
    """
    moved = timeline.transfers
    names: list[str] = []
    track = np.zeros(len(moved), np.int64)
    for name, mine in timeline.by_link():
        start, finish = moved.start[mine], moved.finish[mine]
        is_one = moved.channel[mine[0]] != FREE and timeline.problem.cluster.multicast[moved.channel[mine[0]]]
        lane = np.zeros(len(mine), np.int64) if is_one else _lanes(start, finish)
        track[mine] = len(names) + lane
        names += [name] * (int(lane.max()) + 1)
    return names, track


def _lanes(start: Floats, finish: Floats) -> Ints:
    """(slices,) the first lane that is free when each starts."""
    until: list[float] = []
    lane = np.zeros(len(start), np.int64)
    for at in np.lexsort((finish, start)).tolist():
        open_lanes = (number for number, end in enumerate(until) if _ticks(end) <= _ticks(start[at]))
        lane[at] = number = next(open_lanes, len(until))
        until[number:] = [float(finish[at]), *until[number + 1 :]]
    return lane


def _tracks(timeline: Timeline, links: Sequence[str]) -> Iterator[Event]:
    names = [device.name for device in timeline.problem.cluster.devices]
    groups = [(DEVICES, "devices", names), (LINKS, "links", links)]
    for process, group, tracks in groups if timeline.passes is None else [(PASSES, "passes", names), *groups]:
        yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": group}}
        for index, name in enumerate(tracks):
            yield {"ph": "M", "name": "thread_name", "pid": process, "tid": index, "args": {"name": name}}


def _passes(timeline: Timeline) -> Iterator[Event]:
    passes = timeline.passes
    if passes is None:
        return
    columns = (passes.device, passes.stage, passes.kind, passes.micro_batch, passes.start, passes.finish)
    rows = zip(passes.labels, *(column.tolist() for column in columns), strict=True)
    for label, device, stage, kind, micro_batch, start, finish in rows:
        about = {"kind": SpanKind(kind).words} | _numbers(stage=stage, micro_batch=micro_batch)
        yield _slice(PASSES, device, label, start, finish) | {"cat": "pass", "args": about}


def _ops(timeline: Timeline) -> Iterator[Event]:
    graph = timeline.problem.graph
    names, copies = _names(timeline), _copies(timeline)
    columns = (timeline.placement, timeline.start, timeline.finish, graph.phase, _units(timeline), graph.output_bytes)
    rows = zip(names, graph.kinds, copies, *(column.tolist() for column in columns), strict=True)
    for name, kind, copy, device, start, finish, phase, unit, size in rows:
        about = {"kind": kind, "phase": Phase(phase).name.lower(), "unit": unit, "output_bytes": size} | copy
        yield _slice(DEVICES, device, name, start, finish) | {"cat": "op", "args": about}


def _units(timeline: Timeline) -> Ints:
    """(ops,) the unit of the graph that the plan is for, or -1."""
    expansion = timeline.expansion
    if expansion is None:
        return timeline.problem.graph.units
    return np.where(expansion.origin >= 0, expansion.given.graph.units[expansion.origin], -1)


def _names(timeline: Timeline) -> Sequence[str]:
    """(ops,) names in the graph that the plan is for. Copies have that of their op, others say what they do for it."""
    expansion = timeline.expansion
    if expansion is None:
        return timeline.problem.graph.names
    given, columns = expansion.given.graph.names, (expansion.origin, expansion.role)
    own = expansion.problem.graph.names
    return [
        name if op < 0 else given[op] if role == Role.WORK else f"{given[op]}, {Role(role).name.lower()}"
        for name, op, role in zip(own, *(column.tolist() for column in columns), strict=True)
    ]


def _copies(timeline: Timeline) -> Sequence[Event]:
    """(ops,) what each stands for in a plan that is no op placement: its role, and what it is a copy for."""
    expansion = timeline.expansion
    if expansion is None:
        return [{}] * len(timeline.placement)
    columns = (expansion.role, expansion.stage, expansion.micro_batch, expansion.replica, expansion.origin)
    split = expansion.plan.split
    return [
        {"role": Role(role).name.lower()}
        | _numbers(stage=stage, micro_batch=micro_batch, **{"shard" if split else "replica": replica})
        | ({"divided_by": list(split[op])} if split and op >= 0 and role == Role.WORK else {})
        for role, stage, micro_batch, replica, op in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _numbers(**values: int) -> Event:
    """Those that there are: -1 is none."""
    return {key: value for key, value in values.items() if value >= 0}


def _transfers(timeline: Timeline, track: Ints) -> Iterator[Event]:
    """A slice each; the copies that one multicast transfer makes are one."""
    graph, moved = timeline.graph, timeline.transfers
    names = [device.name for device in timeline.problem.cluster.devices]
    made, copied = _names(timeline), _copies(timeline)
    shared: dict[tuple[int, int], list[int]] = {}
    for copy, key in enumerate(zip(track.tolist(), moved.output.tolist(), strict=True)):
        shared.setdefault(key, []).append(copy)
    multicast = timeline.problem.cluster.multicast
    for (channel, output), copies in shared.items():
        producer = int(moved.producer[copies[0]])
        is_one = moved.channel[copies[0]] != FREE and multicast[moved.channel[copies[0]]]
        for group in [copies] if is_one else [[copy] for copy in copies]:
            about = {
                "from": names[moved.source[group[0]]],
                "to": [names[moved.destination[copy]] for copy in group],
                "bytes": float(graph.moved_bytes[output]),
            } | copied[producer]
            times = float(moved.start[group[0]]), float(moved.finish[group[0]])
            yield _slice(LINKS, channel, made[producer], *times) | {"cat": "transfer", "args": about}


def _arrows(timeline: Timeline, track: Ints) -> Iterator[Event]:
    """Per copy: from the middle of the op, through the transfer, to the start of the first op that reads it."""
    moved = timeline.transfers
    first = _first_readers(timeline)
    columns = (moved.producer, moved.output, moved.source, moved.destination, moved.start)
    rows = zip(track.tolist(), *(column.tolist() for column in columns), strict=True)
    for number, (channel, producer, output, source, destination, start) in enumerate(rows):
        middle = float(timeline.start[producer] + timeline.finish[producer]) / 2
        reader = first[output, destination]
        arrow = {"cat": "copy", "name": "copy", "id": number}
        yield arrow | {"ph": "s", "pid": DEVICES, "tid": source, "ts": _ticks(middle) / 1e3}
        yield arrow | {"ph": "t", "pid": LINKS, "tid": channel, "ts": _ticks(start) / 1e3}
        yield arrow | {
            "ph": "f", "bp": "e", "pid": DEVICES, "tid": destination, "ts": _ticks(float(timeline.start[reader])) / 1e3
        }  # fmt: skip


def _first_readers(timeline: Timeline) -> dict[tuple[int, int], int]:
    """Of the ops that read an output, or a message, on a device, the one that starts first."""
    graph = timeline.graph
    carrying = np.flatnonzero(~graph.control)
    starts = timeline.start[graph.edges[carrying, 1]]
    order = carrying[np.argsort(-starts, kind="stable")]  # the earliest comes last, and stays
    consumers = graph.edges[order, 1]
    keys = zip(timeline.edge_output[order].tolist(), timeline.placement[consumers].tolist(), strict=True)
    return dict(zip(keys, consumers.tolist(), strict=True))


def _memory(timeline: Timeline) -> Iterator[Event]:
    for device, name in enumerate(device.name for device in timeline.problem.cluster.devices):
        for seconds, held in zip(*(curve.tolist() for curve in timeline.memory_curve(device)), strict=True):
            about = {"bytes": held}
            yield {"ph": "C", "pid": DEVICES, "name": f"memory of {name}", "ts": _ticks(seconds) / 1e3, "args": about}


def _slice(process: int, track: int, name: str, start: float, finish: float) -> Event:
    begin, end = _ticks(start), _ticks(finish)
    return {"ph": "X", "pid": process, "tid": track, "name": name, "ts": begin / 1e3, "dur": (end - begin) / 1e3}


def _ticks(seconds: float) -> int:
    """Whole nanoseconds: however they are rounded, a slice ends no later than the next begins."""
    return round(seconds * 1e9)
