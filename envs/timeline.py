"""Timeline: when every op and transfer of a simulated step ran, and what memory it took."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from envs import gantt
from envs.expansion.expanded import Expansion
from graphs.foundation.quantities import binary_unit
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem


@dataclass(frozen=True, eq=False)
class Transfers:
    """The copies that were made, in order of arrival. Copies by one multicast transfer have one start and finish."""

    producer: Ints  # (transfers,) op whose output or message it is
    output: Ints  # (transfers,) what is sent: the output of the producer, by op, or a message (`OpGraph.edge_output`)
    source: Ints  # (transfers,) device
    destination: Ints  # (transfers,) device
    channel: Ints  # (transfers,) or FREE
    start: Floats  # (transfers,) seconds
    finish: Floats  # (transfers,) seconds

    def __len__(self) -> int:
        return len(self.producer)


@dataclass(frozen=True, eq=False)
class Timeline:
    """One simulated step. All seconds count from its start."""

    problem: Problem
    placement: Ints  # (ops,) device of each op
    start: Floats  # (ops,) seconds
    finish: Floats  # (ops,) seconds
    transfers: Transfers
    step_seconds: float
    peak_bytes: Floats  # (devices,)
    static_bytes: Floats  # (devices,) parameters, gradients and optimizer state, held for the whole step
    fits: bool
    order: str  # under which ops ran: a rule, or "given" (`envs.orders.order_name`)
    expansion: Expansion | None = None  # of a plan that is no op placement; problem and placement are then its own

    @cached_property
    def busy_seconds(self) -> Floats:
        """(devices,) seconds spent on ops, without launch holds."""
        devices = len(self.problem.cluster)
        return np.bincount(self.placement, weights=self.finish - self.start, minlength=devices).astype(np.float64)

    def overflow(self) -> str:
        """Where the plan does not fit, by how much, and what the memory goes to; empty if it fits."""
        sentences = []
        for device, peak, static in zip(self.problem.cluster.devices, self.peak_bytes, self.static_bytes, strict=True):
            if peak > device.memory_bytes:
                parts = "parameters, gradients and optimizer state" if self.problem.graph.is_training else "parameters"
                sentences.append(
                    f"{device.name} needs {_bytes(peak)} of its {_bytes(device.memory_bytes)} "
                    f"({parts} {_bytes(static)}, activations {_bytes(peak - static)} at the peak)"
                )
        return "; ".join(sentences)

    def memory_curve(self, device: int) -> tuple[Floats, Floats]:
        """Times (steps,), from 0, and the bytes held on a device from each time to the next, (steps,)."""
        begin, end, size = self._held(device)
        times, at = np.unique(np.concatenate([[0.0], begin, end]), return_inverse=True)
        change = np.bincount(at, weights=np.concatenate([self.static_bytes[device : device + 1], size, -size]))
        return times, np.cumsum(change)

    def draw(self, width: int = 80) -> str:
        """A Gantt chart in plain text: a row per device, and per channel that was used."""
        return gantt.draw(self.rows(), self.step_seconds, self.problem.graph.names, width)

    def image(self, width: int = 640, row_height: int = 24) -> NDArray[np.uint8]:
        """The same chart as an image, (height, width, 3)."""
        return gantt.image(self.rows(), self.step_seconds, width, row_height)

    def rows(self) -> list[gantt.Row]:
        """What each device did and, after those, each channel and each free link that was used."""
        rows = []
        for index, device in enumerate(self.problem.cluster.devices):
            ops = np.flatnonzero(self.placement == index)
            rows.append(gantt.Row(device.name, ops, self.start[ops], self.finish[ops]))
        moved = self.transfers
        for name, mine in self.by_link():
            rows.append(gantt.Row(name, moved.producer[mine], moved.start[mine], moved.finish[mine], link=True))
        return rows

    def by_link(self) -> Iterator[tuple[str, Ints]]:
        """Each link that was used, as in `Cluster.links`, and its transfers by their start, (transfers there,).

        A link is called by the devices that it joined, or * on a side where they were several: "gpu:0>*".
        """
        moved, cluster = self.transfers, self.problem.cluster
        links = cluster.links[moved.source, moved.destination]
        for link in np.unique(links):
            mine = np.flatnonzero(links == link)
            ends = (np.unique(side[mine]) for side in (moved.source, moved.destination))
            name = ">".join(cluster.devices[end[0]].name if len(end) == 1 else "*" for end in ends)
            yield name, mine[np.argsort(moved.start[mine], kind="stable")]

    def _held(self, device: int) -> tuple[Floats, Floats, Floats]:
        """Start, end and bytes of each tensor that is held on a device, (tensors,) each.

        An output is held from the start of its op, a copy from that of its transfer, until the last op that reads it
        here has ended, and an output until its last transfer has, too.
        """
        graph, moved = self.problem.graph, self.transfers
        reads_here = ~graph.control & (self.placement[graph.edges[:, 1]] == device)
        producer, consumer = graph.edges[reads_here].T
        made_here = self.placement[producer] == device
        read = np.where(made_here, producer, graph.edge_output[reads_here])  # on its own device no message is needed
        read_until = np.zeros(len(graph.occupied_bytes))  # by consumers on this device
        np.maximum.at(read_until, read, self.finish[consumer])
        sent_until = np.zeros(len(graph))
        np.maximum.at(sent_until, moved.producer, moved.finish)
        own = np.flatnonzero(self.placement == device)
        copies = moved.destination == device
        copied = moved.output[copies]
        end = np.maximum(self.finish[own], np.maximum(read_until[own], sent_until[own]))
        return (
            np.concatenate([self.start[own], moved.start[copies]]),
            np.concatenate([end, read_until[copied]]),
            graph.occupied_bytes[np.concatenate([own, copied])],
        )


def _bytes(count: float) -> str:
    size, unit = binary_unit(count)
    return f"{count / size:.1f} {unit}" if size > 1 else f"{count:.0f} bytes"
