"""The rules of the simulator that Placeto was trained in, in plain Python: a parity case, and a peer to be timed with.

Addanki et al., "Placeto: Learning Generalizable Device Placement Algorithms for Distributed Machine Learning", 2019;
the rules are those of the authors' program (github.com/aravic/generalizable-device-placement, sim/tf_placement_sim):

- A device runs one op at a time, in the order in which they became ready; an op that takes time is followed by a
  launch of 5.7 us.
- The output of an op goes to all other devices that need it in one transfer over the outgoing bus of its device, at
  7,600 bytes/us. Transfers leave a bus in the order in which they were queued, with a gap of 25 us after each.
- A step ends with the last event: trailing launches and gaps count.
- At one instant, arrivals come before buses and buses before devices; what is left of ties is settled by the order
  in which things were queued and by names, hence by how the graph was stored. On inputs without ties nothing is left.

The numbers are the authors', tuned to p2.8xlarge machines (8 K80). The program's data structures are kept, to cost no
more than it does: a heap of events, a heap of what is ready for each device and bus, a table of awaited inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from graphs.op_graph import OpGraph

LAUNCH_SECONDS = 5.7e-6
GAP_SECONDS = 25e-6
BYTES_PER_SECOND = 7600e6

Event = tuple[float, str, int, int]  # seconds, what, and then the device, or of an arrival the producer and consumer


def simulate(
    seconds: Sequence[float],
    output_bytes: Sequence[float],
    producers: Sequence[Sequence[int]],
    consumers: Sequence[Sequence[int]],
    placement: Sequence[int],
) -> float:
    """Seconds of a step, trailing launches and gaps included; PlacetoSimulator describes the arguments."""
    return PlacetoSimulator(seconds, output_bytes, producers, consumers).run(placement)


@dataclass
class Node:
    """An op of the graph."""

    seconds: float
    output_bytes: float
    producers: Sequence[int]
    consumers: Sequence[int]


class PlacetoSimulator:
    """Times placements of one graph.

    `seconds` (ops,) of each op, on any device; `output_bytes` (ops,); `producers` and `consumers` (ops,) the ops at the
    other ends of its edges, each named once.
    """

    def __init__(
        self,
        seconds: Sequence[float],
        output_bytes: Sequence[float],
        producers: Sequence[Sequence[int]],
        consumers: Sequence[Sequence[int]],
    ) -> None:
        self._nodes = [Node(*node) for node in zip(seconds, output_bytes, producers, consumers, strict=True)]

    def run(self, placement: Sequence[int]) -> float:
        """Seconds of a step of a placement, (ops,) devices numbered from 0, trailing launches and gaps included."""
        queues = [(what, device) for what in ("run bus", "run device") for device in range(max(placement) + 1)]
        self._placement = placement
        self._events: list[Event] = []
        self._ready: dict[tuple[str, int], list[tuple[float, int, int]]] = {queue: [] for queue in queues}
        self._is_busy = dict.fromkeys(queues, False)
        self._awaited = {op: dict.fromkeys(node.producers, True) for op, node in enumerate(self._nodes)}
        self._queued = 0
        for op, node in enumerate(self._nodes):
            if not node.producers:
                self._queue(0.0, "run device", placement[op], op)
        now = 0.0
        while self._events:
            now, what, first, second = heappop(self._events)
            if what == "arrive":
                self._arrive(now, first, second)
            elif not self._ready[what, first]:
                self._is_busy[what, first] = False
            elif what == "run bus":
                self._run_bus(now, first)
            else:
                self._run_device(now, first)
        return now

    def _queue(self, seconds: float, what: str, device: int, op: int) -> None:
        """First come, first served; whoever was idle is called up for that time."""
        self._queued += 1
        heappush(self._ready[what, device], (seconds, self._queued, op))
        if not self._is_busy[what, device]:
            self._is_busy[what, device] = True
            heappush(self._events, (seconds, what, device, 0))

    def _arrive(self, now: float, producer: int, consumer: int) -> None:
        awaited = self._awaited[consumer]
        awaited[producer] = False
        if not any(awaited.values()):
            self._queue(now, "run device", self._placement[consumer], consumer)

    def _run_device(self, now: float, device: int) -> None:
        _, _, op = heappop(self._ready["run device", device])
        node = self._nodes[op]
        end = now + node.seconds
        heappush(self._events, (end + LAUNCH_SECONDS if node.seconds > 0 else end, "run device", device, 0))
        leaves = False
        for consumer in node.consumers:
            if self._placement[consumer] == device:
                heappush(self._events, (end, "arrive", op, consumer))
            else:
                leaves = True
        if leaves:
            self._queue(end, "run bus", device, op)

    def _run_bus(self, now: float, device: int) -> None:
        queued, number, op = heappop(self._ready["run bus", device])
        if queued > now:  # its op has been started, but has not ended
            heappush(self._ready["run bus", device], (queued, number, op))
            heappush(self._events, (queued, "run bus", device, 0))
            return
        node = self._nodes[op]
        arrival = now + node.output_bytes / BYTES_PER_SECOND
        for consumer in node.consumers:
            if self._placement[consumer] != device:
                heappush(self._events, (arrival, "arrive", op, consumer))
        heappush(self._events, (arrival + GAP_SECONDS, "run bus", device, 0))


def neighbours(graph: OpGraph) -> tuple[list[list[int]], list[list[int]]]:
    """Producers and consumers of every op."""
    producers: list[list[int]] = [[] for _ in graph.names]
    consumers: list[list[int]] = [[] for _ in graph.names]
    for u, v in graph.edges.tolist():
        producers[v].append(u)
        consumers[u].append(v)
    return producers, consumers
