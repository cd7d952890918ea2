"""What memory a plan takes on each device, and what for; and the kinds of plans that engineers choose from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from envs.plans.plan import Plan
from envs.timelines.timeline import Timeline
from graphs.problem import Problem
from placers.contract.whole_plans import accelerators
from placers.pipelines.offered_degrees import offered_degrees


@dataclass(frozen=True)
class DeviceMemory:
    """What a device holds when it holds most, in bytes."""

    device: str
    limit: float
    peak: float  # the sum of what follows
    weights: float  # and buffers
    state: float  # gradients and optimizer state
    activations: float  # made here, or inputs of the step
    received: float  # copies of what other devices made
    versions: float  # earlier versions of weights
    sums: float  # parts of gradients that are being summed up over replicas
    micro_batches: int  # of how many the activations are; 0 if there is one

    @classmethod
    def of(cls, timeline: Timeline) -> tuple[DeviceMemory, ...]:
        """Each device of a step."""
        found, buffers = [], timeline.given_bytes(grows=False)
        for index, device in enumerate(timeline.problem.cluster.devices):
            peak, weights = timeline.peak(index), float((timeline.weight_bytes + buffers)[index])
            made = max(peak.activations - peak.received, 0.0) + peak.inputs  # not less by rounding
            found.append(
                cls(
                    device=device.name, limit=device.usable_bytes, peak=peak.total, weights=weights,
                    state=peak.state - weights, activations=made, received=peak.received, versions=peak.versions,
                    sums=peak.sums, micro_batches=peak.micro_batches,
                )
            )  # fmt: skip
        return tuple(found)

    @property
    def lacks(self) -> float:
        """Bytes beyond what there is; below 0, what is left."""
        return self.peak - self.limit


@dataclass(frozen=True)
class PlanMemory:
    """A plan of one kind, or why there is none."""

    kind: str
    placer: str
    devices: tuple[DeviceMemory, ...] = ()
    micro_batches: int = 1
    step_seconds: float = np.nan
    notes: tuple[str, ...] = ()  # sentences of the placer on its plan
    refused: str = ""  # a sentence

    @property
    def fits(self) -> bool:
        """Whether no device needs more than it has."""
        return not self.refused and all(device.lacks <= 0 for device in self.devices)

    @property
    def fullest(self) -> DeviceMemory:
        """Of the devices that hold anything, the one that lacks most or, if all have enough, has least left."""
        return max(self.devices, key=lambda device: (device.peak > 0, device.lacks, device.peak))


def usual_plans(problem: Problem) -> list[tuple[str, str]]:
    """Kinds of plans that engineers choose from, and a placer for each that makes sense for a graph on a cluster."""
    cluster = problem.cluster
    offloaded = [("optimizer offloaded", "fsdp:offload=true")] if len({*cluster.is_cpu.tolist()}) == 2 else []
    if len(accelerators(cluster)) == 1:
        return [("single device", "single_device"), ("accumulated gradients", "data_parallel"), *offloaded]
    kinds = {replace(cluster.devices[device], name="") for device in accelerators(cluster)}
    at_once = {"data parallel": "data_parallel:micro_batches=1"}
    if len(kinds) > 1:
        at_once["data parallel, equal shares"] = "data_parallel:micro_batches=1,shares=equal"
    return [
        ("single device", "single_device"),
        ("human expert", "human_expert"),
        *at_once.items(),
        ("data parallel, accumulated", "data_parallel"),
        ("FSDP", "fsdp"),
        *offloaded,
        *offered_degrees(problem).items(),
        ("GPipe", "gpipe"),
        ("GPipe, recomputed", "gpipe:recompute=true"),
        ("1F1B", "gpipe:order=early_backward_a"),
        ("1F1B, recomputed", "gpipe:order=early_backward_a,recompute=true"),
    ]


def kind_as_found(kind: str, plan: Plan) -> str:
    """The kind of a plan, given which one was asked for: data parallelism all of whose parts go to one device is none.

    So it is where a step has a single sample, or a device has no room for the weights.
    """
    if not kind.startswith("data parallel") or len(plan.used) > 1:
        return kind
    return "single device" if plan.schedule.micro_batches == 1 else "single device, accumulated"
