"""Running: where a model runs at the moment, and what it costs to run it elsewhere from now on.

A model is placed again when a device leaves or slows down, when the batch grows, or when costs or the precision are
others than before. It is worth its step, and its share of the moves that lead to it:

    objective = step seconds + moving seconds / steps

This is the objective of dynamic repartitioning, alpha (t_comp + t_comm) + t_mig over alpha iterations (Catalyurek et
al., "Hypergraph-based Dynamic Load Balancing for Adaptive Scientific Computations", IPDPS 2007, section 3; with edges
in place of seconds, ParMETIS's, Schloegel et al., SC 2000). What is moved for training is what Tenplex moves
(Wagenlaender et al., SOSP 2024): weights and the state of the optimizer, and no gradients, as a move is between steps.
What only devices that left have held is read from a checkpoint, as in Varuna (Athlur et al., EuroSys 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from envs.simulation.moved_weights import HELD, MovedWeights
from graphs.algorithms.pairs import distinct_pairs
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints
from graphs.op_graph.weight_memory import weight_gradient_bytes
from graphs.problem import Problem

LEFT = -1  # in place of the device of a unit whose device is not in the cluster any more
STEPS = 1000.0  # that a move is paid off over
CHECKPOINT = 1e9  # bytes/s at which each device reads what is held nowhere; that of a disk


@dataclass(frozen=True, eq=False)
class Running:
    """A placement that runs, by the devices of the cluster as it is now. Raises InputError for values that are none."""

    placement: Ints  # (units,) device, or LEFT
    steps: float = STEPS  # over which moving is paid off: about as many as there are until the next change
    checkpoint: float = CHECKPOINT  # bytes/s at which each device reads what no device holds
    op_placement: Ints | None = None  # (ops,) the same of each op, where ops of one unit may run apart

    @classmethod
    def of_ops(cls, problem: Problem, placement: Ints, steps: float = STEPS, checkpoint: float = CHECKPOINT) -> Self:
        """What runs by the device of each op, (ops,), or LEFT: a unit is where the first of its ops is that has one."""
        there = np.flatnonzero(placement != LEFT)
        units, first = np.unique(problem.graph.units[there], return_index=True)
        of_units = np.full(len(problem.units), LEFT)
        of_units[units] = placement[there[first]]
        return cls(of_units, steps, checkpoint, placement)

    def __post_init__(self) -> None:
        for name in ("steps", "checkpoint"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}; expected a number > 0")

    def check(self, problem: Problem) -> None:
        """Raise InputError if it is not about the units and devices of a problem."""
        devices, units, ops = len(problem.cluster), len(problem.units), len(problem.graph)
        for what, count, given in (("units", units, self.placement), ("ops", ops, self.op_devices(problem))):
            if given.shape != (count,) or (count and not LEFT <= given.min() <= given.max() < devices):
                raise InputError(
                    f"what runs is to be one of {devices} devices, or {LEFT} for one that left, for each of the "
                    f"{count} {what} of {problem.graph.name!r}; got an array of shape {given.shape}"
                )

    def op_devices(self, problem: Problem) -> Ints:
        """(ops,) the device of each op, or LEFT."""
        return self.placement[problem.graph.units] if self.op_placement is None else self.op_placement

    def moves(self, problem: Problem) -> MovedWeights:
        """What placements of a problem move. Raises InputError as `check`."""
        self.check(problem)
        cluster, devices, sizes = problem.cluster, len(problem.cluster), stored_bytes(problem)
        uses = distinct_pairs(problem.units.weight_uses[:, ::-1])[0]  # by weight
        held = np.zeros((len(sizes), devices), np.bool_)
        op, weight = problem.graph.weight_uses.T
        holder = self.op_devices(problem)[op]
        held[weight[holder != LEFT], holder[holder != LEFT]] = True
        links, checkpoints = cluster.links, int(cluster.links.max(initial=-1)) + 1
        channel, seconds = np.full(held.shape, HELD), np.zeros(held.shape)
        for device in range(devices):
            absent = np.flatnonzero(~held[:, device])
            taken = cluster.latency[:, device] + sizes[absent, None] / cluster.bandwidth[:, device]
            taken = np.where(held[absent], taken, np.inf)
            source = taken.argmin(axis=1)
            is_held = held[absent].any(axis=1)
            read = sizes[absent] / self.checkpoint
            channel[absent, device] = np.where(is_held, links[source, device], checkpoints + device)
            seconds[absent, device] = np.where(is_held, taken.min(axis=1, initial=np.inf), read)
        return MovedWeights(
            np.ascontiguousarray(uses[:, 0]), np.ascontiguousarray(uses[:, 1]), channel, seconds / self.steps,
            np.where(held, 0.0, sizes[:, None]), np.zeros(devices, np.int64), np.zeros(checkpoints + devices),
        )  # fmt: skip


def stored_bytes(problem: Problem) -> Floats:
    """(weights,) bytes of each weight and the state of its optimizer, which last from one step to the next."""
    graph, state = problem.graph, problem.weight_state_bytes
    if problem.bytes_per_weight_byte == 1:
        return state
    gradients: Floats = np.where(graph.has_sparse_gradient, 0.0, weight_gradient_bytes(graph))
    return np.maximum(state - gradients, graph.weights)
