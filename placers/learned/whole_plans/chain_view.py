"""ProblemChain: what a policy of whole plans sees of a problem before anything is decided.

Seconds are shares of a step on the fastest device, bytes are as they are, so that what is made of them has no unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.expansion.servers import by_server
from envs.gym.pipeline_problem import PipelineProblem
from envs.pipelines.construction import Actions, Construction
from envs.pipelines.layers import sums_before
from envs.plans.schedule import Sharing, pass_order_of
from envs.prepared_problem import PreparedProblem
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats, Ints
from graphs.problem import Problem
from placers.contract.whole_plans import accelerators, why_placements_only
from placers.pipelines.pipeline_formula import PipelineFormula

MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
PASS_ORDERS = tuple(
    map(pass_order_of, ("early_backward_a", "early_backward_b", "gpipe", "zb_h1", "interleaved", "zb_v"))
)
LAYERS = 64  # units of a graph are joined until there are at most LAYERS
SHARING: Sharing = "split"


@dataclass(frozen=True, eq=False)
class ProblemChain:
    """A problem as a chain of layers on devices; sums are over the layers before each, (layers + 1,)."""

    pipelines: PipelineProblem
    actions: Actions

    @classmethod
    def of(cls, problem: Problem, layers: int = LAYERS) -> ProblemChain:
        """Of at most `layers` layers. Raises InputError for a problem for which only op placements make sense."""
        if reason := why_placements_only(problem):
            raise InputError(f"a policy of whole plans has no plan for {problem.name}: {reason}; take another placer")
        pipelines = PipelineProblem(PreparedProblem(problem), layers, "stages")
        actions = Actions(MICRO_BATCHES, PASS_ORDERS, len(problem.cluster), len(pipelines.layers))
        return cls(pipelines, actions)

    def construction(self) -> Construction:
        """A pipeline of which nothing is decided yet."""
        return self.pipelines.construction(self.actions, SHARING, np.flatnonzero(self.used).tolist())

    @cached_property
    def formula(self) -> PipelineFormula:
        """What the planner's formula says of pipelines."""
        return PipelineFormula(self.pipelines.layer_grain, np.flatnonzero(self.used).tolist())

    @property
    def problem(self) -> Problem:
        """What is to be planned."""
        return self.pipelines.problem

    @cached_property
    def step(self) -> float:
        """Seconds of a step on the fastest device."""
        return max(float(self.pipelines.seconds.sum(axis=0).min()), 1e-30)

    @cached_property
    def used(self) -> Bools:
        """(devices,) whether each may be used: accelerators, if there are any."""
        return np.isin(np.arange(len(self.problem.cluster)), accelerators(self.problem.cluster))

    @cached_property
    def speed(self) -> Floats:
        """(devices,) of the fastest one's."""
        return np.asarray(self.step / np.maximum(self.pipelines.seconds.sum(axis=0), 1e-30))

    @cached_property
    def memory(self) -> Floats:
        """(devices,) bytes; without a limit, as much as is ever needed."""
        needed = 64 * (self.held[-1] + self.kept[-1] + 1.0)
        return np.asarray(np.minimum(self.problem.cluster.memory_bytes, needed))

    @cached_property
    def work(self) -> Floats:
        """Seconds that micro-batches and replicas share out."""
        layers = self.pipelines.layers
        return sums_before((layers.forward + layers.backward) / self.step)

    @cached_property
    def fixed(self) -> Floats:
        """Seconds of each micro-batch on each replica."""
        layers = self.pipelines.layers
        return sums_before((layers.forward_fixed + layers.backward_fixed) / self.step)

    @cached_property
    def update(self) -> Floats:
        """Seconds of a step, whatever the batch."""
        return sums_before(self.pipelines.layers.update / self.step)

    @cached_property
    def weights(self) -> Floats:
        """Bytes that replicas sum up."""
        return sums_before(self.pipelines.layers.weights)

    @cached_property
    def held(self) -> Floats:
        """Bytes of weights and what belongs to them."""
        return sums_before(self.pipelines.layers.held)

    @cached_property
    def kept(self) -> Floats:
        """Bytes that wait for the backward pass, of the whole batch."""
        return sums_before(self.pipelines.layers.kept)

    @cached_property
    def crossing(self) -> Floats:
        """(layers + 1,) bytes that pass between the layers before each and the others, the larger way."""
        layers = self.pipelines.layers
        return np.append(0.0, np.maximum(layers.sent, layers.returned))

    @cached_property
    def per_byte(self) -> Floats:
        """(devices, devices) seconds of sending a byte; 0 to itself."""
        return _off_diagonal(1.0 / self.problem.cluster.bandwidth / self.step)

    @cached_property
    def latency(self) -> Floats:
        """(devices, devices) seconds."""
        return _off_diagonal(self.problem.cluster.latency / self.step)

    @cached_property
    def row(self) -> Ints:
        """The devices that may be used, server by server."""
        used = np.flatnonzero(self.used)
        order, _ = by_server(self.problem.cluster, used.tolist())
        return np.asarray(used[order], np.int64)

    @cached_property
    def alike(self) -> Ints:
        """(devices,) the first device that each could change places with, and nothing would be different."""
        count = len(self.problem.cluster)
        found = np.arange(count)
        sizes = np.column_stack([self.speed, self.memory, self.used])
        for device in range(1, count):
            for other in range(device):
                if found[other] == other and self._can_change_places(device, other, sizes):
                    found[device] = other
                    break
        return found

    def _can_change_places(self, one: int, other: int, sizes: Floats) -> bool:
        if not np.allclose(sizes[one], sizes[other], rtol=1e-9):
            return False
        rest = np.ones(len(sizes), np.bool_)
        rest[[one, other]] = False
        return all(
            np.array_equal(links[one, rest], links[other, rest])
            and np.array_equal(links[rest, one], links[rest, other])
            and links[one, other] == links[other, one]
            for links in (self.per_byte, self.latency)
        )


def _off_diagonal(values: Floats) -> Floats:
    found = np.array(values, np.float64)
    np.fill_diagonal(found, 0.0)
    return found
