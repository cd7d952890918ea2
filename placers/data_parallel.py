"""Data parallelism: every device runs every op on its part of the batch, and gradients are summed up over the devices.

As PyTorch's DistributedDataParallel does it (Li et al. 2020): gradients are summed up in buckets while the backward
pass is still running, whose ops run in the order of the program. An order that puts gradients of weights off would put
off their sums, too. Where a device's part of the batch does not fit, it is run in several micro-batches, whose
gradients are accumulated. All devices are used that the samples divide among, though fewer may be faster.
"""

from dataclasses import dataclass
from typing import ClassVar, get_args

import numpy as np

from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY, BUCKET_BYTES, AllReduceOrDefault, Schedule, pass_order_of
from envs.simulation.held_memory import HeldMemory
from envs.simulation.simulator import simulate
from graphs.foundation.by_name import Named, unknown
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from placers.contract.whole_plans import accelerators, check_divides, most_that_divide, why_placements_only

ALL_REDUCE: dict[str, AllReduceOrDefault] = {kind: kind for kind in get_args(AllReduceOrDefault)}
MOST_UNKNOWN = 64  # micro-batches that are tried where it is not known how many samples a step has; ours
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
    bucket_bytes: float = BUCKET_BYTES
    """Gradients of this size together are summed up as soon as all of them are there."""

    def __post_init__(self) -> None:
        if self.all_reduce not in ALL_REDUCE:
            raise InputError(f"data_parallel: {unknown('all_reduce', self.all_reduce, ALL_REDUCE)}")
        Schedule(bucket_bytes=self.bucket_bytes)  # refused here, not after a model was captured for it

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """Of the numbers of micro-batches that might fit, the first that does; each is simulated to see that.

        Without simulations left, the next one is taken, by the memory that activations are estimated to need. Raises
        InputError for more devices than there are, samples that cannot be divided, and a problem of placements only.
        """
        if reason := why_placements_only(problem):
            raise InputError(f"data_parallel runs every op on every device, but {reason}; use another placer")
        devices = accelerators(problem.cluster)
        if self.devices > len(devices):
            raise InputError(
                f"data_parallel: asked for {self.devices} devices, cluster {problem.cluster.name!r} has {len(devices)}"
            )
        graph, notes = problem.graph, list[str]()
        if self.devices:
            devices = devices[: self.devices]
            check_divides(graph, "data_parallel", 1, len(devices))
        elif (count := most_that_divide(graph, len(devices))) < len(devices):
            notes = [f"data_parallel: {count} of {len(devices)} devices, the most that a step's samples divide among."]
            devices = devices[:count]
        if self.micro_batches:
            check_divides(graph, "data_parallel", self.micro_batches, len(devices))
            return PlacerResult(self._plan(problem, devices, self.micro_batches), self.name, seed, notes=tuple(notes))
        simulations = 0
        for micro_batches in _might_fit(problem, devices):
            plan = self._plan(problem, devices, micro_batches)
            if simulations == budget:
                break
            simulations += 1
            if simulate(problem, plan).fits:
                break
        return PlacerResult(plan, self.name, seed, simulations, notes=tuple(notes))

    def _plan(self, problem: Problem, devices: tuple[int, ...], micro_batches: int) -> Plan:
        order = AS_READY if micro_batches == 1 else ONE_BY_ONE
        schedule = Schedule(
            micro_batches, order=order, all_reduce=ALL_REDUCE[self.all_reduce], bucket_bytes=self.bucket_bytes
        )
        return Plan((devices,) * len(problem.graph), PROGRAM, schedule)


build = DataParallel


def _might_fit(problem: Problem, devices: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers of micro-batches with which what is held might fit on each device; the last if with none."""
    state = float(problem.weight_state_bytes.sum())
    held = HeldMemory.of(problem).on_devices(np.zeros(problem.graph.num_units, np.int64))[0]
    limit = problem.cluster.memory_bytes[list(devices)].min()
    most = problem.graph.samples or MOST_UNKNOWN
    might = tuple(
        micro_batches for micro_batches in (1 << power for power in range(most.bit_length()))
        if state + (held - state) / (len(devices) * micro_batches) <= limit
        and most_that_divide(problem.graph, micro_batches, len(devices)) == micro_batches
    )  # fmt: skip
    return might or (1,)
