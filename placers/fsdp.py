"""Fully sharded data parallelism: replicas that hold what belongs to weights in parts, as ZeRO and FSDP do.

As PyTorch's FullyShardedDataParallel has it, weights are gathered block by block before they are used, and gradients
summed up by reduce-scatters (Rajbhandari et al. 2020; Zhao et al. 2023). The plans are those of `parallel` with
replicas alone.

Where a step does not fit, the batch is divided into as many micro-batches as make it fit, or blocks are computed again,
in as many as that takes: whichever is faster. All devices are used that the samples divide among, which hold equal
parts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
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
    """Whether blocks run forward again for the backward pass; `auto`: if that is faster than more micro-batches."""

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
        replicas = most_that_divide(problem.graph, len(accelerators(problem.cluster)))
        best, least, simulations, enough = None, INVALID, 0, 0  # micro-batches that are
        for again in (False, True):
            for micro_batches, plan in self._plans(problem, replicas, again=again):
                best = best or plan
                if simulations == budget or (enough and micro_batches >= enough):
                    break
                simulations += 1
                merit = _merit(problem, plan)
                if merit < least:
                    best, least = plan, merit
                if not merit.lacking:
                    enough = micro_batches
                    break
        if best is None:  # as `parallel` says why
            best = self._plan(problem, replicas, self.micro_batches or 1, again=self.recompute == "true")
        count = len(accelerators(problem.cluster))
        notes = [f"fsdp: {replicas} of {count} devices, the most that a step's samples divide among."]
        return PlacerResult(best, self.name, seed, simulations, notes=tuple(notes) if replicas < count else ())

    def _plans(self, problem: Problem, replicas: int, *, again: bool) -> Iterator[tuple[int, Plan]]:
        """Plans with ever more micro-batches, and these; none if blocks shall not or cannot be computed again."""
        if self.recompute not in ("auto", str(again).lower()):
            return
        numbers = [self.micro_batches]
        if not self.micro_batches:
            possible = (1, *doubled(numbers_of(problem.graph.samples, replicas), 1))
            least = _least(problem, replicas, again=again)
            numbers = [count for count in possible if count >= least] or [possible[-1]]
        for micro_batches in numbers:
            try:
                yield micro_batches, self._plan(problem, replicas, micro_batches, again=again)
            except InputError:
                return

    def _plan(self, problem: Problem, replicas: int, micro_batches: int, *, again: bool) -> Plan:
        by = Parallel(dp=replicas, micro_batches=micro_batches, recompute=again, zero=self.zero)
        plan = by.place(problem).plan
        plan.check(problem)
        return plan


build = Fsdp


def _least(problem: Problem, replicas: int, *, again: bool) -> float:
    """Micro-batches with fewer of which what waits for the backward pass, or a block of it, would not fit alone."""
    state = float(problem.weight_state_bytes.sum())
    held = HeldMemory.of(problem).on_devices(np.zeros(problem.graph.num_units, np.int64))[0]
    blocks = int(named_blocks(problem.graph).max()) + 1 if again else 1
    limit = float(problem.cluster.memory_bytes[list(accelerators(problem.cluster))].min())
    return float(held - state) / (replicas * max(blocks, 1) * max(limit, 1.0))


def _merit(problem: Problem, plan: Plan) -> Merit:
    """What a plan lacks in memory, and the seconds of its step."""
    laid = LaidOut.of(problem, plan)
    outcome = laid.simulator().run(laid.placement)
    lacking = np.maximum(outcome.peak_bytes - problem.cluster.memory_bytes, 0.0).sum()
    return Merit(float(lacking), outcome.step_seconds)
