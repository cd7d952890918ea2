"""A host that has a process for each device, in SimPy: rule 8 once more, which shares no code with the first oracle.

A thread of each device issues its ops in an order that all of them have in common. For an op it takes what the op
costs, and what the messages did that the device has sent or received since the op before it. A host that waits first
waits for what the op receives and, where a pass begins, for the last op of another phase there.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from simpy import Environment
from simpy.events import Event

from graphs.op_graph import Phase
from graphs.problem import Problem


class Issue(NamedTuple):
    """What a thread does for an op."""

    op: int
    awaited: list[Event]
    seconds: float


def order_of_issue(problem: Problem, urgency: Sequence[float]) -> list[int]:
    """Ops, always the most urgent of those whose producers have been issued; of equal ones, the first in order."""
    graph = problem.graph
    position = {op: place for place, op in enumerate(graph.topological_order.tolist())}
    consumers: list[list[int]] = [[] for _ in position]
    missing = [0] * len(position)
    for u, v in graph.edges.tolist():
        consumers[u].append(v)
        missing[v] += 1
    ready = [(urgency[op], position[op], op) for op in position if missing[op] == 0]
    heapify(ready)
    order = []
    while ready:
        op = heappop(ready)[-1]
        order.append(op)
        for v in consumers[op]:
            missing[v] -= 1
            if missing[v] == 0:
                heappush(ready, (urgency[v], position[v], v))
    return order


def begin_threads(
    environment: Environment, problem: Problem, takes_time: Sequence[bool], placement: Sequence[int],
    order: Sequence[int], ended: Sequence[Event], arrived: Mapping[tuple[int, int, int], Event],
) -> list[Event]:  # fmt: skip
    """(ops,) events that are when each op has been issued. `arrived` is by what is sent, its op, and the device."""
    issued = [environment.event() for _ in placement]
    for device in range(len(problem.cluster)):
        work = _work_of(problem, takes_time, placement, order, device, ended, arrived)
        environment.process(_thread(environment, work, issued))
    return issued


def _thread(environment: Environment, work: list[Issue], issued: Sequence[Event]) -> Generator[Event, None, None]:
    for op, awaited, seconds in work:
        yield from awaited
        yield environment.timeout(seconds)
        issued[op].succeed()


def _work_of(
    problem: Problem, takes_time: Sequence[bool], placement: Sequence[int], order: Sequence[int], device: int,
    ended: Sequence[Event], arrived: Mapping[tuple[int, int, int], Event],
) -> list[Issue]:  # fmt: skip
    """What the thread of a device does, in its order."""
    host, graph, collectives = problem.host, problem.graph, problem.collectives
    assert host is not None
    assert host.per_device
    cost = {Phase.FORWARD: host.forward, Phase.BACKWARD: host.backward}
    is_step = [False] * len(order) if collectives is None else collectives.steps.tolist()
    launches = [0] * len(order) if collectives is None else collectives.launches.tolist()
    messages: dict[int, list[tuple[int, int, int]]] = {}
    for message in arrived:
        messages.setdefault(message[1], []).append(message)
    work, owed, last = list[Issue](), 0.0, -1  # the last op that takes time and is no step
    for op in order:
        if placement[op] == device:
            awaited = []
            seconds = owed + (host.collective * launches[op] + takes_time[op] * cost.get(graph.phase[op], host.update))
            owed = 0.0
            if host.waits:
                received = [each for each in arrived if each[2] == device and not is_step[each[1]]]
                awaited = [arrived[each] for each in received if _reads(problem, op, each)]
            if host.waits and takes_time[op] and not is_step[op]:
                is_forward = graph.phase[op] == Phase.FORWARD
                seconds += host.fetch if is_forward and (last < 0 or graph.phase[last] != Phase.FORWARD) else 0.0
                if last >= 0 and min(graph.phase[last], Phase.UPDATE) != min(graph.phase[op], Phase.UPDATE):
                    awaited.append(ended[last])
                last = op
            work.append(Issue(op, awaited, seconds))
        if not is_step[op]:
            ours = [there for _, _, there in messages.get(op, []) if device in (there, placement[op])]
            owed += host.collective * len(ours)
    return work


def _reads(problem: Problem, op: int, message: tuple[int, int, int]) -> bool:
    """Whether an op reads what was sent."""
    graph, (output, producer, _) = problem.graph, message
    edges = zip(graph.edges.tolist(), graph.edge_output.tolist(), graph.control.tolist(), strict=True)
    return any(edge == [producer, op] and carried == output and not control for edge, carried, control in edges)
