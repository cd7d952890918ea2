"""Timeline: when every op and transfer of a simulated step ran, and what memory it took."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.expansion.expanded import Expansion, Role
from envs.timelines import gantt
from envs.timelines.pass_spans import PassSpans, SpanKind
from graphs.foundation.quantities import binary_unit
from graphs.op_graph import Bools, Floats, Ints, OpGraph
from graphs.problem import Problem

SENT = {False: "= outputs", True: "+ all-reduce"}  # in a chart of passes: by whether it is part of an all-reduce


@dataclass(frozen=True, eq=False)
class Transfers:
    """The copies that were made, in order of arrival. Copies by one multicast transfer have one start and finish."""

    producer: Ints  # (transfers,) op whose output or message it is
    output: Ints  # (transfers,) what is sent: the output of the producer, by op, or a message (`Timeline.edge_output`)
    source: Ints  # (transfers,) device
    destination: Ints  # (transfers,) device
    channel: Ints  # (transfers,) or FREE
    start: Floats  # (transfers,) seconds
    finish: Floats  # (transfers,) seconds

    def __len__(self) -> int:
        return len(self.producer)


class Peak(NamedTuple):
    """What a device holds when it holds most, in bytes."""

    total: float
    static: float  # parameters, optimizer state, buffers and inputs, held for the whole step
    activations: float  # all other outputs and copies
    micro_batches: int = 0  # of how many these are, if there are several
    versions: float = 0.0  # earlier versions of weights
    sums: float = 0.0  # parts of gradients that are being summed up over replicas
    received: float = 0.0  # of the activations, copies of what other devices made
    gradients: float = 0.0  # of parameters, which wait for updates
    inputs: float = 0.0  # of what is held for the whole step, those tensors that grow with the batch

    @property
    def state(self) -> float:
        """Parameters and buffers, with what of gradients and optimizer state is there."""
        return self.static + self.gradients - self.inputs

    def parts(self, written: Callable[[float], str]) -> str:
        """All but the state, as text: "5.1 GiB of 4 micro-batches"."""
        of = f" of {self.micro_batches} micro-batch{'es' * (self.micro_batches > 1)}" if self.micro_batches else ""
        others = [
            (self.versions, "earlier versions of weights"), (self.sums, "sums of gradients"), (self.inputs, "inputs"),
        ]  # fmt: skip
        return written(self.activations) + of + "".join(f", {written(size)} of {what}" for size, what in others if size)


class _Held(NamedTuple):
    """Tensors, (tensors,) each."""

    begin: Floats  # seconds
    end: Floats  # seconds
    size: Floats  # bytes
    producer: Ints  # op
    is_work: Bools  # what an op occupies while it runs, in addition to its output


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
    held_bytes: Floats  # (devices,) parameters, optimizer state, buffers and inputs, held for the whole step
    fits: bool
    order: str  # under which ops ran: a rule, or "given" (`envs.orders.order_name`)
    expansion: Expansion | None = None  # of a plan that is no op placement; problem and placement are then its own

    @property
    def graph(self) -> OpGraph:
        """The op graph with what was sent as its edges (`Problem.as_issued`)."""
        return self.problem.as_issued.graph

    @cached_property
    def edge_output(self) -> Ints:
        """(edges,) what each edge of `graph` carries: `Transfers.output`, if it leads to another device."""
        nodes = self.problem.as_issued.nodes
        return self.graph.edge_output if nodes is None else nodes.edge_output(self.graph, self.placement)

    @cached_property
    def busy_seconds(self) -> Floats:
        """(devices,) seconds spent on ops, without launch holds."""
        devices = len(self.problem.cluster)
        return np.bincount(self.placement, weights=self.finish - self.start, minlength=devices).astype(np.float64)

    def overflow(self) -> str:
        """What the device that lacks most needs, for what, and how many others lack some; empty if the plan fits."""
        if not self.overfull:
            return ""
        worst, others = self.overfull[0], len(self.overfull) - 1
        device, peak = self.problem.cluster.devices[worst], self.peak(worst)
        is_part = device.usable_bytes < device.memory_bytes
        room = f"its {_bytes(device.memory_bytes)}"
        room = f"the {_bytes(device.usable_bytes)} that tensors may take of {room}" if is_part else room
        parts = "parameters, gradients and optimizer state" if self.problem.graph.is_training else "parameters"
        more = f"; {others} other device{'s' * (others > 1)} need{'s' * (others == 1)} more than there is, too"
        return (
            f"{device.name} needs {_bytes(peak.total)} of {room} ({parts} {_bytes(peak.state)}, activations "
            f"{peak.parts(_bytes)} at the peak){more if others else ''}"
        )

    @cached_property
    def overfull(self) -> tuple[int, ...]:
        """Devices that need more memory than they have, what lacks most first."""
        room = np.array([device.usable_bytes for device in self.problem.cluster.devices])
        lacks = self.peak_bytes - room
        return tuple(row for row in np.argsort(-lacks, kind="stable").tolist() if lacks[row] > 0)

    def peak(self, device: int) -> Peak:
        """What a device holds at its peak, or at the first of several."""
        total, static = float(self.peak_bytes[device]), float(self.held_bytes[device])
        producer, size, _ = self.held_at_peak(device)
        is_copy = self.placement[producer] != device
        is_gradient = self.problem.weight_memory.gradients[producer] & ~is_copy
        gradients, rest = float(size[is_gradient].sum()), total - static
        inputs = float(self.given_bytes(grows=True)[device])
        if self.expansion is None:
            received = float(size[is_copy].sum())
            return Peak(total, static, rest - gradients, received=received, gradients=gradients, inputs=inputs)
        is_version, is_sum = self.expansion.role[producer] == Role.VERSION, self.is_sum[producer]
        versions, sums = float(size[is_version].sum()), float(size[is_sum].sum())
        is_activation = ~is_version & ~is_sum & ~is_gradient
        number = self.expansion.micro_batch[producer[is_activation]]
        flying = len(np.unique(number[number >= 0])) if self.expansion.plan.schedule.micro_batches > 1 else 0
        received = float(size[is_activation & is_copy].sum())
        activations = rest - versions - sums - gradients
        return Peak(total, static, activations, flying, versions, sums, received, gradients, inputs)

    def held_at_peak(self, device: int) -> tuple[Ints, Floats, Bools]:
        """The outputs, and copies of others' outputs, that a device holds at its peak, or at the first of several.

        (tensors,) the op that made each, its bytes, and whether it is no output, but what the op occupies in addition
        while it runs; with what is held for the whole step they make up the peak.
        """
        times, amount = self.memory_curve(device)
        at = times[amount.argmax()]
        held = self._held(device)
        here = (held.begin <= at) & (at < held.end) & (held.size > 0)
        return held.producer[here], held.size[here], held.is_work[here]

    @cached_property
    def weight_bytes(self) -> Floats:
        """(devices,) of what is held for the whole step, the parameters alone: no optimizer state."""
        return self._once_per_device(self.problem.graph.weights)

    @cached_property
    def static_bytes(self) -> Floats:
        """(devices,) what training takes whatever the activations: what is held for the whole step, and gradients.

        So ZeRO (Rajbhandari et al. 2020, section 3.1) counts the states of a model: parameters, gradients, each once,
        and optimizer state. Here buffers and inputs are with them.
        """
        return self.held_bytes + self._once_per_device(self.problem.weight_memory.gradient_bytes)

    def _once_per_device(self, size: Floats) -> Floats:
        """(devices,) bytes, where each weight takes those of `size`, (weights,), on every device that reads it."""
        graph, devices = self.problem.graph, len(self.problem.cluster)
        user, weight = graph.weight_uses.T
        device, held = np.divmod(np.unique(self.placement[user] * len(graph.weights) + weight), len(graph.weights) or 1)
        return np.bincount(device, weights=size[held], minlength=devices).astype(np.float64)

    def given_bytes(self, *, grows: bool) -> Floats:
        """(devices,) of what is held for the whole step, the inputs, which grow with the batch, or else the buffers."""
        held, devices = self.problem.graph.held_tensors, len(self.problem.cluster)
        user, tensor = held.uses[held.grows[held.uses[:, 1]] == grows].T
        device, which = np.divmod(np.unique(self.placement[user] * len(held) + tensor), len(held) or 1)
        return np.bincount(device, weights=held.bytes[which], minlength=devices).astype(np.float64)

    def memory_curve(self, device: int) -> tuple[Floats, Floats]:
        """Times (steps,), from 0, and the bytes held on a device from each time to the next, (steps,)."""
        held = self._held(device)
        times, at = np.unique(np.concatenate([[0.0], held.begin, held.end]), return_inverse=True)
        change = np.bincount(at, weights=np.concatenate([[self.held_bytes[device]], held.size, -held.size]))
        return times, np.cumsum(change)

    @cached_property
    def passes(self) -> PassSpans | None:
        """The passes of a plan that is no op placement."""
        return None if self.expansion is None else PassSpans.of(self.expansion, self.start, self.finish)

    @cached_property
    def is_all_reduce(self) -> Bools:
        """(transfers,) whether each carries sums of gradients, or parts of them that are to be summed up."""
        return self.is_sum[self.transfers.producer]

    @cached_property
    def is_sum(self) -> Bools:
        """(ops,) whether the output of each is sent as part of an all-reduce."""
        if self.expansion is None:
            return np.zeros(len(self.placement), np.bool_)
        return np.isin(self.expansion.role, (Role.SUM, Role.SEND))

    def draw(self, width: int = 80) -> str:
        """A Gantt chart in plain text: a row per device, and per channel that was used.

        Of an op placement it shows ops, of other plans passes (`envs.timelines.pass_spans`).
        """
        return self.chart().text(self.step_seconds, width)

    def image(self, width: int = 640, row_height: int = 24) -> NDArray[np.uint8]:
        """The same chart as an image, (height, width, 3)."""
        return gantt.image(self.rows(), self.step_seconds, width, row_height)

    def rows(self) -> list[gantt.GanttRow]:
        """What each device did, op by op, and after those each channel and each free link that was used."""
        rows = []
        for index, device in enumerate(self.problem.cluster.devices):
            ops = np.flatnonzero(self.placement == index)
            rows.append(gantt.GanttRow(device.name, ops, self.start[ops], self.finish[ops]))
        return rows + self.link_rows()

    def link_rows(self) -> list[gantt.GanttRow]:
        """What each channel and each free link that was used carried, by producer."""
        moved = self.transfers
        return [
            gantt.GanttRow(name, moved.producer[mine], moved.start[mine], moved.finish[mine], link=True)
            for name, mine in self.by_link()
        ]

    def chart(self) -> gantt.Chart:
        """What each device did, op by op or, of a plan that is no op placement, pass by pass; and each link."""
        passes = self.passes
        if passes is None:
            return gantt.Chart.of_ops(self.rows(), self.problem.graph.names)
        names = [device.name for device in self.problem.cluster.devices]
        links = [row for row in self.link_rows() if (row.finish > row.start).any()]
        used = [SpanKind(kind) for kind in np.unique(passes.kind).tolist()]
        legend = [f"{kind.letter} {kind.words}" for kind in used] + [f"{gantt.IDLE_MARK} idle"]
        carried = self.is_all_reduce[self.transfers.finish > self.transfers.start]
        legend += [text for is_sum, text in SENT.items() if (carried == is_sum).any()]
        sent = [gantt.Mark(SENT[is_sum][0]) for is_sum in self.is_sum.tolist()]
        marks = [passes.marks] * len(names) + [sent] * len(links)
        return gantt.Chart(passes.rows(names) + links, marks, legend)

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

    def _held(self, device: int) -> _Held:
        """The tensors that are held on a device at some time of the step, besides parameters and their like.

        An output is held from the start of its op, a copy from that of its transfer, until the last op that reads it
        here has ended, and an output until its last transfer has, too.
        """
        graph, moved = self.graph, self.transfers
        reads_here = ~graph.control & (self.placement[graph.edges[:, 1]] == device)
        producer, consumer = graph.edges[reads_here].T
        made_here = self.placement[producer] == device
        read = np.where(made_here, producer, self.edge_output[reads_here])  # on its own device no message is needed
        read_until = np.zeros(len(graph.occupied_bytes))  # by consumers on this device
        np.maximum.at(read_until, read, self.finish[consumer])
        sent_until = np.zeros(len(graph))
        np.maximum.at(sent_until, moved.producer, moved.finish)
        own = np.flatnonzero(self.placement == device)
        copies = moved.destination == device
        copied = moved.output[copies]
        end = np.maximum(self.finish[own], np.maximum(read_until[own], sent_until[own]))
        works = own[graph.working_bytes[own] > 0] if len(graph.working_bytes) else own[:0]
        return _Held(
            np.concatenate([self.start[own], moved.start[copies], self.start[works]]),
            np.concatenate([end, read_until[copied], self.finish[works]]),
            np.concatenate([graph.made_bytes[own], graph.occupied_bytes[copied], graph.working_bytes[works]]),
            np.concatenate([own, moved.producer[copies], works]),
            np.arange(len(own) + len(copied) + len(works)) >= len(own) + len(copied),
        )


def _bytes(count: float) -> str:
    size, unit = binary_unit(count)
    return f"{count / size:.1f} {unit}" if size > 1 else f"{count:.0f} bytes"
