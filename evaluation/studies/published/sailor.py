"""Sailor's scenarios: pipelines of placelab's planner, and the best ones that its rivals can say, judged twice.

Sailor's planner has nine rivals. Their answers are not published, so this is stricter: the best of all pipelines that
those of them can say that give all stages as many replicas, found by trying them in Sailor's own simulator. Such stages
have equally many layers, or as many as balances them, and one kind of GPU each; GPUs of a kind follow one another.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from evaluation.studies.published.sailor_simulator import (
    ACTIVATIONS,
    BATCH,
    FLOAT,
    LAYERS,
    LOADED,
    LOADED_DIVIDED,
    MEMORY,
    OUTPUTS,
    PARAMETERS,
    PER_SERVER,
    Pipeline,
    SailorSimulator,
    Stage,
    kind_of,
)
from graphs.cluster import Cluster, Device
from graphs.descriptions.another_batch import with_batch
from graphs.devices.topology import named_by_kind
from graphs.formats.pipedream import LayerProfile, ProfiledLayer
from graphs.op_graph import OpGraph, Phase
from graphs.op_graph.batch_law import BatchLaw
from graphs.problem import Problem

Gpus = Mapping[str, int]  # by kind
Degrees = Mapping[str, int]  # of tensor parallelism, by kind of GPU
TP, SAMPLES = (1, 2, 4), (1, 2, 4, 8)  # that were measured on all
MESSAGE = 32e6  # bytes, whose bandwidth all messages have here: of parts of buckets
WITHIN = {"A100-40": 2.4e11, "V100-16": 1.2e11}  # bytes/s of a GPU's NVLinks
LATENCY = 10e-6  # seconds
PEAK, TRAFFIC = 19.5e12, 1.5e12  # FLOP/s, bytes/s; layers are measured, so nothing depends on them
MOST_STAGES = 8  # of a kind
HALVINGS = 20  # of the interval in which the slowest stage's seconds are


class Scenario(NamedTuple):
    """GPUs of one zone."""

    name: str
    gpus: Gpus
    source: str  # trace in simulations/configs

    @property
    def batch(self) -> int:
        """Samples that placelab plans: Sailor's, or the next more that all GPUs of a kind can have equally many of.

        Sailor's simulator runs more than the batch as well, where replicas do not divide it.
        """
        count = min(self.gpus.values())
        return -(-BATCH // count) * count


SCENARIOS = (
    *(Scenario(f"{n} A100", {"A100-40": n}, "gpu_trace_scaled.csv") for n in (32, 80, 128)),
    *(
        Scenario(f"{n} A100, {3 * n} V100", {"A100-40": n, "V100-16": 3 * n}, "gpu_trace_heterogeneous_imbalanced.csv")
        for n in (32, 80, 128)
    ),
)


def best_of_all(simulator: SailorSimulator, gpus: Gpus) -> Pipeline:
    """The fastest pipeline by Sailor's simulator of those that its rivals can say."""
    return min(_sayable(simulator, gpus), key=simulator.seconds)


def workload(simulator: SailorSimulator, scenario: Scenario, tp: Degrees, samples: int) -> tuple[OpGraph, Cluster]:
    """The same for placelab: each device is the GPUs of a tensor-parallel group, whose layers were measured together.

    Times are those of micro-batches of so many samples.
    """
    return with_batch(_graph(simulator, tp, samples), scenario.batch), _cluster(simulator, scenario.gpus, tp)


def pipeline_of(plan: Plan, problem: Problem, tp: Degrees) -> Pipeline | None:
    """A plan in Sailor's terms, where replicas hold all in whole; None if it has none for it."""
    schedule = plan.schedule
    stage_of = schedule.stages[:LAYERS] or (0,) * LAYERS
    stages, devices = list[Stage](), list[tuple[int, ...]]()
    for number in range(max(stage_of) + 1):
        layers = [layer for layer, stage in enumerate(stage_of) if stage == number]
        kinds = {problem.cluster.devices[each].kind for each in plan.devices[layers[0]]}
        if len(kinds) > 1:
            return None
        kind = kinds.pop()
        stages.append(Stage(range(layers[0], layers[-1] + 1), kind, tp[kind]))
        devices.append(plan.devices[layers[0]])
    used = [device for some in devices for device in some]
    equal = not any(len(set(shares)) > 1 for shares in schedule.shares)
    if schedule.recompute or plan.split or not equal or len(set(used)) < len(used):
        return None
    if len({len(some) for some in devices}) > 1:
        return None
    samples = problem.graph.samples // (len(devices[0]) * schedule.micro_batches)
    return Pipeline(tuple(stages), len(devices[0]), samples)


def plan_of(pipeline: Pipeline, problem: Problem) -> Plan:
    """A pipeline for the engine, in the order of 1F1B."""
    free = {kind: [at for at, each in enumerate(problem.cluster.devices) if each.kind == kind] for kind in MEMORY}
    stage_of = np.repeat(np.arange(len(pipeline.stages)), [len(each.layers) for each in pipeline.stages])
    devices = []
    for stage in pipeline.stages:
        devices.append(tuple(free[stage.gpu][: pipeline.replicas]))
        del free[stage.gpu][: pipeline.replicas]
    graph = problem.graph
    stages = stage_of[np.where(graph.mirror >= 0, graph.mirror, np.arange(len(graph)))].tolist()
    micro_batches = graph.samples // (pipeline.replicas * pipeline.samples)
    schedule = Schedule(micro_batches, tuple(stages), "early_backward_a")
    return Plan(tuple(devices[stage] for stage in stages), None, schedule)


def _sayable(simulator: SailorSimulator, gpus: Gpus) -> Iterator[Pipeline]:
    for samples, *degrees in product(SAMPLES, *(TP for _ in gpus)):
        tp = dict(zip(gpus, degrees, strict=True))
        if not all((kind, tp[kind], samples) in simulator.times for kind in gpus):
            continue
        for counts in product(range(MOST_STAGES + 1), repeat=len(gpus)):
            widths = [gpus[kind] // (tp[kind] * count) for kind, count in zip(gpus, counts, strict=True) if count]
            for order in {tuple(gpus), tuple(gpus)[::-1]}:
                kinds = [kind for kind in order for _ in range(counts[list(gpus).index(kind)])]
                for layers in _partitions(simulator, kinds, tp, samples):
                    stages = tuple(Stage(some, kind, tp[kind]) for some, kind in zip(layers, kinds, strict=True))
                    yield from (Pipeline(stages, replicas, samples) for replicas in range(1, min(widths) + 1))


def _partitions(simulator: SailorSimulator, kinds: Sequence[str], tp: Degrees, samples: int) -> Iterator[list[range]]:
    """Equally many layers for each stage, and as many as balance them."""
    if not kinds:
        return
    ends = [round(LAYERS * (at + 1) / len(kinds)) for at in range(len(kinds))]
    yield [range(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
    times = {kind: simulator.times[kind, tp[kind], samples] for kind in kinds}
    seconds = {kind: [forward + backward for forward, backward, _ in some] for kind, some in times.items()}
    least, most = 0.0, max(sum(each) for each in seconds.values())
    found: list[range] = []
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        if tried := _within(middle, [seconds[kind] for kind in kinds]):
            most, found = middle, tried
        else:
            least = middle
    if found:
        yield found


def _within(limit: float, seconds: Sequence[Sequence[float]]) -> list[range]:
    """Layers for each stage, as many as take at most so long; [] if some are left."""
    begin, found = 0, list[range]()
    for at, own in enumerate(seconds):
        end, spent, others = begin, 0.0, len(seconds) - 1 - at
        while end < LAYERS - others and spent + own[end] <= limit:
            spent += own[end]
            end += 1
        if end == begin:
            return []
        found.append(range(begin, end))
        begin = end
    return found if begin == LAYERS else []


def _graph(simulator: SailorSimulator, tp: Degrees, samples: int) -> OpGraph:
    """A step; a device's memory is that of all GPUs of a group, and so is what its layers keep."""
    measured = {kind: simulator.times[kind, degree, samples] for kind, degree in tp.items()}
    any_kind, most = next(iter(measured)), max(tp.values())

    def group(sizes: Mapping[int, tuple[int, int, int]], part: int) -> int:
        return most * sizes[most][part]

    layers, kept = [], []
    for layer, (forward, backward, _) in enumerate(measured[any_kind]):
        part = kind_of(layer)
        output = OUTPUTS[part] * FLOAT * samples
        size = group(PARAMETERS, part) * FLOAT
        layers.append(ProfiledLayer(f"{layer}", f"layer{layer}", forward, backward, (output,), False, size))
        kept.append(max(0.0, group(ACTIVATIONS, part) * FLOAT * samples - output))
    chain = tuple((f"{layer}", f"{layer + 1}") for layer in range(LAYERS - 1))
    graph = LayerProfile(f"OPT-350M by {samples}", tuple(layers), chain).graph()
    unsent = np.zeros(len(graph))
    unsent[:LAYERS] = kept
    by_kind = {kind: np.zeros(len(graph)) for kind in tp}  # updates take no time
    for op, mirror in enumerate(graph.mirror.tolist()):
        if graph.phase[op] < Phase.UPDATE:
            for kind, some in measured.items():
                by_kind[kind][op] = some[op][0] if mirror < 0 else some[mirror][1]
    graph = replace(
        graph, unsent_bytes=unsent, batch_law=BatchLaw(samples), measured_on=by_kind,
        measured_seconds=np.full(len(graph), np.nan),
    )  # fmt: skip
    return graph


def _cluster(simulator: SailorSimulator, gpus: Gpus, tp: Degrees) -> Cluster:
    """Groups of GPUs, four GPUs a server; every group has a network card for each of its GPUs."""
    devices, server, network = list[Device](), list[int](), list[float]()
    for kind, count in gpus.items():
        degree = tp[kind]
        loaded = LOADED if degree == 1 else LOADED_DIVIDED
        for group in range(count // degree):
            devices.append(Device(kind, kind, PEAK, TRAFFIC, (MEMORY[kind] * 2.0**30 - loaded) * degree))
            server.append(group * degree // PER_SERVER + 1000 * list(gpus).index(kind))
            network.append(degree * MESSAGE / simulator.transfer(MESSAGE, kind))
    together = np.equal.outer(server, server)
    inside = np.array([WITHIN[each.kind] for each in devices])
    count = len(devices)
    source = np.broadcast_to(np.arange(count)[:, None], (count, count))
    return Cluster(
        ", ".join(f"{count} {kind}" for kind, count in gpus.items()), named_by_kind(devices),
        latency=np.full((count, count), LATENCY),
        bandwidth=np.where(together, inside[:, None], np.minimum.outer(network, network)),
        channel=np.where(together, source, count + source),
    )  # fmt: skip
