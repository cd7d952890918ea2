"""What is asked first of a simulated step: whether it beats one device and fits, and where time and memory go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from envs.expansion.expanded import HELD, Role
from envs.simulation.bounds import lower_bound
from envs.simulation.step_shares import SHARES, StepShares
from envs.timelines.timeline import Timeline
from evaluation.records.formatting import ratio, seconds
from evaluation.tables.alone import Alone, fastest_alone
from graphs.capture.unsent import kept_while
from graphs.op_graph import Floats

SAME = 0.005  # a speed-up this close to one is none
LARGEST = 3  # transfers and tensors that are named


@dataclass(frozen=True, eq=False)
class TimeSpent:
    """What each device spends the step on, and how much it sends."""

    devices: list[str]
    names: list[str]  # of the `SHARES` of the step that any device has
    shares: Floats  # (devices, names) of the step; those of a device add up to 1
    sent: Floats  # (devices,) bytes to other devices; a multicast transfer counts once

    @classmethod
    def of(cls, timeline: Timeline) -> TimeSpent:
        """That of a simulated or measured step."""
        shares = StepShares.of(timeline).seconds / (timeline.step_seconds or 1.0)
        used = np.flatnonzero(shares.any(axis=0)).tolist()
        names = [SHARES[column].replace("_", "-") for column in used]
        return cls(_device_names(timeline), names, shares[:, used], _sent_bytes(timeline))


class Sent(NamedTuple):
    """An output that one device sends to another, in all micro-batches together."""

    what: str  # the op that made it
    source: str
    destination: str
    size: float  # bytes
    times: int  # transfers
    seconds: float  # that these take


class HeldTensor(NamedTuple):
    """A tensor that a device holds when it holds most, in all micro-batches together."""

    what: str  # a weight, or the op that made it
    kind: str
    size: float  # bytes


@dataclass(frozen=True)
class StepSummary:
    """The answers, in numbers. A Gantt chart, a table for the terminal and a report say the same."""

    step_seconds: float
    bound_seconds: float  # which no plan of the same kind can beat (`envs.simulation.bounds`)
    kind: str  # of the plan, as `kind_of` says it
    alone: Alone | None  # the fastest device that holds everything, if one does
    fits: bool
    time: TimeSpent
    sent: tuple[Sent, ...]  # the largest, the largest first
    fullest: str  # the device with the least room left, as a share of its memory
    fullest_bytes: float  # that it holds at its peak
    fullest_limit: float  # that it may hold
    held: tuple[HeldTensor, ...]  # what is largest there, the largest first

    @classmethod
    def of(cls, timeline: Timeline) -> StepSummary:
        """The summary of a simulated step. Raises InputError as `costs_of` does."""
        given = timeline.problem if timeline.expansion is None else timeline.expansion.given
        memory, device_names = timeline.problem.cluster.memory_bytes, _device_names(timeline)
        fullest = int((timeline.peak_bytes / np.maximum(memory, 1.0)).argmax())
        if not np.isfinite(memory).any():
            fullest = int(timeline.peak_bytes.argmax())
        bound = lower_bound(given, None if timeline.expansion is None else timeline.expansion.plan)
        return cls(
            timeline.step_seconds, bound, kind_of(timeline), fastest_alone(given), timeline.fits,
            TimeSpent.of(timeline), largest_sent(timeline)[:LARGEST], device_names[fullest],
            float(timeline.peak_bytes[fullest]), float(memory[fullest]), largest_held(timeline, fullest)[:LARGEST],
        )  # fmt: skip

    @property
    def speedup(self) -> float:
        """How many times as fast as the fastest device alone; NaN where none holds everything."""
        if self.alone is None or self.step_seconds <= 0:
            return float("nan")
        return self.alone.seconds / self.step_seconds

    @property
    def over_alone(self) -> str:
        """The speed-up in a sentence."""
        if self.alone is None:
            return "No device holds everything alone."
        taken = f"The fastest device alone, {self.alone.device}, takes {seconds(self.alone.seconds)}"
        if small := self.alone.too_small:
            taken += f" ({' and '.join(small)} {'has' if len(small) == 1 else 'have'} too little memory)"
        if self.step_seconds <= 0:
            return f"{taken}."
        slower = "; this plan is slower" if self.speedup < 1 - SAME else ""
        return f"{taken}, {ratio(self.speedup)} times as long{slower}."


def kind_of(timeline: Timeline) -> str:
    """The plans of which none can beat the lower bound. Those that divide more may: it is none for all plans."""
    if timeline.expansion is None:
        return "all op placements"
    if timeline.expansion.plan.split:
        return "all plans that divide the same indices"
    return "all plans with as many micro-batches and replicas"


def largest_sent(timeline: Timeline) -> tuple[Sent, ...]:
    """All that is sent between devices, the most bytes first."""
    moved, names, devices = timeline.transfers, _op_names(timeline), _device_names(timeline)
    size = timeline.graph.moved_bytes[moved.output]
    found: dict[tuple[str, int, int], list[float]] = {}
    columns = (moved.producer, moved.source, moved.destination, size, moved.finish - moved.start)
    for producer, source, destination, each, took in zip(*(column.tolist() for column in columns), strict=True):
        entry = found.setdefault((names[producer], source, destination), [0.0, 0, 0.0])
        entry[0], entry[1], entry[2] = entry[0] + each, entry[1] + 1, entry[2] + took
    sent = [
        Sent(name, devices[source], devices[destination], size, int(times), took)
        for (name, source, destination), (size, times, took) in found.items()
    ]
    return tuple(sorted(sent, key=lambda each: (-each.size, each.what, each.source, each.destination)))


def largest_held(timeline: Timeline, device: int) -> tuple[HeldTensor, ...]:
    """All that a device holds when it holds most, the most bytes first: weights with their state, outputs, copies."""
    problem, names = timeline.problem, _op_names(timeline)
    graph = problem.graph
    uses = graph.weight_uses[timeline.placement[graph.weight_uses[:, 0]] == device]
    weights, first = np.unique(uses[:, 1], return_index=True)
    state, gradients = problem.weight_memory.bytes, problem.weight_memory.gradients
    found: dict[tuple[str, str], float] = {}
    for weight, op in zip(weights.tolist(), uses[first, 0].tolist(), strict=True):
        name = graph.weight_names[weight] if graph.weight_names else f"weights of {names[op]}"
        trained = state[weight] > graph.weights[weight]
        key = (name, "weight and its state" if trained else "weight")
        found[key] = found.get(key, 0.0) + float(state[weight])
    roles = None if timeline.expansion is None else timeline.expansion.role
    for op, size, is_work in zip(*(column.tolist() for column in timeline.held_at_peak(device)), strict=True):
        if is_work:
            for key, part in _work(timeline, op, size, names):
                found[key] = found.get(key, 0.0) + part
            continue
        made = "gradient" if gradients[op] else "output" if roles is None else HELD.get(Role(roles[op]), "output")
        key = (names[op], made if timeline.placement[op] == device else "copy of another device's output")
        found[key] = found.get(key, 0.0) + size
    held = [HeldTensor(name, kind, size) for (name, kind), size in found.items() if size > 0]
    return tuple(sorted(held, key=lambda each: (-each.size, each.what, each.kind)))


def _work(timeline: Timeline, op: int, size: float, names: list[str]) -> Iterator[tuple[tuple[str, str], float]]:
    """What an op occupies while it runs: what the model's code keeps, by the ops that made it, and the rest."""
    graph = timeline.graph
    for kept, part in kept_while(graph, graph.autograd.kept_alive if graph.autograd else (), op).items():
        yield (names[kept], "output, kept by the code"), min(part, size)
        size -= min(part, size)
    yield (names[op], "while it runs"), size


def _sent_bytes(timeline: Timeline) -> Floats:
    cluster, moved = timeline.problem.cluster, timeline.transfers
    is_multicast = np.append(cluster.multicast, False)[moved.channel]  # FREE is the last
    once = np.unique(np.stack([moved.output, np.where(is_multicast, -1, moved.destination)]), axis=1, return_index=True)
    size = timeline.graph.moved_bytes[moved.output[once[1]]]
    return np.bincount(moved.source[once[1]], weights=size, minlength=len(cluster)).astype(np.float64)


def _op_names(timeline: Timeline) -> list[str]:
    """(ops,) the name of each op, or of the op of the given graph that it is a copy of."""
    own, expansion = list(timeline.problem.graph.names), timeline.expansion
    if expansion is None:
        return own
    given = expansion.given.graph.names
    return [given[of] if of >= 0 else name for name, of in zip(own, expansion.origin.tolist(), strict=True)]


def _device_names(timeline: Timeline) -> list[str]:
    return [device.name for device in timeline.problem.cluster.devices]
