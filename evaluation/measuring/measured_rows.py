"""A simulated step next to the same step as it was measured: by device, by kind of op and by link."""

from dataclasses import dataclass

import numpy as np

from envs.running.measured_run import MeasuredRun
from envs.running.process_memory import Growth


@dataclass(frozen=True)
class TimeComparison:
    """Predicted and measured seconds of one device, kind of op or link."""

    name: str
    predicted: float
    measured: float
    count: int = 1  # of ops or transfers
    bytes: float = 0.0  # that are sent

    @property
    def ratio(self) -> float:
        """Measured over predicted; NaN if nothing was predicted."""
        return self.measured / self.predicted if self.predicted else np.nan


@dataclass(frozen=True)
class DeviceComparison:
    """Predicted and measured times of a device, and how far its memory grows."""

    name: str
    busy: TimeComparison
    idle: TimeComparison
    predicted_growth: float  # bytes beyond the weights, at the peak
    measured_growth: Growth


def device_rows(run: MeasuredRun) -> list[DeviceComparison]:
    """A row per device."""
    steps = run.predicted, run.measured
    busy = [step.busy_seconds for step in steps]
    idle = [step.step_seconds - each for step, each in zip(steps, busy, strict=True)]
    growth = run.predicted.peak_bytes - run.predicted.weight_bytes
    return [
        DeviceComparison(
            device.name,
            TimeComparison("busy", float(busy[0][row]), float(busy[1][row])),
            TimeComparison("idle", float(idle[0][row]), float(idle[1][row])),
            float(growth[row]),
            run.growth[row],
        )
        for row, device in enumerate(run.predicted.problem.cluster.devices)
    ]


def kind_rows(run: MeasuredRun) -> list[TimeComparison]:
    """A row per kind of op that takes time, what took longest first."""
    kinds, kind = np.unique(np.array(run.predicted.problem.graph.kinds), return_inverse=True)
    predicted, measured = (
        np.bincount(kind, step.finish - step.start, minlength=len(kinds)) for step in (run.predicted, run.measured)
    )
    counts = np.bincount(kind, minlength=len(kinds))
    rows = [
        TimeComparison(name, float(one), float(other), int(count))
        for name, one, other, count in zip(kinds.tolist(), predicted, measured, counts, strict=True)
        if one or other
    ]
    return sorted(rows, key=lambda row: (-row.measured, row.name))


def link_rows(run: MeasuredRun) -> list[TimeComparison]:
    """A row per link that is used, with the seconds during which something is on its way there.

    Measured, that begins when a tensor is handed over, and ends when its reader has it.
    """
    size = run.predicted.graph.moved_bytes[run.predicted.transfers.output]
    links = zip(run.predicted.by_link(), run.predicted.link_rows(), run.measured.link_rows(), strict=True)
    return [
        TimeComparison(name, one.busy_seconds, other.busy_seconds, len(mine), float(size[mine].sum()))
        for (name, mine), one, other in links
    ]
