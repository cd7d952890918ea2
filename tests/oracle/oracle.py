"""The simulator's rules in plain Python: slow, short, and written from the rules alone. The engine must agree exactly.

Rule numbers: 1 compute, 2 ready, 3 transfers, 4 order, 5 step time, 6 memory, 8 host, 9 streams.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from graphs.cluster import FREE, Cluster
from graphs.foundation.by_name import Extension
from graphs.op_graph import Floats
from graphs.problem import Problem
from tests.oracle.issuing import Thread, issue, outputs, sums_of

# ("op", u), or ("send", output, channel, destination): destination is -1 on a multicast channel; an output is ("op", u)
# or ("message", edge)
Name = tuple[object, ...]
Stream = int | tuple[int, int]  # a device's, or that of copies from one to another
Copy = tuple[int, int, int]  # what is copied (op, or number of ops + number of message), its op, the device it is on


Priority = Extension[Any] | str | Floats  # a rule or its name, or (ops,) numbers


@dataclass
class Task:
    """An op on its device, or a transfer on its channel."""

    resource: tuple[str, Stream]
    seconds: float
    hold: float
    order: tuple[float, float]  # priority, op index; the ready time comes in between
    destination: int = -1
    output: int = -1
    handed_over: dict[int, float] = field(default_factory=dict)  # of a transfer: by the sender, bytes
    taken_in: dict[int, float] = field(default_factory=dict)  # of a transfer: by each receiver, bytes
    issued: float = 0.0  # rule 8: no sooner does an op start
    is_free: bool = False  # rule 1: an op that takes no time needs no device
    needs: set[Name] = field(default_factory=set)
    name: Name = ()
    ends: tuple[Stream, ...] = ()  # rule 9: of a copy the streams that it occupies
    meets: set[Stream] = field(default_factory=set)  # those in which it was put that have not come to it
    ready: float = -1.0
    start: float = -1.0
    finish: float = -1.0


@dataclass(frozen=True)
class Result:
    start: list[float]
    finish: list[float]
    copies: dict[Copy, tuple[float, float]]  # start, finish
    step_seconds: float
    peak_bytes: list[float]


def simulate(
    problem: Problem, op_seconds: Sequence[Sequence[float]], placement: Sequence[int], priority: Priority = "fifo"
) -> Result:
    """One step of a placement, (ops,) devices, where op v takes op_seconds[v][device]."""
    ops = range(len(problem.graph))
    order, issued, threads = priorities(problem, op_seconds, priority), [0.0] * len(ops), list[Thread]()
    if problem.host is not None or problem.runtime.streams:
        order, issued, threads = issue(problem, op_seconds, placement, order)
    tasks, sender = make_tasks(problem, op_seconds, placement, order)
    for op in ops:
        tasks["op", op].issued = issued[op]
    streams = streams_of(problem, placement, order, tasks, sender) if problem.runtime.streams else {}
    run(tasks, problem.cluster, sender, threads, streams)
    of_op = [tasks["op", op] for op in ops]
    copies = {copy: (tasks[name].start, tasks[name].finish) for copy, name in sender.items()}
    start, finish = [task.start for task in of_op], [task.finish for task in of_op]
    peak = peaks(problem, placement, start, finish, copies)
    return Result(start, finish, copies, max(finish), peak)  # rule 5


def priorities(problem: Problem, op_seconds: Sequence[Sequence[float]], priority: Priority) -> list[float]:
    """Rule 4: the smaller goes first."""
    priority = priority.name if isinstance(priority, Extension) else priority
    edges = problem.graph.edges.tolist()
    remaining: dict[int, float] = {}

    def longest(op: int) -> float:
        if op not in remaining:
            mean = sum(op_seconds[op]) / len(op_seconds[op])
            remaining[op] = mean + max((longest(v) for u, v in edges if u == op), default=0.0)
        return remaining[op]

    if not isinstance(priority, str):
        return [float(number) for number in priority]
    return [0.0 if priority == "fifo" else -longest(op) for op in range(len(op_seconds))]


def make_tasks(
    problem: Problem, op_seconds: Sequence[Sequence[float]], placement: Sequence[int], priority: list[float]
) -> tuple[dict[Name, Task], dict[Copy, Name]]:
    """All tasks by name, and the transfer that makes each copy: rules 1 to 3."""
    graph, cluster = problem.graph, problem.cluster
    tasks: dict[Name, Task] = {}
    sender: dict[Copy, Name] = {}
    for op, device in enumerate(placement):
        seconds = op_seconds[op][device]
        hold = float(problem.hold_seconds[device]) if seconds > 0 else 0.0
        tasks["op", op] = Task(("device", device), seconds, hold, (priority[op], op), is_free=seconds == 0)
    for edge, ((u, v), is_control, output, maker) in enumerate(
        zip(graph.edges.tolist(), graph.control.tolist(), *sums_of(problem, placement, priority), strict=True)
    ):
        source, destination = placement[u], placement[v]
        needed: Name = ("op", u)
        if source != destination and not is_control:
            channel = int(cluster.channel[source, destination])
            size = graph.sent_bytes[u] if output == u else graph.edge_bytes[edge]
            seconds = float(cluster.latency[source, destination] + size / cluster.bandwidth[source, destination])
            seconds *= float(problem.pace[u]) if output == u and len(problem.pace) else 1.0
            is_free = channel == FREE  # then the transfer has a channel of its own
            is_multicast = not is_free and cluster.multicast[channel] and not problem.runtime.streams
            label = -1 if is_multicast else destination
            needed = sender[output, maker, destination] = ("send", output, channel, label)
            gap = 0.0 if is_free else float(cluster.gap[channel])
            where = ("free", len(tasks)) if is_free else ("channel", channel)
            new = Task(where, seconds, gap, (priority[u], u), label, output, needs={("op", u)})
            task = tasks.setdefault(needed, new)
            task.needs.add(("op", u))
            task.seconds = max(task.seconds, seconds)
            task.handed_over[source] = task.taken_in[destination] = float(size)
        tasks["op", v].needs.add(needed)
    return tasks, sender


def streams_of(
    problem: Problem, placement: Sequence[int], order: list[float], tasks: dict[Name, Task], sender: dict[Copy, Name]
) -> dict[Stream, list[Name]]:
    """Rule 9: what each stream does, in the order of issue; a copy is issued before its first reader.

    That of what a backward op makes is issued after its node, of a sum after the last that adds to it. In a side
    stream, which each device has to each, it waits for what its source was given before, and holds up neither device.
    """
    graph, devices, is_aside = problem.graph, range(len(problem.cluster)), problem.runtime.copies == "side"
    streams: dict[Stream, list[Name]] = {device: [] for device in devices}
    streams |= {pair: [] for pair in itertools.product(devices, devices) if is_aside}
    node = list(range(len(graph))) if problem.nodes is None else problem.nodes.node.tolist()
    rows = zip(graph.edges.tolist(), graph.control.tolist(), *sums_of(problem, placement, order), strict=True)
    edges = [
        (u, v, sender[output, maker, placement[v]], output != u)
        for (u, v), control, output, maker in rows
        if not control and placement[u] != placement[v]
    ]
    edges.sort(key=lambda edge: (edge[0], edge[3]))
    left = Counter(name for _, _, name, _ in edges)  # what each copy carries that has not been issued
    issued = list[Name]()
    for name, task in tasks.items():
        task.name = name

    def issue_copy(name: Name, u: int, v: int, op: int) -> None:
        issued.append(name)
        copy, here, there = tasks[name], placement[u], placement[v]
        waits_in: tuple[Stream, ...] = (here, (here, there) if is_aside else there)
        copy.issued, copy.order = tasks["op", op].issued, (len(issued), u)
        copy.ends, copy.meets = waits_in[is_aside:], set(waits_in)
        for stream in waits_in:
            streams[stream].append(name)

    ops = sorted(range(len(graph)), key=lambda op: order[op])
    for place, op in enumerate(ops):
        for u, v, name, _ in edges:
            if v == op and graph.phase[u] != 1 and name not in issued:
                issue_copy(name, u, v, op)
        if not tasks["op", op].is_free:
            streams[placement[op]].append(("op", op))
        if graph.phase[op] == 1 and (op == ops[-1] or node[ops[place + 1]] != node[op]):
            for member in [each for each in ops if node[each] == node[op]]:
                for u, v, name, _ in edges:
                    left[name] -= u == member
                    if u == member and left[name] == 0:
                        issue_copy(name, u, v, op)
    return streams


def reach(
    tasks: dict[Name, Task], streams: dict[Stream, list[Name]], free_at: dict[tuple[str, Stream], float], now: float
) -> None:
    """Rule 9: streams that come to a copy that occupies them wait for it."""
    for stream, names in streams.items():
        while names and names[0][0] == "send" and max(tasks[names[0]].issued, free_at["device", stream]) <= now:
            copy = tasks[names.pop(0)]
            copy.meets.discard(stream)
            if stream in copy.ends:
                free_at["device", stream] = math.inf


def run(
    tasks: dict[Name, Task], cluster: Cluster, sender: dict[Copy, Name], threads: list[Thread],
    streams: dict[Stream, list[Name]],
) -> None:  # fmt: skip
    """Fill in when each task is issued, ready, starts and finishes."""
    now = 0.0
    free_at: dict[tuple[str, Stream], float] = {task.resource: 0.0 for task in tasks.values()}
    free_at |= {("device", device): 0.0 for device in streams}
    ended: set[Name] = set()
    while len(ended) < len(tasks):
        before = set(ended)
        apply_ends(tasks, ended, now)
        if streams:
            for name in ended - before:
                free_at |= {("device", device): now for device in tasks[name].ends}
            reach(tasks, streams, free_at, now)
            apply_ends(tasks, ended, now)
        else:
            hold_for_messages(tasks, cluster, ended - before, free_at, now)
        for thread in threads:
            thread.issue(tasks, sender, ended)
        waiting = [task for task in tasks.values() if task.ready >= 0 and task.start < 0]
        for resource in free_at:
            queue = [task for task in waiting if task.resource == resource and task.issued <= now]
            if streams and resource[0] == "device":
                queue = [task for task in queue if streams[resource[1]][:1] == [task.name]]
            if queue and free_at[resource] <= now:
                first = min(queue, key=lambda t: (t.order[0], t.ready, t.order[1], t.destination, t.output))
                first.start, first.finish = now, now + first.seconds
                if streams and resource[0] == "device":
                    streams[resource[1]].pop(0)
                free_at[resource] = first.finish + first.hold
        # what started now and took no time ends in another round of this instant
        if not any(task.finish == now and name not in ended for name, task in tasks.items()):
            later = [time for task in tasks.values() for time in (task.finish, task.issued)] + list(free_at.values())
            now = min((time for time in later if now < time < math.inf), default=now)


def apply_ends(tasks: dict[Name, Task], ended: set[Name], now: float) -> None:
    """Rule 4: all ends of an instant, before anything starts at it; by rule 1 with those of what is ready and free."""
    known = -1
    while known < len(ended):
        known = len(ended)
        for name, task in tasks.items():
            if task.ready < 0 and task.needs <= ended and not task.meets:
                task.ready = now
                if task.is_free:
                    task.start = task.finish = now
            if 0 <= task.finish <= now:
                ended.add(name)


def hold_for_messages(
    tasks: dict[Name, Task], cluster: Cluster, new: set[Name], free_at: dict[tuple[str, Stream], float], now: float
) -> None:
    """Rule 4: what ended now hands over its messages, what arrived now is taken in: after what is under way."""
    for name, task in tasks.items():
        for messages, is_due in ((task.handed_over, task.needs & new), (task.taken_in, {name} & new)):
            for device, size in messages.items() if is_due else ():
                spec = cluster.devices[device]
                seconds = spec.message_seconds + size * spec.message_seconds_per_byte
                free_at["device", device] = max(free_at.get(("device", device), 0.0), now) + seconds


def peaks(
    problem: Problem,
    placement: Sequence[int],
    start: list[float],
    finish: list[float],
    copies: dict[Copy, tuple[float, float]],
) -> list[float]:
    """Rule 6: (devices,) bytes. A tensor is held from its begin until just before its end."""
    graph = problem.graph
    unsent, working = (getattr(graph, key).tolist() or [0.0] * len(graph) for key in ("unsent_bytes", "working_bytes"))
    columns = (graph.edges.tolist(), graph.edge_bytes.tolist() or [0.0] * len(graph.edges), outputs(graph))
    size = dict(enumerate(graph.output_bytes.tolist()))
    size |= {output: own for (u, _), own, output in zip(*columns, strict=True) if output != u}
    columns = (*columns[:2], sums_of(problem, placement, start)[0])
    edges = [edge for edge, is_control in zip(zip(*columns, strict=True), graph.control, strict=True) if not is_control]
    held: list[tuple[int, float, float, float]] = []  # device, begin, end, bytes
    for u, device in enumerate(placement):
        local = [finish[v] for (w, v), _, _ in edges if w == u and placement[v] == device]
        sent = [end for (_, w, _), (_, end) in copies.items() if w == u]
        held.append((device, start[u], max([finish[u], *local, *sent]), size[u] + unsent[u]))
        held.append((device, start[u], finish[u], working[u]))
    for (output, _, there), (begin, _) in copies.items():
        end = max(finish[v] for (_, v), _, carried in edges if carried == output and placement[v] == there)
        held.append((there, begin, end, size[output]))
    result = []
    for device in range(len(problem.cluster)):
        weights = {weight for op, weight in graph.weight_uses.tolist() if placement[op] == device}
        static = sum(whole_step_bytes(problem, weight) for weight in weights)
        if graph.held is not None:
            given = {tensor for op, tensor in graph.held.uses.tolist() if placement[op] == device}
            static += sum(float(graph.held.bytes[tensor]) for tensor in given)
            if problem.runtime.graphs:
                static += sum(float(graph.held.bytes[tensor]) for tensor in given)
        if problem.runtime.graphs:
            static += sum(size[output] for output, _, there in copies if there == device)
        mine = [(begin, end, size) for there, begin, end, size in held if there == device]
        at_begins = (sum(size for begin, end, size in mine if begin <= t < end) for t, _, _ in mine)
        result.append(static + max(at_begins, default=0.0))
    return result


def whole_step_bytes(problem: Problem, weight: int) -> float:
    """Rule 6: itself and the optimizer's state, and room for its gradient unless that is the output of an op.

    CUDA graphs write such an output where it is copied from.
    """
    graph, size = problem.graph, float(problem.graph.weights[weight])
    if problem.memory is not None:
        again = float(problem.memory.gradient_bytes[weight]) if problem.runtime.graphs else 0.0
        return float(problem.memory.bytes[weight]) + again
    if not graph.is_training or (len(graph.frozen) and graph.frozen[weight]):
        return size
    reads = graph.weight_uses.tolist()
    users = {op for op, read in reads if read == weight}
    whole = {op: sum(float(graph.weights[read]) for user, read in reads if user == op) for op in users}
    is_made = any(
        kind.endswith(".grad_weight") and phase == 1 and mirror in users and made >= whole[mirror]
        for kind, phase, mirror, made in zip(
            graph.kinds, graph.phase.tolist(), graph.mirror.tolist(), graph.output_bytes.tolist(), strict=True
        )
    )
    if problem.optimizer == "none":
        return size
    is_half = bool(graph.weight_precisions) and graph.weight_precisions[weight] == "bf16"
    gradient = 2 * size if is_half and graph.gradient_precision == "fp32" else size
    moments = {"sgd": 0, "momentum": 1, "adam": 2}[problem.optimizer] * size
    state = 2 * moments + 2 * size if is_half and graph.master_weights else moments
    return size + state + (0.0 if is_made and not problem.runtime.graphs else gradient)
