"""HeldMemory: what a placement holds on every device, estimated without simulating it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphs.algorithms.pairs import distinct_pairs, row_offsets
from graphs.op_graph import Bools, Floats, Ints, OpGraph, Phase
from graphs.problem import Problem


@dataclass(frozen=True, eq=False)
class HeldMemory:
    """Tensors that stay on their devices during the step, and the units that hold them there.

    They are parameters (with gradient and optimizer state), buffers, inputs, and outputs of the forward pass that wait
    for the backward pass, on the producer's device and on those of the backward ops that read them. What lives shorter
    is left out. Gradients are made while such outputs go, so that the peak of a simulated step may be lower. A device
    holds a tensor once, however many of its units share it.
    """

    tensor_bytes: Floats  # (tensors,)
    holders: Ints  # (holders, 2) unit, tensor; sorted, each pair once
    limits: Floats  # (devices,) bytes of memory
    units: int
    allowed: Bools | None = None  # (units, devices) where each unit may run; None: anywhere

    @classmethod
    def of(cls, problem: Problem) -> HeldMemory:
        """The held tensors of a problem."""
        graph = problem.graph
        kept, readers = _kept_outputs(graph)
        weights = np.stack([graph.units[graph.weight_uses[:, 0]], graph.weight_uses[:, 1]], axis=1)
        given, first = graph.held_tensors, len(graph.weights)
        others = np.stack([graph.units[given.uses[:, 0]], first + given.uses[:, 1]], axis=1)
        outputs = np.stack([readers[:, 0], first + len(given) + readers[:, 1]], axis=1)
        return cls(
            np.concatenate([problem.weight_state_bytes, given.bytes, graph.made_bytes[kept]]),
            distinct_pairs(np.concatenate([weights, others, outputs]))[0],
            problem.cluster.memory_bytes,
            graph.num_units,
            problem.allowed,
        )

    @cached_property
    def per_unit(self) -> Floats:
        """(units,) bytes that each unit holds; tensors held by several units are shared out evenly among them."""
        unit, tensor = self.holders.T
        share = self.tensor_bytes / np.maximum(np.bincount(tensor, minlength=len(self.tensor_bytes)), 1)
        return np.bincount(unit, weights=share[tensor], minlength=self.units).astype(np.float64)

    @cached_property
    def shares(self) -> Floats:
        """(devices,) parts of the cluster's memory, summing to 1; no device counts for more than all units hold."""
        usable = np.maximum(np.minimum(self.limits, self.per_unit.sum()), 1.0)
        shares: Floats = usable / usable.sum()
        return shares

    def on_devices(self, placement: Ints) -> Floats:
        """(devices,) bytes held under a placement (units,)."""
        unit, tensor = self.holders.T
        device, held = np.divmod(np.unique(placement[unit] * len(self.tensor_bytes) + tensor), len(self.tensor_bytes))
        return np.bincount(device, weights=self.tensor_bytes[held], minlength=len(self.limits)).astype(np.float64)

    def overflow(self, placement: Ints) -> float:
        """Bytes held beyond the devices' limits under a placement (units,); 0 if all of it fits."""
        return float(np.maximum(self.on_devices(placement) - self.limits, 0.0).sum())

    def tensors_of(self, unit: int) -> Ints:
        """The tensors that a unit holds."""
        return self.holders[self._offsets[unit] : self._offsets[unit + 1], 1]

    @cached_property
    def _offsets(self) -> Ints:
        return row_offsets(self.holders[:, 0], self.units)


class Room:
    """The memory that is left while units are placed one after another."""

    def __init__(self, held: HeldMemory, share: float = 1.0) -> None:
        """All devices empty, and only the given share of their memory to be filled."""
        self._held = held
        self._left = held.limits * share  # (devices,) bytes
        self._present: Bools = np.zeros((len(held.tensor_bytes), len(held.limits)), np.bool_)  # (tensors, devices)

    def after(self, unit: int) -> Floats:
        """(devices,) bytes that would be left on each device if the unit went there; below 0 it does not fit.

        Where the unit may not run there are -inf.
        """
        left, allowed = self._after(unit), self._held.allowed
        return left if allowed is None else np.where(allowed[unit], left, -np.inf)

    def take(self, unit: int, device: int) -> None:
        """Place the unit on the device."""
        self._left[device] = self._after(unit)[device]
        self._present[self._held.tensors_of(unit), device] = True

    def _after(self, unit: int) -> Floats:
        tensors = self._held.tensors_of(unit)
        return self._left - self._held.tensor_bytes[tensors] @ ~self._present[tensors]


def _kept_outputs(graph: OpGraph) -> tuple[Ints, Ints]:
    """Outputs of forward ops, and messages, that a backward op reads, (kept,), and who holds them.

    The holders, (holders, 2), are a unit and an index into kept each. A message is held by its reader alone.
    """
    phase = graph.phase[graph.edges]
    crosses = ~graph.control & (phase[:, 0] == Phase.FORWARD) & (phase[:, 1] == Phase.BACKWARD)
    kept, index = np.unique(graph.edge_output[crosses], return_inverse=True)
    outputs = kept[kept < len(graph)]  # they come first
    own = np.stack([graph.units[outputs], np.arange(len(outputs))], axis=1)
    read = np.stack([graph.units[graph.edges[crosses, 1]], index], axis=1)
    return kept, np.concatenate([own, read])
