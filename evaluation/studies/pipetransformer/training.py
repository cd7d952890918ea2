"""A training run with layers that freeze: the simulated step of each setup, and the seconds of all epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from envs.costs.costs import timed
from envs.simulation.simulator import simulate
from envs.step_shares import SHARES, StepShares
from envs.timeline import Timeline
from evaluation.studies.pipetransformer.published import ALPHA, EPOCHS, FIRST, transition_seconds
from graphs.another_batch import with_batch
from graphs.cluster import Cluster
from graphs.clusters.pipetransformer import PCIE_BANDWIDTH
from graphs.freezing import CACHE_READ, cached, first_layers, freeze_layers
from graphs.load import load_cluster, load_graph
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.elastic.auto_freeze import frozen_layers
from placers.elastic.intervals import Parts, Run, Setup
from placers.elastic.sub_layers import SubLayers
from placers.pipetransformer import PipeTransformer

CLUSTER = "pipetransformer"
COST_MODEL = "roofline:efficiency=typical"
READ = "cache"
SPENT = (*(share for share in SHARES if share != "recomputation"), READ)  # nothing is recomputed


@dataclass(frozen=True)
class Model:
    """A model, and how it is trained."""

    name: str
    spec: str
    layers: int
    samples: int
    """Of a step on each pipeline."""
    optimizer: str
    cache_from: int
    """Frozen layers from which on their outputs are cached."""


VIT = Model("ViT-B/16", "vit:layers=12,width=768,heads=12,image=224,batch=64", 12, 400, "momentum", 3)
BERT = Model("BERT-large", "bert:layers=24,width=1024,heads=16,sequence=384,batch=8", 24, 64, "adam", 5)


@dataclass(frozen=True)
class Machine:
    """How fast the devices of the testbed are."""

    speed: float = 1.0
    """Share of the speeds that the cost model says."""
    launch_seconds: float = 5e-6
    """To launch an op on a device, of those that one process drives."""
    one_by_one: bool = False
    """Whether a process launches the ops of its devices one after the other, so that launches take longer on each."""

    def cluster(self, devices: int) -> Cluster:
        """The testbed, where a process drives so many devices."""
        cluster = load_cluster(CLUSTER)
        launch = self.launch_seconds * (devices if self.one_by_one else 1)
        changed = [
            replace(
                device,
                flops_per_second=device.flops_per_second * self.speed,
                bytes_per_second=device.bytes_per_second * self.speed,
                launch_seconds=launch,
            )
            for device in cluster.devices
        ]
        return replace(cluster, devices=tuple(changed))


@dataclass(frozen=True)
class Step:
    """A simulated step."""

    samples: int
    seconds: float
    peak_bytes: float
    fits: bool
    spent: Mapping[str, float]  # seconds of a device, on average, by `SPENT`

    @property
    def sample_seconds(self) -> float:
        """Seconds for each sample."""
        return self.seconds / self.samples


@dataclass(frozen=True)
class Epochs:
    """What a training run takes for each sample of its data set, and in addition."""

    setups: tuple[Setup, ...]  # (epochs,)
    steps: tuple[Step, ...]  # (epochs,)

    @property
    def sample_seconds(self) -> float:
        """Seconds for each sample of the data set, over all epochs."""
        return sum(step.sample_seconds for step in self.steps)

    @property
    def transition_seconds(self) -> float:
        """Seconds for all changes between epochs, as published."""
        changes = zip(self.setups, self.setups[1:], strict=False)
        return sum(
            transition_seconds(now.devices)
            for before, now in changes
            if (before.frozen, before.devices) != (now.frozen, now.devices)
        )

    def seconds(self, data: int) -> float:
        """Seconds with so many samples in the data set."""
        return data * self.sample_seconds + self.transition_seconds

    def spent(self, share: str) -> float:
        """Seconds of a device for each sample of the data set, by `SPENT`."""
        return sum(step.spent[share] / step.samples for step in self.steps)

    @property
    def fits(self) -> bool:
        """Whether all steps fit in memory."""
        return all(step.fits for step in self.steps)


@dataclass
class Training:
    """Trainings of a model on a machine; each setup is simulated once."""

    model: Model
    machine: Machine = Machine()
    balance: Literal["parameters", "time"] = "parameters"
    """What is balanced over the stages of a pipeline; by time, frozen layers are spread over them."""
    order: str = "gpipe"
    """In which a pipeline runs its passes."""
    steps: dict[Setup, Step] = field(default_factory=dict)

    def epochs(self, alpha: float = ALPHA, parts: Parts | None = None) -> Epochs:
        """Ten epochs with some parts of PipeTransformer; without any, no layer freezes."""
        frozen = frozen_layers(self.model.layers, alpha, EPOCHS) if parts else (0,) * EPOCHS
        run = Run(len(load_cluster(CLUSTER)), FIRST)
        setups = run.setups(frozen, self.sizes, parts or Parts(), self.model.cache_from)
        return Epochs(setups, tuple(self.step(setup) for setup in setups))

    def speedup(self, alpha: float = ALPHA, parts: Parts | None = None, *, data: int = 0) -> float:
        """How many times as fast as without freezing; all parts unless they are given.

        That is without changes between plans, or with them, for a data set of so many samples.
        """
        whole, own = self.epochs(), self.epochs(alpha, parts or Parts())
        return whole.seconds(data) / own.seconds(data) if data else whole.sample_seconds / own.sample_seconds

    def step(self, setup: Setup) -> Step:
        """The step of a setup."""
        if setup not in self.steps:
            self.steps[setup] = self.simulated(setup, self.model.samples)
        return self.steps[setup]

    def simulated(self, setup: Setup, samples: int) -> Step:
        """A step with so many samples on each pipeline."""
        graph = freeze_layers(self._graph, setup.frozen)
        if setup.cached:
            graph = cached(graph, first_layers(graph, setup.cached))
        cluster = self.machine.cluster(setup.devices)
        problem = with_cache(Problem(with_batch(graph, samples * setup.pipelines), cluster, self.model.optimizer))
        timeline = simulate(problem, self._placer(setup).place(problem).plan)
        return Step(
            samples * setup.pipelines, timeline.step_seconds, float(timeline.peak_bytes.max()), timeline.fits,
            _spent(timeline, setup),
        )  # fmt: skip

    def _placer(self, setup: Setup) -> PipeTransformer:
        return PipeTransformer(FIRST, setup.devices, setup.pipelines, setup.micro_batches, self.balance, self.order)

    def sizes(self, frozen: int) -> list[float]:
        """Sizes of the sub-layers that are trained, in millions, if so many layers are frozen."""
        layers = SubLayers.of(Problem(freeze_layers(self._graph, frozen), load_cluster(CLUSTER)))
        sizes: list[float] = layers.trained[layers.first_trained :].tolist()
        return sizes

    @cached_property
    def _graph(self) -> OpGraph:
        return load_graph(self.model.spec, with_law=True)


def with_cache(problem: Problem) -> Problem:
    """The problem, timed; what is read from the cache comes from the host's memory, over PCIe, and no read is hidden.

    That is a guess: the paper's cache is on disk, too, and reads ahead.
    """
    problem = timed(problem, COST_MODEL)
    assert problem.op_seconds is not None
    is_read = np.array([kind == CACHE_READ for kind in problem.graph.kinds])[:, None]
    seconds = (problem.graph.output_bytes / PCIE_BANDWIDTH)[:, None]
    return replace(problem, op_seconds=np.where(is_read, seconds, problem.op_seconds))


def _spent(timeline: Timeline, setup: Setup) -> dict[str, float]:
    """Seconds by `SPENT` of the devices that have pipelines, on average; reads are no part of the forward pass."""
    shares, devices = StepShares.of(timeline), setup.devices * setup.pipelines
    read = np.array([kind == CACHE_READ for kind in timeline.problem.graph.kinds])
    spent = {share: float(shares[share].sum()) for share in SHARES}
    spent[READ] = float((timeline.finish - timeline.start)[read].sum())
    spent["forward"] -= spent[READ]
    idle = (len(timeline.problem.cluster) - devices) * timeline.step_seconds  # of devices without a pipeline
    spent["bubble"] -= idle
    return {share: spent[share] / devices for share in SPENT}
