"""What processes recorded of a step, as a `Timeline`: of the same type as the simulated one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from envs.running.running_step import Span, StepRecord
from envs.timelines.timeline import Timeline, Transfers
from graphs.op_graph import Floats


@dataclass(frozen=True)
class RecordedStep:
    """A step in one process, by a clock that all share."""

    began: float  # seconds
    ended: float  # seconds
    loss: float  # the part that was computed here
    record: StepRecord

    def since_began(self) -> RecordedStep:
        """By a clock that was 0 when it began: that of all processes, as far as they begin at once."""
        zero = self.began
        spans = [Span(op, start - zero, finish - zero) for op, start, finish in self.record.spans]
        messages = [each._replace(start=each.start - zero, finish=each.finish - zero) for each in self.record.messages]
        return RecordedStep(0.0, self.ended - zero, self.loss, StepRecord(spans, messages))


def measured_timeline(predicted: Timeline, processes: Sequence[RecordedStep]) -> Timeline:
    """The step that processes recorded, (devices,), whose simulation is `predicted`.

    It has the same ops and transfers. Ops of which there is no record, as of those that take no time, end where what
    they read is there. A transfer of which there is none is taken to last from the end of its op until it was read.
    Peaks are what the simulator's rule holds at these times.
    """
    zero = min(process.began for process in processes)
    start, finish = _spans(predicted, processes, zero)
    sent = _messages(predicted, processes, zero)  # (transfers, 2)
    _fill(predicted, start, finish, sent)
    known = predicted.transfers
    order = np.lexsort((known.output, known.destination, known.producer, sent[:, 1]))
    transfers = Transfers(
        known.producer[order], known.output[order], known.source[order], known.destination[order],
        known.channel[order], sent[order, 0], sent[order, 1],
    )  # fmt: skip
    step_seconds = max(process.ended for process in processes) - zero
    measured = replace(predicted, start=start, finish=finish, transfers=transfers, step_seconds=step_seconds)
    cluster = predicted.problem.cluster
    peaks = np.array([measured.memory_curve(device)[1].max() for device in range(len(cluster))])
    return replace(measured, peak_bytes=peaks, fits=bool((peaks <= cluster.memory_bytes).all()))


def _spans(predicted: Timeline, processes: Sequence[RecordedStep], zero: float) -> tuple[Floats, Floats]:
    """(ops,) start and finish, NaN without a record; what ran in several pieces from the first to the last."""
    spans = [span for process in processes for span in process.record.spans]
    op = np.array([span.op for span in spans], np.int64)
    start, finish = (np.full(len(predicted.placement), empty) for empty in (np.inf, -np.inf))
    np.minimum.at(start, op, np.array([span.start for span in spans]) - zero)
    np.maximum.at(finish, op, np.array([span.finish for span in spans]) - zero)
    unknown = np.isinf(start)
    start[unknown] = finish[unknown] = np.nan
    return start, finish


def _messages(predicted: Timeline, processes: Sequence[RecordedStep], zero: float) -> Floats:
    """(transfers, 2) start and finish, NaN without a record; an op with several outputs sends several messages."""
    known = predicted.transfers
    keys = zip(known.output.tolist(), known.destination.tolist(), strict=True)
    number = {key: transfer for transfer, key in enumerate(keys)}
    found = np.full((len(known), 2), np.nan)
    for process in processes:
        for message in process.record.messages:
            transfer = number[message.output, message.destination]
            times = message.start - zero, message.finish - zero
            found[transfer] = np.fmin(found[transfer, 0], times[0]), np.fmax(found[transfer, 1], times[1])
    return found


def _fill(predicted: Timeline, start: Floats, finish: Floats, sent: Floats) -> None:
    """Give what has no record its times: ops in the order of the graph, then transfers."""
    graph, placement, moved = predicted.graph, predicted.placement, predicted.transfers
    keys = zip(moved.output.tolist(), moved.destination.tolist(), strict=True)
    arrives = {key: float(sent[transfer, 1]) for transfer, key in enumerate(keys)}
    of_op: list[list[int]] = [[] for _ in range(len(graph))]
    for edge, consumer in enumerate(graph.edges[:, 1].tolist()):
        of_op[consumer].append(edge)
    missing = np.isnan(start)
    for op in graph.topological_order.tolist():
        if missing[op]:
            ready = 0.0
            for edge in of_op[op]:
                producer = int(graph.edges[edge, 0])
                arrived = arrives.get((int(predicted.edge_output[edge]), int(placement[op])), np.nan)
                crosses = placement[producer] != placement[op] and not graph.control[edge]
                ready = max(ready, arrived if crosses and not np.isnan(arrived) else float(finish[producer]))
            start[op] = finish[op] = ready
    unseen = np.isnan(sent[:, 0])
    sent[unseen, 0] = finish[moved.producer[unseen]]
    read = _first_read(predicted, start)
    sent[unseen, 1] = [
        max(read[key], float(begin))
        for key, begin in zip(
            zip(moved.output[unseen].tolist(), moved.destination[unseen].tolist(), strict=True),
            sent[unseen, 0],
            strict=True,
        )
    ]


def _first_read(predicted: Timeline, start: Floats) -> dict[tuple[int, int], float]:
    """When each output, or message, was first read on each device, in seconds."""
    graph, found = predicted.graph, dict[tuple[int, int], float]()
    consumers = graph.edges[:, 1]
    keys = zip(predicted.edge_output.tolist(), predicted.placement[consumers].tolist(), strict=True)
    for key, time in zip(keys, start[consumers].tolist(), strict=True):
        found[key] = min(found.get(key, np.inf), time)
    return found
