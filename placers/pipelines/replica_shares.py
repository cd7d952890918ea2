"""Replica shares: which shares of the batch replicas of a whole model take on devices of unequal speed or memory.

A device takes seconds for each sample, and others that do not depend on how many there are: launches, weights that are
read, updates. Memory says how many samples it holds at once. What that leaves out, as when gradients are summed up, is
found out by simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from envs.costs.costs import costs_of
from envs.expansion.expanded import Role
from envs.pipelines.layers import seconds_of_shares
from envs.pipelines.shares_by_speed import shares_by_speed
from envs.plans.schedule import Shares
from envs.simulation.held_memory import HeldMemory
from envs.timelines.timeline import Timeline
from graphs.op_graph import Floats, Phase
from graphs.problem import Problem


@dataclass(frozen=True, eq=False)
class ReplicaCosts:
    """What replicas of a whole model cost on some devices, (devices,) each."""

    per_batch: Floats  # seconds in proportion to the share
    fixed: Floats  # seconds of each micro-batch, whatever the share
    once: Floats  # seconds of the step
    room: Floats  # the share of the batch that fits at once, as far as is estimated; it may be more than 1

    @classmethod
    def of(cls, problem: Problem, devices: Sequence[int], stored: float = 1.0) -> ReplicaCosts:
        """By the cost model of the problem; each device stores such a share of what belongs to weights."""
        of_batch, fixed = seconds_of_shares(problem, list(devices))
        is_once = problem.graph.phase >= Phase.UPDATE
        state = float(problem.weight_state_bytes.sum())
        held = HeldMemory.of(problem).on_devices(np.zeros(problem.graph.num_units, np.int64))[0] - state
        room = (problem.cluster.memory_bytes[list(devices)] - stored * state) / max(held, 1e-9)
        per_batch, of_each = (each[~is_once].sum(axis=0) for each in (of_batch, fixed))
        return cls(per_batch, of_each, (of_batch + fixed)[is_once].sum(axis=0), np.clip(room, 0.0, None))

    def of_groups(self, size: int) -> ReplicaCosts:
        """Of replicas of so many devices each, which follow one another and divide ops: each is as its slowest device.

        What devices of a group do in whole, and add up, counts as if it were divided.
        """
        slowest = (each.reshape(-1, size).max(axis=1) / size for each in (self.per_batch, self.fixed, self.once))
        per_batch, fixed, once = slowest
        return ReplicaCosts(per_batch, fixed, once, self.room.reshape(-1, size).min(axis=1) * size)

    def shares(self, parts: int, micro_batches: int) -> Shares:
        """(devices,) how many of so many parts of a micro-batch each takes; all of them together are the parts.

        At least one, where there are as many; else the devices that would end last have none. What does not fit
        anywhere is divided as if it did.
        """
        per_part, fixed = self.per_batch / parts, self.fixed * micro_batches + self.once
        return shares_by_speed(per_part, fixed, parts, np.floor(self.room * parts * micro_batches))


def are_alike(problem: Problem, devices: Sequence[int]) -> bool:
    """Whether devices are equally fast in all ops of a problem, and have as much memory."""
    seconds = costs_of(problem).op_seconds[:, list(devices)]
    of_device = problem.hold_seconds[list(devices)], problem.cluster.memory_bytes[list(devices)]
    return bool((seconds == seconds[:, :1]).all() and all((each == each[0]).all() for each in of_device))


def of_each(problem: Problem, devices: Sequence[int], shares: Shares) -> str:
    """The shares of devices, by their names."""
    names = (problem.cluster.devices[device].name for device in devices)
    return ", ".join(f"{share} to {name}" for name, share in zip(names, shares, strict=True))


def improved(costs: ReplicaCosts, shares: Shares, timed: Callable[[Shares], Timeline], most: int) -> tuple[Shares, int]:
    """Shares that are no slower, and how many were simulated, at most so many, by `timed`.

    Parts go from the replica that ends its backward pass last to the one that ends first, as many as would let both
    end together, or fewer.
    """
    if most < 1:
        return shares, 0
    best, per_part, amount, simulated = timed(shares), costs.per_batch / sum(shares), 0, 1
    while simulated < most:
        ends = _ends(best, len(shares))
        last, first = int(ends.argmax()), int(ends.argmin())
        gap = float(ends[last] - ends[first]) / max(float(per_part[last] + per_part[first]), 1e-30)
        amount = min(amount or max(round(gap), 1), shares[last] - 1)
        if amount < 1 or last == first:
            break
        change = {last: -amount, first: amount}
        other = tuple(each + change.get(replica, 0) for replica, each in enumerate(shares))
        found, simulated = timed(other), simulated + 1
        if _merit(found) < _merit(best):
            best, shares, amount = found, other, 0
        elif amount == 1:
            break
        else:
            amount //= 2
    return shares, simulated


def _merit(timeline: Timeline) -> tuple[float, float]:
    """Bytes that devices lack, and the seconds of a step."""
    lacking = np.maximum(timeline.peak_bytes - timeline.problem.cluster.memory_bytes, 0.0).sum()
    return float(lacking), timeline.step_seconds


def _ends(timeline: Timeline, replicas: int) -> Floats:
    """(replicas,) when each has ended its backward passes."""
    assert timeline.expansion is not None
    expansion, found = timeline.expansion, np.zeros(replicas)
    these = (expansion.problem.graph.phase < Phase.UPDATE) & (expansion.role == Role.WORK)
    np.maximum.at(found, expansion.replica[these], timeline.finish[these])
    return found
