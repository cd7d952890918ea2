"""The simulator's rules once more, as SimPy processes: a second opinion on times, and what a general library costs.

Written from the rules alone. Every op and every transfer is a process: it waits for what it needs, for its turn, for
its seconds, and keeps its device or channel for the hold. What SimPy leaves open is the order of events of one
instant, which rule 4 settles: everything that ends or arrives comes first, then all that can start does so at once.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from simpy import Environment
from simpy.events import Event, EventPriority

from graphs.cluster import FREE, Device
from graphs.foundation.by_name import Extension
from graphs.problem import Problem
from tests.oracle.oracle import Priority
from tests.oracle.simpy_host import begin_threads, order_of_issue

LAST_OF_THE_INSTANT = EventPriority(2)  # after SimPy's URGENT and NORMAL, which are 0 and 1

# rule 4: priority, ready time, op, destination, output; and how to call it up
Turn = tuple[float, float, int, int, int, Event]
Copy = tuple[int, int, int]  # what is copied (op, or number of ops + number of message), its op, the device it is on


@dataclass(frozen=True)
class Times:
    """When everything happened, in seconds."""

    start: list[float]  # (ops,)
    finish: list[float]  # (ops,)
    copies: dict[Copy, tuple[float, float]]  # start, finish
    step_seconds: float


@dataclass(eq=False)
class Server:
    """A device or a channel: one task at a time, and a queue of those that are ready."""

    queue: list[Turn] = field(default_factory=list)
    is_busy: bool = False
    owed: float = 0.0  # seconds for messages, once what it does has ended


@dataclass(eq=False)
class Task:
    """An op, or a transfer; it ends with `done`."""

    server: Server | None  # None for an op that takes no time, which needs no device
    seconds: float
    hold: float
    order: tuple[float, int, int, int]  # priority, op, destination, output
    done: Event
    needs: list[Event] = field(default_factory=list)
    messages: list[tuple[Server, float]] = field(default_factory=list)  # devices that its end holds, and seconds
    start: float = -1.0
    finish: float = -1.0


def simulate(
    problem: Problem, op_seconds: Sequence[Sequence[float]], placement: Sequence[int], priority: Priority = "fifo"
) -> Times:
    """One step of a placement, (ops,) devices, where op v takes op_seconds[v][device]; with no memory.

    `priority` is "fifo", "longest_path", or a given order, (ops,) numbers. A host, if there is one, has a process for
    each device. Linear in ops and edges without one, some tens of microseconds for each.
    """
    environment, urgency = Environment(), _urgency(problem, op_seconds, priority)
    order = [] if problem.host is None else order_of_issue(problem, urgency)
    if order:
        urgency = [float(place) for _, place in sorted(zip(order, range(len(order)), strict=True))]
    ops, copies = _tasks(environment, problem, op_seconds, placement, urgency)
    if order:
        takes_time, arrived = [op.seconds > 0 for op in ops], {copy: task.done for copy, task in copies.items()}
        ended = [op.done for op in ops]
        issued = begin_threads(environment, problem, takes_time, placement, order, ended, arrived)
        for op, event in zip(ops, issued, strict=True):
            if op.server is not None:
                op.needs.append(event)
    starter = Starter(environment)
    for task in dict.fromkeys([*ops, *copies.values()]):
        environment.process(_work(environment, starter, task))
    environment.run()
    finish = [op.finish for op in ops]
    times = {copy: (task.start, task.finish) for copy, task in copies.items()}
    return Times([op.start for op in ops], finish, times, max(finish))


class LastEvent(Event):
    """Happens at this instant, after all other events of it: scheduled as SimPy's own Timeout schedules itself."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._ok, self._value = True, None
        environment.schedule(self, priority=LAST_OF_THE_INSTANT)


class Starter:
    """Gives the next turn of every server, once all ends and arrivals of an instant have been applied."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._changed: list[Server] = []

    def look_at(self, server: Server) -> None:
        """It has become free, or its queue longer."""
        if not self._changed:
            event = LastEvent(self._environment)
            event.callbacks.append(self._start_all)
        self._changed.append(server)

    def _start_all(self, _: Event) -> None:
        changed, self._changed = self._changed, []
        for server in changed:
            if server.queue and not server.is_busy:
                server.is_busy = True
                heappop(server.queue)[-1].succeed()


def _work(environment: Environment, starter: Starter, task: Task) -> Generator[Event, None, None]:
    """Rules 1 and 3: wait for inputs, wait for the server, occupy it, and hold it."""
    yield from task.needs
    if task.server is None:
        task.start = task.finish = environment.now
        _end(environment, starter, task)
        return
    urgency, op, destination, output = task.order
    turn = environment.event()
    heappush(task.server.queue, (urgency, environment.now, op, destination, output, turn))
    starter.look_at(task.server)
    yield turn
    task.start = environment.now
    yield environment.timeout(task.seconds)
    task.finish = environment.now
    _end(environment, starter, task)
    if task.hold > 0:
        yield environment.timeout(task.hold)
    yield from _be_held(environment, starter, task.server)


def _end(environment: Environment, starter: Starter, task: Task) -> None:
    """A task has ended: what it hands over or has brought holds devices."""
    task.done.succeed()
    for server, seconds in task.messages:
        server.owed += seconds
        if seconds and not server.is_busy:
            server.is_busy = True
            environment.process(_be_held(environment, starter, server))


def _be_held(environment: Environment, starter: Starter, server: Server) -> Generator[Event, None, None]:
    """Messages hold a server, until there are no more."""
    while server.owed:
        owed, server.owed = server.owed, 0.0
        yield environment.timeout(owed)
    server.is_busy = False
    starter.look_at(server)


def _tasks(
    environment: Environment,
    problem: Problem,
    op_seconds: Sequence[Sequence[float]],
    placement: Sequence[int],
    urgency: Sequence[float],
) -> tuple[list[Task], dict[Copy, Task]]:
    """The ops, and the transfer that brings each copy: one for all of them on a multicast channel."""
    cluster, graph = problem.cluster, problem.graph
    sent, message = graph.sent_bytes.tolist(), graph.edge_bytes.tolist()
    channel, latency, bandwidth = cluster.channel.tolist(), cluster.latency.tolist(), cluster.bandwidth.tolist()
    pace = dict(enumerate(problem.pace.tolist()))
    gap, is_multicast = cluster.gap.tolist(), cluster.multicast.tolist()
    devices, channels = [Server() for _ in cluster.devices], [Server() for _ in gap]
    ops = []
    for op, device in enumerate(placement):
        seconds = op_seconds[op][device]
        hold = float(problem.hold_seconds[device]) if seconds > 0 else 0.0
        server = devices[device] if seconds > 0 else None
        ops.append(Task(server, seconds, hold, (urgency[op], op, 0, op), environment.event()))
    copies: dict[Copy, Task] = {}
    multicasts: dict[tuple[int, int], Task] = {}
    last = len(ops) - 1
    for edge, ((u, v), is_control) in enumerate(zip(graph.edges.tolist(), graph.control.tolist(), strict=True)):
        last += int(graph.has_message[edge])
        output, size = (last, message[edge]) if graph.has_message[edge] else (u, sent[u])
        here, there = placement[u], placement[v]
        if is_control or here == there:
            ops[v].needs.append(ops[u].done)
            continue
        if (output, u, there) not in copies:
            along = channel[here][there]
            is_free = along == FREE  # then the transfer has a channel of its own
            is_shared = not is_free and is_multicast[along]
            seconds = (latency[here][there] + size / bandwidth[here][there]) * pace.get(output, 1.0)
            shared = multicasts.get((output, along))
            if shared:
                shared.seconds = max(shared.seconds, seconds)
            order = (urgency[u], u, -1 if is_shared else there, output)
            over, hold = (Server(), 0.0) if is_free else (channels[along], gap[along])
            send = shared or Task(over, seconds, hold, order, environment.event(), [ops[u].done])
            if not shared:
                ops[u].messages.append((devices[here], _message_seconds(cluster.devices[here], size)))
            send.messages.append((devices[there], _message_seconds(cluster.devices[there], size)))
            if is_shared:
                multicasts[output, along] = send
            copies[output, u, there] = send
        ops[v].needs.append(copies[output, u, there].done)
    return ops, copies


def _message_seconds(device: Device, size: float) -> float:
    return device.message_seconds + size * device.message_seconds_per_byte


def _urgency(problem: Problem, op_seconds: Sequence[Sequence[float]], priority: Priority) -> list[float]:
    """(ops,) the smaller goes first: equal, or minus the longest path from the op to the end in mean seconds."""
    priority = priority.name if isinstance(priority, Extension) else priority
    if not isinstance(priority, str):
        return [float(number) for number in priority]
    if priority == "fifo":
        return [0.0] * len(op_seconds)
    consumers: list[list[int]] = [[] for _ in op_seconds]
    for u, v in problem.graph.edges.tolist():
        consumers[u].append(v)
    remaining = [0.0] * len(op_seconds)
    for op in problem.graph.topological_order[::-1].tolist():
        mean = sum(op_seconds[op]) / len(op_seconds[op])
        remaining[op] = mean + max((remaining[v] for v in consumers[op]), default=0.0)
    return [-seconds for seconds in remaining]
