"""Sailor's scenarios as problems of placelab's planner, and its plans in Sailor's terms.

Sailor's simulator runs equal replicas of a pipeline, in micro-batches whose times were measured. So the planner plans
one replica: its devices are groups of GPUs, whose layers were measured together, and the update of a layer takes as
long as Sailor's simulator says that replicas add up its gradients.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, product
from typing import NamedTuple

import numpy as np

from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from evaluation.studies.published.sailor_rivals import (
    MOST_STAGES,
    SAMPLES,
    Gpus,
    counts_of_replicas,
    groups_of,
)
from evaluation.studies.published.sailor_simulator import (
    ACTIVATIONS,
    BYTES_PER_PARAMETER,
    FLOAT,
    LAYERS,
    OUTPUTS,
    PARAMETERS,
    WEST,
    Group,
    Pipeline,
    Pool,
    SailorSimulator,
    Stage,
    kind_of,
)
from graphs.cluster import Cluster, Device
from graphs.descriptions.another_batch import with_batch
from graphs.devices.topology import named_by_kind
from graphs.formats.pipedream import LayerProfile, ProfiledLayer
from graphs.op_graph import Floats, OpGraph
from graphs.op_graph.batch_law import BatchLaw
from graphs.problem import Problem

LATENCY = 10e-6  # seconds
PEAK, TRAFFIC = 19.5e12, 1.5e12  # FLOP/s, bytes/s; layers are measured, so nothing depends on them
STATE = 4 * FLOAT  # bytes that the engine stores of a parameter: weight, gradient, Adam's moments


class Scenario(NamedTuple):
    """GPUs of a trace of Sailor's."""

    name: str
    gpus: Gpus
    source: str  # in simulations/configs

    @property
    def file(self) -> str:
        """The name of its files."""
        return self.name.replace(", ", "-").replace(" ", "_")


A100, V100, FAR_A100 = Pool("A100-40"), Pool("V100-16"), Pool("A100-40", WEST)
SCENARIOS = (
    *(Scenario(f"{n} A100", {A100: n}, "gpu_trace_scaled.csv") for n in (32, 80, 128)),
    *(
        Scenario(f"{n} A100, {3 * n} V100", {A100: n, V100: 3 * n}, "gpu_trace_heterogeneous_imbalanced.csv")
        for n in (32, 80, 128)
    ),
    *(
        Scenario(f"{4 * n} A100, {n} A100 far away", {A100: 4 * n, FAR_A100: n}, "gpu_trace_multizone.csv")
        for n in (32, 80, 128)
    ),
    Scenario("256 A100, 256 V100", {A100: 256, V100: 256}, "gpu_trace_2zones_2gpus.csv"),
)


class Choice(NamedTuple):
    """What Sailor's simulator takes as given: how many replicas, of which groups each, in micro-batches of samples."""

    replicas: int
    groups: tuple[Group, ...]
    samples: int

    @classmethod
    def of(cls, pipeline: Pipeline) -> "Choice":
        """That of a pipeline of unmixed stages."""
        return cls(pipeline.replicas, tuple(stage.groups[0] for stage in pipeline.stages), pipeline.samples)


def choices(simulator: SailorSimulator, gpus: Gpus) -> list[Choice]:
    """All of them, those first that promise most."""
    found = list[Choice]()
    for samples in SAMPLES:
        pools = groups_of(simulator, gpus, samples)
        for replicas in counts_of_replicas(simulator, samples, sum(gpus.values())):
            each = [_sets(some, count // replicas) for some, count in zip(pools, gpus.values(), strict=True)]
            for sets in product(*each):
                groups = tuple(group for some in sets for group in some)
                if groups and _may_fit(simulator, groups):
                    found.append(Choice(replicas, groups, samples))
    return sorted(found, key=partial(_promise, simulator))


def workload(simulator: SailorSimulator, choice: Choice) -> tuple[OpGraph, Cluster]:
    """One replica for placelab, whose samples are micro-batches, since their times cannot be divided."""
    micro_batches = simulator.micro_batches(Pipeline((), choice.replicas, choice.samples))
    return with_batch(_graph(simulator, choice), micro_batches), _cluster(simulator, choice)


def pipeline_of(plan: Plan, problem: Problem, choice: Choice) -> Pipeline | None:
    """A plan in Sailor's terms; None if it has none for it."""
    schedule = plan.schedule
    runs = [(devices, len([*some])) for devices, some in groupby(plan.devices[:LAYERS])]
    used = [device for devices, _ in runs for device in devices]
    again = len(runs[0][0])  # replicas of the replica
    in_whole = not (schedule.recompute or plan.split or any(len(set(shares)) > 1 for shares in schedule.shares))
    if not in_whole or len(set(used)) < len(used) or any(len(devices) != again for devices, _ in runs):
        return None
    if schedule.micro_batches * again != problem.graph.samples:
        return None
    stages, begin = list[Stage](), 0
    for devices, count in runs:
        groups = {choice.groups[device] for device in devices}
        stages.append(Stage(range(begin, begin + count), tuple(sorted(groups))))
        begin += count
    return Pipeline(tuple(stages), choice.replicas * again, choice.samples)


def plan_of(pipeline: Pipeline, problem: Problem) -> Plan:
    """A pipeline of unmixed stages for the engine, in the order of 1F1B; a stage has the device of its number."""
    stage_of = np.repeat(np.arange(len(pipeline.stages)), [len(each.layers) for each in pipeline.stages])
    graph = problem.graph
    stages = stage_of[np.where(graph.mirror >= 0, graph.mirror, np.arange(len(graph)))].tolist()
    schedule = Schedule(graph.samples, tuple(stages), "early_backward_a")
    return Plan(tuple((stage,) for stage in stages), None, schedule)


def _promise(simulator: SailorSimulator, choice: Choice) -> float:
    """Seconds by Sailor's formula if layers could be divided anywhere, and all groups were stages."""
    whole, stages = range(LAYERS), len(choice.groups)
    turns = simulator.micro_batches(Pipeline((), choice.replicas, choice.samples)) - 1 + stages
    rate = sum(1 / simulator.compute(whole, group, choice.samples) for group in choice.groups)
    size = OUTPUTS[1] * FLOAT * choice.samples
    sent = max(simulator.transfer(size, choice.groups[0], group) for group in choice.groups) if stages > 1 else 0.0
    summed = max(simulator.all_reduce(Stage(whole, (group,)), choice.replicas) for group in choice.groups)
    return turns * (1 / rate + 2 * sent) + summed / stages


def _sets(groups: Sequence[Group], gpus: int) -> Iterator[tuple[Group, ...]]:
    """No group of a pool, and the sets that so many of its GPUs make, to which none could be added."""
    yield ()
    if not groups:
        return
    most = [min(MOST_STAGES, gpus // group.tp) for group in groups]
    for counts in product(*(range(count + 1) for count in most)):
        used = sum(count * group.tp for count, group in zip(counts, groups, strict=True))
        is_full = gpus - used < groups[0].tp or sum(counts) == MOST_STAGES
        if used <= gpus and 0 < sum(counts) <= MOST_STAGES and is_full:
            yield tuple(group for count, group in zip(counts, groups, strict=True) for _ in range(count))


def _may_fit(simulator: SailorSimulator, groups: Sequence[Group]) -> bool:
    parameters = sum(PARAMETERS[1][kind_of(layer)] for layer in range(LAYERS))
    return parameters * BYTES_PER_PARAMETER <= sum(simulator.room(group) * group.tp for group in groups)


def _graph(simulator: SailorSimulator, choice: Choice) -> OpGraph:
    """A micro-batch; a device's memory is that of all GPUs of a group, and so is what its layers keep."""
    most = max(group.tp for group in choice.groups)
    kinds = {group.text: group for group in choice.groups}
    first = simulator.times[choice.groups[0].pool.gpu, choice.groups[0].tp, choice.samples]
    layers, kept = list[ProfiledLayer](), list[float]()
    for layer, (forward, backward, _) in enumerate(first):
        part = kind_of(layer)
        output = OUTPUTS[part] * FLOAT * choice.samples
        stored = most * PARAMETERS[most][part] * FLOAT * BYTES_PER_PARAMETER / STATE
        layers.append(ProfiledLayer(f"{layer}", f"layer{layer}", forward, backward, (output,), False, stored))
        kept.append(max(0.0, most * ACTIVATIONS[most][part] * FLOAT * choice.samples - output))
    chain = tuple((f"{layer}", f"{layer + 1}") for layer in range(LAYERS - 1))
    graph = LayerProfile(f"OPT-350M by {choice.samples}", tuple(layers), chain).graph()
    unsent = np.zeros(len(graph))
    unsent[:LAYERS] = kept
    of_layer = np.where(graph.mirror >= 0, graph.mirror, np.arange(len(graph)))
    return replace(
        graph, unsent_bytes=unsent, batch_law=BatchLaw(1), measured_seconds=np.full(len(graph), np.nan),
        measured_on={
            kind: _seconds(simulator, choice, group)[graph.phase, of_layer] for kind, group in kinds.items()
        },
    )  # fmt: skip


def _seconds(simulator: SailorSimulator, choice: Choice, group: Group) -> Floats:
    """(phases, layers) forward, backward and update; gradients are added up as if the whole model were a stage."""
    forward, backward, update = np.array(simulator.times[group.pool.gpu, group.tp, choice.samples]).T
    parameters = np.array([PARAMETERS[1][kind_of(layer)] for layer in range(LAYERS)])
    summed = simulator.all_reduce(Stage(range(LAYERS), (group,)), choice.replicas) * parameters / parameters.sum()
    return np.array([forward, backward, update / LAYERS + summed])


def _cluster(simulator: SailorSimulator, choice: Choice) -> Cluster:
    """The groups of a replica, each on a machine of its own; messages are those between blocks."""
    groups, count = choice.groups, len(choice.groups)
    size = OUTPUTS[1] * FLOAT * choice.samples
    devices = [Device(each.text, each.text, PEAK, TRAFFIC, simulator.room(each) * each.tp) for each in groups]
    return Cluster(
        f"{count} groups", named_by_kind(devices),
        latency=np.full((count, count), LATENCY),
        bandwidth=np.array([[size / simulator.transfer(size, one, other) for other in groups] for one in groups]),
        channel=np.broadcast_to(np.arange(count)[:, None], (count, count)),
    )  # fmt: skip
