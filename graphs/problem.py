"""Problem: what is placed, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from graphs.cluster import Cluster
from graphs.foundation.by_name import Extension
from graphs.foundation.errors import InputError
from graphs.host import SECONDS, Collectives, Host
from graphs.op_graph import Bools, Floats, Ints, OpGraph
from graphs.op_graph.optimizers import NONE, check_optimizer, state_share
from graphs.op_graph.precision import SINGLE
from graphs.op_graph.weight_memory import WeightMemory, weight_gradient_bytes
from graphs.op_groups.units import Units
from graphs.runtime import IDEAL, Runtime
from graphs.transforms.autograd_step import AutogradNodes, autograd_step, can_wait

_OBJECTIVES = "envs.objectives"
STEP_TIME: Extension[Any] = Extension(_OBJECTIVES, "step-time")  # the objective that is meant unless another is named
MEASURED = "measured"  # the step time of placements that are run


@dataclass(frozen=True, eq=False)
class Problem:
    """An op graph to be placed on a cluster, and the optimizer, whose state takes memory.

    The objective is what a placer that has the choice minimises: the simulated step time of one training step, or
    another one (`objective_of`), such as "max-load", the load of the busiest device when samples are pipelined. The
    runtime says how plans are run. Raises InputError for an unknown optimizer or objective,
    and for a host of CPUs, which run an op in the thread that issues it.
    """

    graph: OpGraph
    cluster: Cluster
    optimizer: str = "adam"  # one of `graphs.op_graph.optimizers`; read only if the graph is a training step
    op_seconds: Floats | None = None  # (ops, devices) what ops cost, if not what follows from the graph
    objective: Extension[Any] = STEP_TIME  # builds an `envs.objectives.Objective`
    runtime: Runtime = IDEAL
    timed_by: str = ""  # where op_seconds come from, for reports: the spec of a cost model
    hosts: Mapping[str, Host] = field(default_factory=dict)  # as measured with op_seconds, by name; the cluster's count
    # first
    memory: WeightMemory | None = None  # what weights occupy, if not what follows from the graph and the optimizer
    pace: Floats = field(default_factory=lambda: np.zeros(0))  # (ops,) how many times what its link says a transfer
    # of each output takes, if not all do as their links say
    collectives: Collectives | None = None  # of an expanded graph, if there is a host
    nodes: AutogradNodes | None = None  # of a graph that is `as_issued`

    def __post_init__(self) -> None:
        check_optimizer(self.optimizer)
        assert len(self.pace) in (0, len(self.graph))
        object.__setattr__(self, "objective", objective_of(self.objective))
        if self.graph.devices:
            self._check_allowed()
        if self.runtime.host is not None and self.cluster.is_cpu.any():
            self._refuse_cpus()

    @property
    def name(self) -> str:
        """The graph's name and the cluster's."""
        return f"{self.graph.name}@{self.cluster.name}"

    @property
    def hold_seconds(self) -> Floats:
        """(devices,) seconds for which each is held after an op that takes time: a launch, unless a host issues it."""
        cluster = self.cluster
        return cluster.hold_seconds if self.runtime.host is None else cluster.runner_seconds

    @cached_property
    def host(self) -> Host | None:
        """What issues ops, if that takes time: the runtime's host, as it was measured if it was."""
        host = self.runtime.host
        measured = None if host is None else {**self.hosts, **self.cluster.hosts}.get(host.name)
        if host is None or measured is None:
            return host
        return host.with_seconds({of: getattr(measured, of) for of in SECONDS})

    @property
    def issuer(self) -> Host | None:
        """What issues ops. Without a host streams have an order of issue too, in which threads take equal turns.

        Nothing starts later for that.
        """
        return Host.uniform(1.0) if self.host is None and self.runtime.streams else self.host

    @property
    def all_reduce(self) -> Literal["ring", "nccl"]:
        """How replicas sum up gradients, unless a plan says it; NCCL is for GPUs alone."""
        return "ring" if self.cluster.is_cpu.any() else self.runtime.all_reduce

    @cached_property
    def as_issued(self) -> Problem:
        """The same as it is simulated: where devices are streams, with what autograd sends and issues together."""
        if not self.runtime.streams or self.nodes is not None:
            return self
        graph, nodes = autograd_step(self.graph, self.deferred)
        return replace(self, graph=graph, nodes=nodes)

    @cached_property
    def deferred(self) -> Bools:
        """(ops,) the gradients of weights that wait until a device has nothing else to do.

        If issuing takes time, those that take any device longer than it takes the host, in both passes, that they wait;
        and all if ops are not timed.
        """
        if not self.runtime.defer:
            return np.zeros(len(self.graph), np.bool_)
        waits = can_wait(self.graph)
        if self.host is not None and self.op_seconds is not None:
            waits &= self.op_seconds.min(axis=1) > 2 * self.host.deferral
        return waits

    @cached_property
    def units(self) -> Units:
        """The graph at the level of decisions."""
        return Units(self.graph)

    @property
    def bytes_per_weight_byte(self) -> float:
        """What a byte of parameters in single precision occupies: itself and, in training, gradient and state."""
        return self._bytes_per_byte(SINGLE)

    def _bytes_per_byte(self, precision: str) -> float:
        is_alone = self.optimizer == NONE or not self.graph.is_training
        return 1.0 if is_alone else 2.0 + state_share(self.optimizer, precision, has_master=self.graph.master_weights)

    @cached_property
    def weight_state_bytes(self) -> Floats:
        """(weights,) what each weight occupies when it is updated: itself and its gradient and optimizer state.

        A frozen weight, and any in inference, is only itself. A gradient that holds only the rows that were read is
        left out.
        """
        graph = self.graph
        state = graph.weights * [self._bytes_per_byte(each) for each in graph.weight_precisions or (SINGLE,)]
        if self.bytes_per_weight_byte == 1:
            return state
        if graph.gradient_precision:
            state += weight_gradient_bytes(graph) - graph.trained_weights
        if len(graph.frozen):
            state = np.where(graph.frozen, graph.weights, state)
        if graph.has_sparse_gradient.any():
            state -= np.where(graph.has_sparse_gradient, weight_gradient_bytes(graph), 0.0)
        return state

    @cached_property
    def weight_memory(self) -> WeightMemory:
        """What weights occupy for the whole step, and which ops make gradients, which are held from then on."""
        return WeightMemory.of(self.graph, self.weight_state_bytes) if self.memory is None else self.memory

    @cached_property
    def allowed(self) -> Bools | None:
        """(units, devices) where each unit may run, its ops all being allowed there; None if all may run anywhere."""
        if not self.graph.devices:
            return None
        per_op = [
            [not names or device.name in names or device.kind in names for device in self.cluster.devices]
            for names in self.graph.devices
        ]
        allowed = np.ones((self.graph.num_units, len(self.cluster)), np.bool_)
        np.logical_and.at(allowed, self.graph.units, np.array(per_op))
        return allowed

    @property
    def is_placed(self) -> bool:
        """Whether each unit may run on one device alone, so that nothing is left to place."""
        return self.allowed is not None and bool((self.allowed.sum(axis=1) == 1).all())

    def made_allowed(self, placement: Ints) -> Ints:
        """(..., units) placements in which each unit that may not run on its device is moved to one where it may.

        That is the allowed device which takes least time for it, or the first, if op_seconds are not given.
        """
        if self.allowed is None:
            return placement
        kept = self.allowed[np.arange(placement.shape[-1]), placement]
        return np.where(kept, placement, self._fastest_allowed)

    @cached_property
    def _fastest_allowed(self) -> Ints:
        """(units,) the allowed device that takes least time for each unit."""
        assert self.allowed is not None
        seconds = 0.0 if self.op_seconds is None else self.units.summed(self.op_seconds)
        fastest: Ints = np.where(self.allowed, seconds, np.inf).argmin(axis=1)
        return fastest

    def check_step_time(self, who: str, instead: str, *, measured: bool = False) -> None:
        """Raise InputError unless the objective is the step time; `who` supports no other, `instead` does.

        With `measured` it may be the measured one, too.
        """
        if self.objective != STEP_TIME and not (measured and self.objective.name.partition(":")[0] == MEASURED):
            raise InputError(f"{who} knows step times only, and the objective is '{self.objective}'; use {instead}")

    def _refuse_cpus(self) -> None:
        cpu = next(device.name for device in self.cluster.devices if device.kind == "cpu")
        raise InputError(
            f"{cpu!r} of cluster {self.cluster.name!r} runs ops in the thread that issues them, and a host issues ops "
            "to devices that work them off later, as GPUs do: leave out the host, or take a cluster without CPUs"
        )

    def _check_allowed(self) -> None:
        """Raise InputError for a unit that may run on no device of the cluster."""
        assert self.allowed is not None
        nowhere = np.flatnonzero(~self.allowed.any(axis=1))
        if len(nowhere) == 0:
            return
        ops = np.flatnonzero(self.graph.units == nowhere[0])
        bound = [op for op in ops.tolist() if self.graph.devices[op]]
        names = "; ".join(f"{self.graph.names[op]!r} only on {', '.join(self.graph.devices[op])}" for op in bound[:3])
        raise InputError(
            f"graph {self.graph.name!r} has ops that cluster {self.cluster.name!r} has no device for: {names}; it has "
            f"{', '.join(device.name for device in self.cluster.devices[:8])}. Ops that are tied share a device"
        )


def objective_of(what: Extension[Any] | str) -> Extension[Any]:
    """The objective that a spec names, such as "max-load" or "my.py:build". Raises InputError as `Extension.of`."""
    return Extension.of(_OBJECTIVES, what, dash="-")
