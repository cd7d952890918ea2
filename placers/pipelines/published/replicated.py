"""Replicated: stages and replicas with the least bottleneck, by PipeDream's optimizer (Narayanan et al. 2019).

By section 3.1, A(i, j, m) is the time of the slowest stage, per mini-batch, from cut i to cut j on m machines:

    A(i, j, m) = min( T(i, j, m), min over k, r of max( A(i, k, m - r), T(k, j, r), transfers ) )

In the paper's form the r replicas of a stage exchange gradients while they compute, by the bytes of its first report
(Harlap et al. 2018), and a transfer takes one link:

    T(i, j, r) = max(seconds, 4 (r - 1) weight bytes / (bandwidth r)) / r,  transfer into j's stage: 2 bytes / bandwidth

In the released program's form they do so after computing, and transfers take the links of all replicas of the later
stage, if they count at all: T = (seconds + 4 (r - 1) weight bytes / (bandwidth r)) / r.

Levels are a hierarchy of machines, the innermost first. What a stage computes at a level is done by a pipeline on a
machine of that level: T reads the seconds from A of the level below, for all of its machines.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from envs.simulation.compiled import compiled, inlined
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats, Ints
from placers.pipelines.published.cuts import Cuts


@dataclass(frozen=True)
class LinkLevel:
    """Machines, or groups of machines, that are joined by links of one bandwidth."""

    machines: int
    bandwidth: float  # bytes/s


@dataclass(frozen=True)
class Form:
    """What counts, and which pipelines are looked at."""

    printed: bool = True  # the paper's form, or that of the released program
    transfers: bool = True  # whether they count
    straight: bool = False  # whether no stage has replicas
    memory_bytes: float = np.inf
    """Of a machine, which a stage must fit with what it keeps for all mini-batches in flight. As published, the program
    counts activations and weights of those after the first one alone; of levels, only the innermost counts in ours."""
    versions: bool = True  # whether weights are kept for each of them
    shared: int = 0
    """Mini-batches that the replicas of each stage must divide; 0: any number of replicas will do."""


@dataclass(frozen=True)
class ReplicatedStage:
    """What lies between two cuts, and the replicas of it: (levels,), how many of each level in each of the next one."""

    end: int  # the cut at which it ends
    replicas: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many replicas there are."""
        return int(np.prod(self.replicas))


@dataclass(frozen=True)
class Replicated:
    """The stages of a pipeline in order, and the seconds per mini-batch of the slowest; infinite if there is none."""

    stages: tuple[ReplicatedStage, ...]
    seconds: float


class _Sums(NamedTuple):
    """Of the layers before each cut, (cuts + 1,), the first entry of none."""

    weight_bytes: Floats
    held_bytes: Floats
    kept_bytes: Floats


class _Table(NamedTuple):
    """Of pipelines from before an entry of (cuts + 1,) to a cut on 1, 2, ... machines, (cuts + 1, cuts, machines)."""

    seconds: Floats  # infinite if there is none
    begin: Ints  # the cut after which the last stage begins; -1 if it is the only one
    replicas: Ints  # of the last stage


class _Level(NamedTuple):
    """`Form` and `LinkLevel` for compiled code."""

    bandwidth: float
    beside: float  # of a stage on all machines of the level, how many others share the exchange
    is_last: bool
    printed: bool
    transfers: bool
    straight: bool
    memory_bytes: float
    versions: bool
    shared: int


def partition(cuts: Cuts, levels: Sequence[LinkLevel], form: Form) -> Replicated:
    """The pipeline on all machines with the least bottleneck. Raises InputError without a level."""
    if not levels or any(level.machines < 1 or not level.bandwidth > 0 for level in levels):
        raise InputError("expected levels of at least one machine each, with a positive bandwidth")
    weights, seconds = _from_nothing(cuts.weight_bytes), _from_nothing(cuts.seconds)
    held = _from_nothing(cuts.held_bytes) if form.printed else np.zeros(len(weights))
    sums, compute = _Sums(weights, held, _from_nothing(cuts.kept_bytes)), seconds[None, 1:] - seconds[:, None]
    tables, beside = list[_Table](), 1
    for number, each in enumerate(levels):
        shape = (*compute.shape, each.machines)
        tables.append(_Table(np.full(shape, np.inf), np.full(shape, -1), np.zeros(shape, np.int64)))
        is_limited = not (form.printed and number)
        level = _Level(
            each.bandwidth, 1.0 if form.printed else float(beside), number == len(levels) - 1, form.printed,
            form.transfers, form.straight, form.memory_bytes if is_limited else np.inf, form.versions,
            form.shared,
        )  # fmt: skip
        _fill(np.ascontiguousarray(compute), sums, cuts.sent_bytes, cuts.comes_before, level, tables[-1])
        compute, beside = tables[-1].seconds[:, :, -1], each.machines
    least = float(compute[0, -1])
    if not np.isfinite(least):
        return Replicated((), np.inf)
    return Replicated(tuple(_stages(tables, 0, len(cuts) - 1)), least)


def _from_nothing(totals: Floats) -> Floats:
    """With the sum over no layers before."""
    return np.concatenate([[0.0], totals])


def _stages(tables: Sequence[_Table], first: int, end: int) -> list[ReplicatedStage]:
    """The stages between two cuts on all machines of the outermost of some levels."""
    table, found = tables[-1], list[ReplicatedStage]()
    machines, last = table.seconds.shape[2], False
    while not last:
        begin, replicas = int(table.begin[first, end, machines - 1]), int(table.replicas[first, end, machines - 1])
        last = begin < 0
        inner = [ReplicatedStage(end, ())]
        if len(tables) > 1:
            inner = _stages(tables[:-1], first if last else begin + 1, end)
        found = [ReplicatedStage(stage.end, (*stage.replicas, replicas)) for stage in inner] + found
        end, machines = begin, machines - replicas
    return found


@compiled
def _fill(
    compute: Floats, sums: _Sums, sent_bytes: Floats, comes_before: Bools, level: _Level, table: _Table
) -> None:  # fmt: skip
    """A. `compute`, (cuts + 1, cuts), are seconds on a machine; below the diagonal they mean nothing."""
    begins, ends, machines = table.seconds.shape
    for i in range(begins):
        for j in range(i, ends):
            for replicas in range(1, 2 if level.straight else machines + 1):
                rest = machines - replicas
                if _may(sums, level, i, j, replicas, rest):
                    seconds = _replicated(compute[i, j], sums, level, i, j, replicas, level.beside)
                    table.seconds[i, j, replicas - 1], table.replicas[i, j, replicas - 1] = seconds, replicas
    for i in range(1 if level.is_last else begins):
        for m in range(1, machines):
            for j in range(i + 1, ends):
                for k in range(i, ends):
                    if not comes_before[k, j] or (i > 0 and comes_before[k, i - 1]):
                        continue
                    for replicas in range(1, 2 if level.straight else m + 1):
                        if not _may(sums, level, k + 1, j, replicas, machines - m - 1):
                            continue
                        last = _replicated(compute[k + 1, j], sums, level, k + 1, j, replicas, 1.0)
                        slowest = max(table.seconds[i, k, m - replicas], last)
                        if level.transfers:
                            links = level.bandwidth * (1 if level.printed else replicas)
                            slowest = max(slowest, 2 * sent_bytes[k] / links)
                            if not level.printed and j < ends - 1:
                                slowest = max(slowest, 2 * sent_bytes[j] / links)
                        if slowest < table.seconds[i, j, m]:
                            table.seconds[i, j, m] = slowest
                            table.begin[i, j, m], table.replicas[i, j, m] = k, replicas


@inlined
def _replicated(
    seconds: float, sums: _Sums, level: _Level, first: int, end: int, replicas: int, beside: float
) -> float:
    """T: a mini-batch on one of several replicas of what is before cut `end`, and not before entry `first`."""
    weights = sums.weight_bytes[end + 1] - sums.weight_bytes[first]
    exchange = 4 * (replicas - 1) * weights / (level.bandwidth * replicas) / beside
    return float(max(seconds, exchange) if level.printed else seconds + exchange) / replicas


@inlined
def _may(sums: _Sums, level: _Level, first: int, end: int, replicas: int, later: int) -> bool:
    """Whether a stage can have `replicas`, and fits: `later` machines come after it.

    Each of them has another mini-batch in flight, ceil(later / replicas) at each replica.
    """
    if level.shared % replicas:
        return False
    in_flight = -(-later // replicas)
    weights = sums.weight_bytes[end + 1] - sums.weight_bytes[first] if level.versions else 0.0
    kept = sums.kept_bytes[end + 1] - sums.kept_bytes[first]
    held = sums.held_bytes[end + 1] - sums.held_bytes[first]
    if level.printed:
        held += kept
    return bool(held + in_flight * (weights + kept) <= level.memory_bytes)
