"""Fully sharded data parallelism: replicas that hold what belongs to weights in parts, as ZeRO and FSDP do.

As PyTorch's FullyShardedDataParallel has it, weights are gathered block by block before they are used, and gradients
summed up by reduce-scatters (Rajbhandari et al. 2020; Zhao et al. 2023). The plans are those of `parallel` with
replicas alone.

Where a step does not fit, the batch is divided into as many micro-batches as make it fit; or blocks are computed again
with fewer micro-batches, as few of the first blocks as suffice: whichever is faster. All devices are used that the
samples divide among, which hold equal parts.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import Zero
from envs.simulation.held_memory import HeldMemory
from envs.simulation.simulator import LaidOut
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.op_groups.layer_names import named_blocks
from graphs.problem import Problem
from placers.contract.whole_plans import accelerators, most_that_divide, why_placements_only
from placers.parallel import Parallel
from placers.pipelines.given_stages import pipeline_blocks
from placers.pipelines.merit import INVALID, Merit
from placers.pipelines.micro_batches import doubled, numbers_of


@dataclass(frozen=True)
class Fsdp(Named):
    """Data parallelism whose replicas hold weights, gradients and optimizer state in parts."""

    divides_batch: ClassVar[bool] = True

    zero: Zero = 3
    """What is held in parts: of 1 optimizer state, of 2 gradients too, of 3 weights too."""
    micro_batches: int = 0
    """Parts of the batch whose gradients are accumulated; 0 for as few as fit, of 1, 2, 4, and so on."""
    recompute: Literal["auto", "true", "false"] = "auto"
    """Whether blocks run forward again for the backward pass, all of them; `auto`: some, if that is faster than more
    micro-batches."""

    def __post_init__(self) -> None:
        if self.zero not in (1, 2, 3):
            raise InputError(f"fsdp: zero is {self.zero}; expected 1, 2 or 3, and data_parallel holds all in whole")
        if self.micro_batches < 0:
            raise InputError(f"fsdp: micro_batches is {self.micro_batches}; expected at least 0")

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The fastest of the plans that fit or, if none does, the one that lacks least; each is simulated.

        Without simulations left it is the best so far or, without any, the first. Raises InputError as `parallel`.
        """
        if reason := why_placements_only(problem):
            raise InputError(f"fsdp runs every op on every device, but {reason}; use another placer")
        count = len(accelerators(problem.cluster))
        replicas = most_that_divide(problem.graph, count)
        tried, enough = _Tried(problem, budget), math.inf  # micro-batches with which no block is computed again
        if self.recompute != "true":
            numbers = self._numbers(problem, replicas, again=False)
            plans = ((number, self._plan(problem, replicas, number)) for number in numbers)
            enough = next((number for number, plan in plans if tried.fits(plan)), math.inf)
        if self.recompute == "true" or (self.recompute == "auto" and enough > 1 and _blocks(problem)):
            for number in self._numbers(problem, replicas, again=True):
                if number < enough and tried.fits(self._plan(problem, replicas, number, again=True)):
                    self._with_fewer_blocks(problem, replicas, number, tried)
        notes = [f"fsdp: {replicas} of {count} devices, the most that a step's samples divide among."]
        assert tried.best is not None
        return PlacerResult(
            tried.best, self.name, seed, tried.simulations, notes=tuple(notes) if replicas < count else ()
        )

    def _numbers(self, problem: Problem, replicas: int, *, again: bool) -> list[int]:
        """Micro-batches to try, in ascending order."""
        if self.micro_batches:
            return [self.micro_batches]
        possible = (1, *doubled(numbers_of(problem.graph.samples, replicas), 1))
        least = _least(problem, replicas, again=again)
        return [count for count in possible if count >= least] or [possible[-1]]

    def _plan(self, problem: Problem, replicas: int, micro_batches: int, *, again: bool = False) -> Plan:
        by = Parallel(dp=replicas, micro_batches=micro_batches, recompute=again, zero=self.zero)
        return by.place(problem).plan

    def _with_fewer_blocks(self, problem: Problem, replicas: int, micro_batches: int, tried: _Tried) -> None:
        """Try plans in which the first blocks alone are computed again, a stage of their own; as few as fit."""
        if self.recompute == "true":
            return
        every, block = self._plan(problem, replicas, micro_batches, again=True), pipeline_blocks(problem, "fsdp", 1)

        def fits(count: int) -> bool:
            stages = tuple((block >= count).astype(np.int64)[problem.graph.units].tolist())
            return tried.fits(replace(every, schedule=replace(every.schedule, stages=stages)))

        bisect.bisect_left(range(1, int(block.max()) + 1), x=True, key=fits)


@dataclass
class _Tried:
    """Plans that were simulated, and the best of them."""

    problem: Problem
    budget: int
    simulations: int = 0
    best: Plan | None = None
    merit: Merit = INVALID

    def fits(self, plan: Plan) -> bool:
        """Whether a plan does, as far as is known: without simulations left, it is not. Raises InputError for none."""
        self.best = self.best or plan
        if self.simulations == self.budget:
            return False
        self.simulations += 1
        laid = LaidOut.of(self.problem, plan)
        outcome = laid.simulator().run(laid.placement)
        lacking = np.maximum(outcome.peak_bytes - self.problem.cluster.memory_bytes, 0.0).sum()
        merit = Merit(float(lacking), outcome.step_seconds)
        if merit < self.merit:
            self.best, self.merit = plan, merit
        return not lacking


build = Fsdp


def _blocks(problem: Problem) -> int:
    """How many blocks names show; 0 for none."""
    return int(named_blocks(problem.graph).max()) + 1


def _least(problem: Problem, replicas: int, *, again: bool) -> float:
    """Micro-batches with fewer of which what waits for the backward pass, or a block of it, would not fit alone."""
    state = float(problem.weight_state_bytes.sum())
    held = HeldMemory.of(problem).on_devices(np.zeros(problem.graph.num_units, np.int64))[0]
    blocks = _blocks(problem) if again else 1
    limit = float(problem.cluster.memory_bytes[list(accelerators(problem.cluster))].min())
    return float(held - state) / (replicas * max(blocks, 1) * max(limit, 1.0))
