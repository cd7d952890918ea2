"""Outlook: about what pipelines of equal stages take, of every number of micro-batches, stages and replicas.

A formula says it in closed form, for stages that do equal work on consecutive devices of a row. It is rough: a policy
reads it among other features, and learns when to trust it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphs.op_graph import Floats
from placers.learned.whole_plans.chain_view import MICRO_BATCHES, ChainView

HOPELESS = 1e3  # times a step on one device: what seems not to fit, or cannot be made


@dataclass(frozen=True, eq=False)
class Outlook:
    """What seems possible for a problem."""

    view: ChainView

    @cached_property
    def seconds(self) -> Floats:
        """(micro-batches, replicas + 1, stages + 1) of a step; `HOPELESS` where there is none."""
        view = self.view
        most, samples = len(view.row), view.problem.graph.samples
        found = np.full((len(MICRO_BATCHES), most + 1, most + 1), HOPELESS)
        for number, micro_batches in enumerate(MICRO_BATCHES):
            for replicas in range(1, most + 1):
                if samples % (micro_batches * replicas):
                    continue
                for stages in range(1, min(most // replicas, len(view.work) - 1) + 1):
                    found[number, replicas, stages] = self._of(micro_batches, replicas, stages)
        return found

    @cached_property
    def best(self) -> float:
        """The least of all."""
        return float(self.seconds.min())

    def of_replicas(self, number: int) -> Floats:
        """(replicas + 1,) the least with a number of micro-batches, by its place among them."""
        least: Floats = self.seconds[number].min(axis=1)
        return least

    @cached_property
    def _links(self) -> tuple[Floats, Floats]:
        """(2, devices) latency and seconds per byte from each device of the row to the next, and the last to itself."""
        row, view = self.view.row, self.view
        pair = row[:-1], row[1:]
        return np.append(view.latency[pair], 0.0), np.append(view.per_byte[pair], 0.0)

    def _of(self, micro_batches: int, replicas: int, stages: int) -> float:
        view = self.view
        devices = view.row[: replicas * stages]
        speeds = view.speed[devices].reshape(stages, replicas).min(axis=1)
        work, fixed = float(view.work[-1]), float(view.fixed[-1])
        once = work / (micro_batches * replicas * speeds.sum()) + fixed / speeds.sum()
        latency, per_byte = self._links
        ends = np.arange(1, stages) * replicas - 1
        sending = 0.0
        if stages > 1:
            size = self._cut_bytes[stages] / (micro_batches * replicas)
            sending = float((latency[ends] + per_byte[ends] * size).max())
        summing = float(view.update[-1]) / speeds.sum()
        if replicas > 1:
            inside = np.setdiff1d(np.arange(replicas * stages - 1), ends)
            rounds = 2 * (replicas - 1)
            slowest = float(per_byte[inside].max()), float(latency[inside].max())
            summing += rounds * (slowest[0] * view.weights[-1] / stages / replicas + slowest[1])
        memory = float(view.memory[devices].min())
        held, kept = view.held[-1] / stages, view.kept[-1] / (micro_batches * replicas * stages)
        if held + kept * min(micro_batches, stages) > memory:
            if held + 2 * kept > memory:
                return HOPELESS
            once *= 4 / 3
        waiting = stages * once + 2 * (stages - 1) * sending
        return float((micro_batches - 1) * max(once, sending) + waiting + summing)

    @cached_property
    def _cut_bytes(self) -> Floats:
        """(stages + 1,) the most that crosses the cuts into so many stages, each where least does, near equal work."""
        view = self.view
        layers = len(view.work) - 1
        found = np.zeros(len(view.row) + 1)
        for stages in range(2, min(len(view.row), layers) + 1):
            wanted = np.arange(1, stages) / stages * view.work[-1]
            at = np.clip(np.searchsorted(view.work, wanted), 1, layers - 1)
            near = max(layers // (4 * stages), 1)
            found[stages] = max(
                float(view.crossing[max(each - near, 1) : min(each + near, layers - 1) + 1].min())
                for each in at.tolist()
            )
        return found
