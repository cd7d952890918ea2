"""Data parallelism: every device runs every op on its part of the batch, and gradients are summed up over the devices.

As PyTorch's DistributedDataParallel does it (Li et al. 2020): gradients are summed up in buckets while the backward
pass is still running, whose ops run in the order of the program. An order that puts gradients of weights off would put
off their sums, too. Where a device's part of the batch does not fit, it is run in several micro-batches, whose
gradients are accumulated. All devices are used that the samples divide among, though fewer may be faster.

Devices of unequal speed, or with unequal memory, have shares of the batch by which all of them end together, if that is
faster than equal ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, get_args

import numpy as np

from envs.expansion.shares import are_in_proportion
from envs.pipelines.shares_by_speed import PARTS
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY, BUCKET_BYTES, AllReduceOrDefault, Schedule, Shares, pass_order_of
from envs.simulation.held_memory import HeldMemory
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from graphs.foundation.by_name import Named, unknown
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from placers.contract.whole_plans import (
    accelerators,
    check_divides,
    given_shares,
    most_that_divide,
    why_placements_only,
)
from placers.pipelines.replica_shares import ReplicaCosts, are_alike, improved, of_each

ALL_REDUCE: dict[str, AllReduceOrDefault] = {kind: kind for kind in get_args(AllReduceOrDefault)}
MOST_UNKNOWN = 64  # micro-batches that are tried where it is not known how many samples a step has; ours
EQUAL = "equal"  # shares on devices of unequal speed, too
NEIGHBOURS = 8  # of shares by speed, which are simulated; ours
ONE_BY_ONE = pass_order_of("early_backward_a")  # with one stage: each micro-batch forward and backward in turn


@dataclass(frozen=True)
class DataParallel(Named):
    """Replicas of everything, each for its part of the batch."""

    divides_batch: ClassVar[bool] = True

    devices: int = 0
    """How many devices, the first ones; 0 for all, or as many as the samples of a step can be divided among. CPUs are
    used only if there is nothing else."""
    micro_batches: int = 0
    """Parts of the batch whose gradients are accumulated; 0 for as few as fit, of 1, 2, 4, and so on."""
    all_reduce: str = ""
    """How gradients are summed up: ring, hierarchical, direct, or as NCCL does it, nccl; "" as the runtime does."""
    shares: str = ""
    """How many parts of the batch each device takes, such as 3:1, or `equal`; "" for equal parts on equal devices, and
    otherwise by speed."""
    bucket_bytes: float = BUCKET_BYTES
    """Gradients of this size together are summed up as soon as all of them are there."""

    def __post_init__(self) -> None:
        if self.all_reduce not in ALL_REDUCE:
            raise InputError(f"data_parallel: {unknown('all_reduce', self.all_reduce, ALL_REDUCE)}")
        Schedule(bucket_bytes=self.bucket_bytes)  # refused here, not after a model was captured for it
        if self._given and self.devices not in (0, len(self._given)):
            raise InputError(
                f"data_parallel: shares={self.shares} are of {len(self._given)} devices, and devices={self.devices}; "
                "change one"
            )

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """Of the numbers of micro-batches that might fit, the first that does; each is simulated to see that.

        Without simulations left, the next one is taken, by the memory that activations are estimated to need. Shares by
        speed are then improved in a few more, and compared with equal ones. Raises InputError for more devices than
        there are, samples that cannot be divided, and a problem of placements only.
        """
        if reason := why_placements_only(problem):
            raise InputError(f"data_parallel runs every op on every device, but {reason}; use another placer")
        devices = accelerators(problem.cluster)
        asked = len(self._given) or self.devices
        if asked > len(devices):
            raise InputError(
                f"data_parallel: asked for {asked} devices, cluster {problem.cluster.name!r} has {len(devices)}; "
                "ask for that many or fewer"
            )
        devices = devices[: asked or len(devices)]
        if self.shares or are_alike(problem, devices):
            return self._given_shares(problem, devices, seed, budget)
        by_speed = self._by_speed(problem, devices, seed, budget)
        left = budget - by_speed.simulations - 1
        if self.devices or self.micro_batches or left < 1:
            return by_speed
        equal = self._given_shares(problem, devices, seed, left)
        return self._faster(problem, by_speed, equal)

    @cached_property
    def _given(self) -> Shares:
        return () if self.shares in ("", EQUAL) else given_shares("data_parallel", self.shares)

    def _given_shares(self, problem: Problem, devices: tuple[int, ...], seed: int, budget: int) -> PlacerResult:
        """Equal shares, or those that are given."""
        graph, shares, notes = problem.graph, self._given or (1,) * len(devices), tuple[str, ...]()
        if self.devices or self._given:
            check_divides(graph, "data_parallel", self.micro_batches or 1, len(shares), self._given)
        elif (count := most_that_divide(graph, len(devices))) < len(devices):
            notes = (f"data_parallel: {count} of {len(devices)} devices, the most that a step's samples divide among.",)
            devices, shares = devices[:count], shares[:count]
        if self.micro_batches:
            check_divides(graph, "data_parallel", self.micro_batches, len(shares), self._given)
            plan = self._plan(problem, devices, self.micro_batches, shares)
            return PlacerResult(plan, self.name, seed, notes=notes)
        might = [(micro_batches, shares) for micro_batches in _might_fit(problem, devices, shares)]
        micro_batches, shares, simulations = self._first_that_fits(problem, devices, might, budget)
        plan = self._plan(problem, devices, micro_batches, shares)
        return PlacerResult(plan, self.name, seed, simulations, notes=notes)

    def _by_speed(self, problem: Problem, devices: tuple[int, ...], seed: int, budget: int) -> PlacerResult:
        """Shares by which unequal devices end together."""
        graph = problem.graph
        if self.devices or self.micro_batches:
            check_divides(graph, "data_parallel", self.micro_batches or 1, 1)
        costs = ReplicaCosts.of(problem, devices)
        counts = [self.micro_batches] if self.micro_batches else _counts(problem)
        might = [
            count for count in counts
            if graph.samples % count == 0 and (costs.room.sum() * count >= 1 or self.micro_batches)
        ]  # fmt: skip
        tried = ((count, costs.shares(graph.samples // count or PARTS, count)) for count in might or [1])
        micro_batches, shares, simulations = self._first_that_fits(problem, devices, tried, budget)
        parts = graph.samples // micro_batches or PARTS

        def timed(other: Shares) -> Timeline:
            return simulate(problem, self._plan(problem, devices, micro_batches, other))

        if 0 not in shares:
            shares, more = improved(costs, shares, timed, min(budget - simulations, NEIGHBOURS))
            simulations += more
        plan = self._plan(problem, devices, micro_batches, shares)
        notes = [f"data_parallel: of {parts} parts of a micro-batch go, by speed, {of_each(problem, devices, shares)}."]
        if are_in_proportion(problem):
            notes.append(
                "data_parallel: times were measured with the whole batch, and a share of it is assumed to take that "
                "share."
            )
        return PlacerResult(plan, self.name, seed, simulations, notes=tuple(notes))

    def _first_that_fits(
        self, problem: Problem, devices: tuple[int, ...], tried: Iterable[tuple[int, Shares]], budget: int
    ) -> tuple[int, Shares, int]:
        """The first micro-batches and shares that fit, or the last, or those for which no simulation is left.

        Returns how many were simulated, too.
        """
        simulations = 0
        for micro_batches, shares in tried:
            if simulations == budget:
                break
            simulations += 1
            if simulate(problem, self._plan(problem, devices, micro_batches, shares)).fits:
                break
        return micro_batches, shares, simulations

    def _faster(self, problem: Problem, *results: PlacerResult) -> PlacerResult:
        """The one whose plan takes less: equal shares may be of fewer devices, which are better linked."""
        times = [simulate(problem, result.plan) for result in results]
        best = min(range(len(results)), key=lambda each: (not times[each].fits, times[each].step_seconds))
        return replace(results[best], simulations=sum(result.simulations for result in results) + 1)

    def _plan(self, problem: Problem, devices: tuple[int, ...], micro_batches: int, shares: Shares) -> Plan:
        order = AS_READY if micro_batches == 1 else ONE_BY_ONE
        devices, shares = (
            tuple(each for each, share in zip(of, shares, strict=True) if share) for of in (devices, shares)
        )
        schedule = Schedule(
            micro_batches, order=order, shares=(shares,), all_reduce=ALL_REDUCE[self.all_reduce],
            bucket_bytes=self.bucket_bytes,
        )  # fmt: skip
        return Plan((devices,) * len(problem.graph), PROGRAM, schedule)


build = DataParallel


def _counts(problem: Problem) -> list[int]:
    """The numbers of micro-batches that are tried: powers of two."""
    return [1 << power for power in range((problem.graph.samples or MOST_UNKNOWN).bit_length())]


def _might_fit(problem: Problem, devices: tuple[int, ...], shares: Shares) -> tuple[int, ...]:
    """Numbers of micro-batches with which what is held might fit on each device; the last if with none."""
    state = float(problem.weight_state_bytes.sum())
    held = HeldMemory.of(problem).on_devices(np.zeros(problem.graph.num_units, np.int64))[0]
    limits = problem.cluster.memory_bytes[list(devices)]
    might = tuple(
        micro_batches for micro_batches in _counts(problem)
        if (state + (held - state) * np.array(shares) / (sum(shares) * micro_batches) <= limits).all()
        and most_that_divide(problem.graph, micro_batches, sum(shares)) == micro_batches
    )  # fmt: skip
    return might or (1,)
