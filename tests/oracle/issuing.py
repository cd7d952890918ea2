"""Rule 8 of the simulator in plain Python, and what edges carry: slow, short, and written from the rules alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from graphs.host import Host
from graphs.op_graph import OpGraph
from graphs.problem import Problem

if TYPE_CHECKING:
    from tests.oracle.oracle import Copy, Name, Task


def outputs(graph: OpGraph) -> list[int]:
    """What each edge carries: the output of its producer, or the next message, counted from the number of ops."""
    found, count = [], len(graph)
    for (u, _), own in zip(graph.edges.tolist(), graph.has_message.tolist(), strict=True):
        found.append(count if own else u)
        count += own
    return found


def issue(
    problem: Problem, op_seconds: Sequence[Sequence[float]], placement: Sequence[int], priority: list[float]
) -> tuple[list[float], list[float], list[Thread]]:
    """Rule 8: of each op how many were issued before it, and when it was issued, unless the threads say that later."""
    graph, host, streams = problem.graph, problem.host or Host.uniform(1.0), problem.runtime.streams
    edges = list(zip(graph.edges.tolist(), graph.control.tolist(), sent_as(problem), strict=True))
    topological = graph.topological_order.tolist()
    kind = [min(phase, 2) for phase in graph.phase.tolist()]
    nodes = [[op] for op in range(len(placement))]  # what is issued together
    pairs = [(u, v) for (u, v), _, _ in edges]
    in_order, awaits = host.per_device or host.in_order, host.per_device and host.waits
    if in_order:
        order = most_urgent_first(nodes, pairs, lambda op: (priority[op], topological.index(op)))
    elif streams:
        waits = [False] * len(placement) if problem.nodes is None else problem.nodes.deferred.tolist()

        def urgent(op: int) -> tuple[float, ...]:
            return kind[op], waits[op], priority[op], topological.index(op)

        order = most_urgent_first(nodes, pairs, urgent)
        if problem.nodes is not None:
            of = problem.nodes.node.tolist()
            nodes = [[op for op in order if of[op] == node] for node in sorted(set(of))]
        order = most_urgent_first(nodes, pairs, urgent)
    else:
        order = sorted(range(len(placement)), key=lambda op: (kind[op], priority[op], topological.index(op)))
    steps = [False] * len(placement) if problem.collectives is None else problem.collectives.steps.tolist()
    launches = [0] * len(placement) if problem.collectives is None else problem.collectives.launches.tolist()
    issued: dict[int, float] = {}
    threads = [Thread() for _ in problem.cluster.devices]
    latest: dict[int, int] = {}  # by device, of the ops that take time
    for op in order if in_order else []:
        here = placement[op]
        thread = threads[here if host.per_device else 0]
        cost = host.collective * launches[op] + (host_seconds(host, kind[op]) if op_seconds[op][here] > 0 else 0.0)
        sent_to = {(o, placement[v]) for (u, v), control, o in edges if u == op and not control}
        others = [] if steps[op] else [there for _, there in sent_to if there != here]
        sent = [(o, u) for (u, v), control, o in edges if v == op and not control and not steps[u]]
        awaited = [(o, u, here) for o, u in sent if placement[u] != here] if awaits else []
        previous, fetch = None, 0.0
        if awaits and op_seconds[op][here] > 0 and not steps[op]:
            previous = latest.get(here)
            latest[here] = op
            if kind[op] == 0 and (previous is None or kind[previous] != 0):
                fetch = host.fetch
        begins = previous is not None and kind[previous] != kind[op]
        thread.left.append((op, thread.owed + cost + fetch, awaited, previous if begins else None))
        thread.owed = 0.0
        for there in others:
            thread.owed += host.collective
            threads[there if host.per_device else 0].owed += host.collective
    if not in_order:
        order, issued = by_threads(problem, op_seconds, placement, order, [node for node in nodes if node])
    rank = {op: float(place) for place, op in enumerate(order)}
    ops = range(len(order))
    return [rank[op] for op in ops], [issued.get(op, math.inf) for op in ops], threads


def most_urgent_first(
    nodes: list[list[int]], edges: list[tuple[int, int]], urgent: Callable[[int], tuple[float, ...]]
) -> list[int]:
    """Ops node by node, always the node with the most urgent op of those whose producers have been issued."""
    order: list[int] = []
    while len(order) < sum(map(len, nodes)):
        left = [node for node in nodes if node[0] not in order]
        may = [node for node in left if all(u in order or u in node for u, v in edges if v in node)]
        order += min(may, key=lambda node: min(map(urgent, node)))
    return order


def by_threads(
    problem: Problem, op_seconds: Sequence[Sequence[float]], placement: Sequence[int], order: list[int],
    nodes: list[list[int]],
) -> tuple[list[int], dict[int, float]]:  # fmt: skip
    """Rule 8: one process. The order of issue, and when each op has been issued: at the start if nothing issues it."""
    graph, host = problem.graph, problem.host or Host.uniform(1.0)
    edges = list(zip(graph.edges.tolist(), graph.control.tolist(), sent_as(problem), strict=True))
    kind = [min(phase, 2) for phase in graph.phase.tolist()]
    found, issued, clock = list[int](), dict[int, float](), [0.0] * len(problem.cluster)
    deferred = [] if problem.nodes is None else np.flatnonzero(problem.nodes.deferred).tolist()
    slower = [*deferred, *{int(graph.mirror[op]) for op in deferred}]  # gradients, and whose they are
    by_plan = problem.runtime.streams and len(set(placement)) > 1
    called = [by_plan and (k == 0 or name.endswith(".recompute")) for k, name in zip(kind, graph.kinds, strict=True)]

    def issue_op(op: int, thread: int) -> None:
        found.append(op)
        cost = host_seconds(host, kind[op]) + (host.placed if called[op] else 0.0)
        if op_seconds[op][placement[op]] > 0:
            clock[thread] += sum([cost] + [host.deferral] * slower.count(op))
        issued[op] = clock[thread]
        for _, there in {(o, placement[v]) for (u, v), control, o in edges if u == op and not control}:
            clock[thread] += cost if there != placement[op] else 0.0

    for turn in (0, 1, 2):
        clock = [max(clock)] * len(clock)  # the next phase begins when all threads of the last have issued it
        if turn != 1:
            for op in order:
                if kind[op] == turn:
                    issue_op(op, 0)
            continue
        left = sorted((node for node in nodes if kind[node[0]] == 1), key=lambda node: order.index(node[0]))
        under_way: dict[int, list[int]] = {}  # by thread
        while left or under_way:
            waiting = {op for node in [*left, *under_way.values()] for op in node}
            for thread in range(len(clock)):
                may = [node for node in left if placement[node[0]] == thread and thread not in under_way]
                may = [node for node in may if not any(u in waiting - set(node) for (u, v), _, _ in edges if v in node)]
                if may:
                    left.remove(may[0])
                    under_way[thread] = may[0]
                    for op in may[0]:
                        issue_op(op, thread)
            now = min(clock[thread] for thread in under_way)
            under_way = {thread: node for thread, node in under_way.items() if clock[thread] > now}
            clock = [time if thread in under_way else max(time, now) for thread, time in enumerate(clock)]
    return found, issued if problem.host else dict.fromkeys(issued, 0.0)


def sums_of(problem: Problem, placement: Sequence[int], order: list[float]) -> tuple[list[int], list[int]]:
    """What each edge carries, and the op that holds it: a sum from a device to another is one, held by the first op."""
    found, makers = outputs(problem.graph), problem.graph.edges[:, 0].tolist()
    groups: dict[tuple[int, int, int], list[int]] = {}
    for edge, number in enumerate([] if problem.nodes is None else problem.nodes.sums.tolist()):
        if number >= 0:
            source, there = (placement[op] for op in problem.graph.edges[edge])
            groups.setdefault((number, source, there), []).append(edge)
    for group in groups.values():
        maker = min((makers[edge] for edge in group), key=lambda op: order[op])
        for edge in group[::-1]:
            found[edge], makers[edge] = found[group[0]], maker
    return found, makers


def sent_as(problem: Problem) -> list[int]:
    """What each edge carries, where those of a sum carry the same."""
    found = outputs(problem.graph)
    sums = [-1] * len(found) if problem.nodes is None else problem.nodes.sums.tolist()
    return [found[sums.index(number)] if number >= 0 else own for own, number in zip(found, sums, strict=True)]


@dataclass
class Thread:
    """Of one device or, where ops are issued in their order, of all: what it has not issued yet."""

    left: list[tuple[int, float, list[Copy], int | None]] = field(default_factory=list)
    # op, seconds, and what it waits for: copies, and the last op of another pass
    owed: float = 0.0  # seconds for messages since the last op
    clock: float = 0.0

    def issue(self, tasks: dict[Name, Task], sender: dict[Copy, Name], ended: set[Name]) -> None:
        """Issue ops up to one whose messages have not all arrived."""
        while self.left:
            op, seconds, copies, previous = self.left[0]
            awaited = [sender[copy] for copy in copies] + ([] if previous is None else [("op", previous)])
            if not ended.issuperset(awaited):
                return
            self.left.pop(0)
            self.clock = max([self.clock, *(tasks[name].finish for name in awaited)]) + seconds
            tasks["op", op].issued = self.clock


def host_seconds(host: Host, kind: int) -> float:
    """What an op of a phase costs the thread that issues it."""
    return (host.forward, host.backward, host.update)[kind]
