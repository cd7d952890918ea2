"""Fully sharded data parallelism: replicas that hold what belongs to weights in parts, as ZeRO and FSDP do.

As PyTorch's FullyShardedDataParallel has it, weights are gathered block by block before they are used, and gradients
summed up by reduce-scatters (Rajbhandari et al. 2020; Zhao et al. 2023). The plans are those of `parallel` with
replicas alone, or with `tp` of replicas of shards within servers, as torchtitan combines them.

Where a step does not fit, the batch is divided into as many micro-batches as make it fit; or layers are computed again
with fewer micro-batches, those that save what is lacking in least time: whichever is faster. Where devices wait for
links, some layers are computed again though all fits: weights and gradients are then sent in other parts. Devices hold
equal parts, all that the samples divide among.

Two other ways are tried, and taken where they are faster. Where devices are unequal, or the samples do not divide among
them, all devices take shares of the batch by which they end together; this is tried first. On several servers the
devices of each hold all parts between them (hybrid shards), so that nothing is gathered from other servers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from envs.costs.costs import costs_of
from envs.expansion.servers import by_server
from envs.pipelines.shares_by_speed import PARTS
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import Shares, Zero
from envs.simulation.simulator import LaidOut
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.op_groups.layer_names import named_blocks
from graphs.problem import Problem
from placers.contract.whole_plans import accelerators, given_shares, most_that_divide, why_placements_only
from placers.parallel import Parallel
from placers.pipelines.fewer_layers_again import with_fewer_layers_again
from placers.pipelines.merit import INVALID, Merit
from placers.pipelines.micro_batches import doubled, least_micro_batches, numbers_of
from placers.pipelines.replica_shares import ReplicaCosts, are_alike, of_each
from placers.splits.sequences import along_sequence

WAITING = 1.2  # times the seconds of computing: in a step that takes longer, devices wait for links; ours


@dataclass(frozen=True)
class Fsdp(Named):
    """Data parallelism whose replicas hold weights, gradients and optimizer state in parts."""

    divides_batch: ClassVar[bool] = True

    zero: Zero = 3
    """What is held in parts: of 1 optimizer state, of 2 gradients too, of 3 weights too."""
    micro_batches: int = 0
    """Parts of the batch whose gradients are accumulated; 0 for as few as fit, of 1, 2, 4, and so on."""
    recompute: Literal["auto", "true", "false"] = "auto"
    """Whether blocks run forward again for the backward pass, all of them; `auto`: some, or parts of them such as their
    attention, if that is faster than more micro-batches."""

    shard_group: int = 0
    """Of how many devices each group holds all parts; 0 for all devices, or those of each server if that is faster."""
    tp: int = 1
    """Shards of each replica, which divide columns and rows of weights, and all else along the sequence where they can.
    Parts are of equal replicas, and `zero` is 3."""
    offload: bool = False
    """Whether the nearest CPU updates each device's part of the weights, and has its optimizer state (ZeRO-Offload)."""
    shares: str = ""
    """How many parts of each micro-batch the devices take, such as 3:1; "" for equal parts, or if devices are unequal
    or the samples do not divide among them, those by speed if that is faster."""

    def __post_init__(self) -> None:
        if self.zero not in (1, 2, 3):
            raise InputError(f"fsdp: zero is {self.zero}; expected 1, 2 or 3, and data_parallel holds all in whole")
        if self.micro_batches < 0:
            raise InputError(f"fsdp: micro_batches is {self.micro_batches}; expected at least 0")
        if self.shares:
            given_shares("fsdp", self.shares)
        Parallel(  # refused here, not after a model was captured
            tp=self.tp, zero=self.zero, shard_group=self.shard_group, offload=self.offload, shares=self.shares
        )  # fmt: skip

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The fastest of the plans that fit or, if none does, the one that lacks least; each is simulated.

        Without simulations left it is the best so far or, without any, the first. Raises InputError as `parallel`.
        """
        if reason := why_placements_only(problem):
            raise InputError(f"fsdp runs every op on every device, but {reason}; use another placer")
        devices = accelerators(problem.cluster)
        tried = _Tried(problem, budget)
        for way in self._ways(problem, devices):
            self._try(problem, way, tried)
        assert tried.best is not None
        used, notes = len(tried.best.devices[0]), list[str]()
        if self.tp > 1:
            notes = [f"fsdp: ZeRO-3 over {used // self.tp} replicas of {self.tp} tensor-parallel shards each."]
        if used < len(devices) and not self.shares:
            notes.append(f"fsdp: {used} of {len(devices)} devices, the most that a step's samples divide among.")
        if any(tried.best.schedule.shares):
            shares = tried.best.schedule.shares[0]
            going = of_each(problem, devices[:used], shares)
            notes.append(f"fsdp: of {sum(shares)} parts of a micro-batch go {going}.")
        if tried.best.schedule.shard_group:
            group = tried.best.schedule.shard_group
            notes.append(f"fsdp: ZeRO-{self.zero} within groups of {group} devices, each of which holds all parts.")
        if self.offload:
            names = [problem.cluster.devices[each].name for each in np.unique(problem.cluster.nearest_cpu)]
            notes.append(f"fsdp: {', '.join(names)} update{'s' * (len(names) == 1)} the weights (offload).")
        return PlacerResult(tried.best, self.name, seed, tried.simulations, notes=tuple(notes))

    def _ways(self, problem: Problem, devices: tuple[int, ...]) -> Iterator[_Way]:
        """The ways to divide batch and states that are tried, in that order."""
        samples, group = problem.graph.samples, self.shard_group
        way = _Way(problem, len(devices), self.zero, group, self.offload)
        if self.tp > 1:
            replicas = most_that_divide(problem.graph, max(len(devices) // self.tp, 1))
            sequence = any(along_sequence(problem.graph, self.tp))
            yield replace(way, replicas=replicas, tp=self.tp, sequence=sequence)
            return
        if self.shares:
            shares = given_shares("fsdp", self.shares)
            yield replace(way, replicas=len(shares), shares=shares)
            return
        count = most_that_divide(problem.graph, len(devices))
        takes_shares = len(devices) % (group or 1) == 0 and len(devices) <= (samples or PARTS)
        takes_shares &= count < len(devices) or not are_alike(problem, devices)
        if takes_shares:  # first: with few simulations this is the way that is known
            yield replace(way, by_speed=ReplicaCosts.of(problem, devices, 1 / len(devices)))
        if count > 1 or not takes_shares:
            yield replace(way, replicas=count)
        of_server = _devices_of_servers(problem, devices[:count])
        if not group and 1 < of_server < count:
            yield replace(way, replicas=count, shard_group=of_server)

    def _try(self, problem: Problem, way: _Way, tried: _Tried) -> None:
        """Try plans that divide batch and states in one way."""
        enough, kept = math.inf, INVALID  # micro-batches with which no block is computed again, and what that is worth
        if self.recompute != "true":
            judged = ((count, tried.judged(way.plan(count))) for count in self._numbers(problem, way, again=False))
            enough, kept = next((each for each in judged if each[1].lacking <= 0), (enough, kept))
        if self.recompute == "true" or (self.recompute == "auto" and _blocks(problem)):
            most = enough if kept.value > WAITING * _computing(problem) else enough - 1
            numbers = [number for number in self._numbers(problem, way, again=True) if number <= most]
            whole = [way.plan(number, again=True) for number in numbers]
            fitting = [(plan, merit) for plan in whole if (merit := tried.judged(plan)).lacking <= 0]
            if self.recompute == "auto":
                with_fewer_layers_again(problem, fitting, tried.judged, kept.value)

    def _numbers(self, problem: Problem, way: _Way, *, again: bool) -> list[int]:
        """Micro-batches to try, in ascending order."""
        if self.micro_batches:
            return [self.micro_batches]
        possible = (1, *doubled(way.micro_batches or (1,), 1))
        least = least_micro_batches(problem, way.replicas * way.tp) / (max(_blocks(problem), 1) if again else 1)
        return [count for count in possible if count >= least] or [possible[-1]]


@dataclass(frozen=True)
class _Way:
    """How many replicas there are, and how these divide the batch, and what belongs to weights."""

    problem: Problem
    replicas: int
    zero: Zero
    shard_group: int
    offload: bool
    shares: Shares = ()
    tp: int = 1
    sequence: bool = False
    by_speed: ReplicaCosts | None = None
    """What shares are found by, if they are not given."""

    @property
    def micro_batches(self) -> tuple[int, ...]:
        """The numbers of them that leave each replica its part, in ascending order."""
        samples = self.problem.graph.samples
        if self.by_speed is None:
            return numbers_of(samples, sum(self.shares) or self.replicas)
        return tuple(count for count in numbers_of(samples) if (samples or PARTS) // count >= self.replicas)

    def plan(self, micro_batches: int, *, again: bool = False) -> Plan:
        """With so many micro-batches, whose blocks run forward again, or not. Raises InputError as `parallel`."""
        shares = self.shares
        if self.by_speed is not None:
            shares = self.by_speed.shares(self.problem.graph.samples // micro_batches or PARTS, micro_batches)
        by = Parallel(
            dp=self.replicas, tp=self.tp, sequence=self.sequence, micro_batches=micro_batches, recompute=again,
            zero=self.zero, shard_group=self.shard_group, offload=self.offload, shares=":".join(map(str, shares)),
        )  # fmt: skip
        return by.place(self.problem).plan


@dataclass
class _Tried:
    """Plans that were simulated, and the best of them."""

    problem: Problem
    budget: int
    simulations: int = 0
    best: Plan | None = None
    merit: Merit = INVALID

    def judged(self, plan: Plan) -> Merit:
        """What the fullest device lacks, less than 0 if it has room, and seconds; INVALID without simulations left."""
        self.best = self.best or plan
        if self.simulations == self.budget:
            return INVALID
        self.simulations += 1
        laid = LaidOut.of(self.problem, plan)
        outcome = laid.simulator().run(laid.placement)
        over = outcome.peak_bytes - self.problem.cluster.memory_bytes
        merit = Merit(float(np.maximum(over, 0.0).sum()), outcome.step_seconds)
        if merit < self.merit:
            self.best, self.merit = plan, merit
        return Merit(float(over[list(plan.devices[0])].max()), outcome.step_seconds)


build = Fsdp


def _computing(problem: Problem) -> float:
    """The least seconds that all devices take together for a step's ops."""
    seconds = costs_of(problem).op_seconds.sum(axis=0)[list(accelerators(problem.cluster))]
    return float(1 / (1 / seconds).sum())


def _devices_of_servers(problem: Problem, devices: tuple[int, ...]) -> int:
    """How many devices each server has, if they are as many on each and follow one another; else 0."""
    position, server = by_server(problem.cluster, devices)
    of_device, each = np.empty_like(server), np.bincount(server)
    of_device[position] = server
    return int(each[0]) if (each == each[0]).all() and (np.diff(of_device) >= 0).all() else 0


def _blocks(problem: Problem) -> int:
    """How many blocks names show; 0 for none."""
    return int(named_blocks(problem.graph).max()) + 1
