"""Flow: the samples per second that pass through a forward pass whose devices never wait for one batch to end.

Requests follow one another, as in serving. Of a stage with several replicas each request takes one, and replicas share
requests by speed: the most that can pass at once is a maximum flow from the first stage to the last one, as Helix has
it (Mei et al., "Helix: serving large language models over heterogeneous GPUs and network via max-flow", ASPLOS 2025).

    first stage            second stage
    4 samples/s  --link--  3 samples/s          a device passes on what it computes, a link what its bandwidth carries:
               `--link---- 2 samples/s          4 samples/s in all

What enters a stage is taken to come from the stage before it. A device in several stages shares its time among them, as
a link does (`envs.objectives._through_stages`). A device computes what it holds in the seconds that the
problem says or, since what is left of its memory decides how many requests it can have at a time, as fast as a file
says by the number of layers that it holds, which are the blocks in the names of ops, or else units:

    schema = "placelab.rates"
    version = 1

    [samples_per_second]  # by a device's name, or what of it is before a colon
    a100 = [31585, 15335, 9749]  # with one layer, with two, with three; no more fit
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import ClassVar, Literal

import msgspec
import numpy as np

from envs.costs.costs import costs_of
from envs.objectives._through_stages import Link, Place, seconds_apart
from envs.plans.plan import Plan
from envs.plans.stages import stages_of
from envs.simulation.simulator import Outcomes, Placements, Simulator
from graphs.foundation.by_name import unknown
from graphs.foundation.documents import read_document
from graphs.foundation.errors import InputError, located
from graphs.op_graph import Bools, Floats, Ints
from graphs.op_groups.layer_names import unit_blocks
from graphs.problem import Problem
from graphs.transforms.batch import samples_of

RATE = "samples/s"
VERSION = 1


class Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file says."""

    schema: Literal["placelab.rates"]
    version: int
    samples_per_second: dict[str, tuple[float, ...]]  # of a device, by the number of layers that it holds


@dataclass(frozen=True)
class Flow:
    """Seconds of each of many samples, as far apart as they can follow one another."""

    static: ClassVar[bool] = True

    rates: str = ""
    """A file with the samples per second of devices by the number of layers that they hold; "" by the problem."""

    @property
    def of_requests(self) -> bool:
        """Whether nothing says how fast a device is with what it keeps of requests."""
        return not self.rates

    def evaluator(self, problem: Problem) -> Apart:
        """Of op placements. Raises InputError for a training step, an unknown batch, or a file without a device."""
        return Apart(problem, _flow_of(problem, self.rates))

    def of_plan(self, problem: Problem, plan: Plan) -> float:
        """Of a plan, whose micro-batches and shares do not count.

        Raises InputError likewise, and for divided ops, which no replica computes alone, and weights held in parts.
        """
        plan.check(problem)
        if plan.split or plan.schedule.zero:
            what = "hold weights in parts (ZeRO)" if plan.schedule.zero else "divide ops by their indices"
            raise InputError(
                f"the objective flow is of replicas that compute requests alone, and the plan's {what}; take "
                "throughput, "
                "or a plan whose replicas hold all weights"
            )
        flow = _flow_of(problem, self.rates)
        if plan.is_placement:
            return float(flow.of_placement(plan.placement))
        return flow.of_stages(plan)


class Apart:
    """Evaluates placements by the busiest device or link; what memory they take is the simulator's peak."""

    def __init__(self, problem: Problem, flow: _Flow) -> None:
        self.problem = problem
        self.simulations = 0
        self._flow, self._simulator = flow, Simulator(problem)

    def run_batch(self, placements: Placements, *, threads: int = 1) -> Outcomes:
        """(plans,) seconds of each of (plans, units) placements, and the memory that a simulated step takes."""
        outcomes = self._simulator.run_batch(placements, threads=threads)
        return replace(outcomes, step_seconds=self.seconds(placements))

    def seconds(self, placements: Placements, *, threads: int = 1) -> Floats:  # noqa: ARG002 - one is fast enough
        """(plans,) seconds per sample of each of (plans, units) placements, without simulating any."""
        per_op = self._simulator.checked(placements)[:, self.problem.graph.units].astype(np.int64)
        self.simulations += len(per_op)
        return np.array([self._flow.of_placement(each) for each in per_op])


@dataclass(frozen=True, eq=False)
class _Flow:
    """A problem, and how fast its devices are."""

    problem: Problem
    tables: tuple[tuple[float, ...], ...] = ()  # (devices,) samples per second by layers, if they are given
    samples: int = field(default=0)

    @cached_property
    def _busy(self) -> Floats:
        """(ops, devices) seconds of a sample."""
        return costs_of(self.problem).busy_seconds(self.problem) / self.samples

    @cached_property
    def _layer(self) -> Ints:
        """(ops,) the layer of each op."""
        graph = self.problem.graph
        blocks = unit_blocks(graph)
        return blocks[graph.units] if len(blocks) else graph.units

    def rate(self, device: int, ops: Bools) -> float:
        """Samples per second of a device that holds these, (ops,)."""
        if self.tables:
            layers, table = len(np.unique(self._layer[ops])), self.tables[device]
            return table[layers - 1] if layers <= len(table) else 0.0
        seconds = float(self._busy[ops, device].sum())
        return 1.0 / seconds if seconds > 0 else np.inf

    def of_placement(self, placement: Ints) -> float:
        """Seconds of a sample on the busiest device or link of (ops,) devices."""
        cluster, graph = self.problem.cluster, self.problem.graph
        slowest = min(self.rate(device, placement == device) for device in np.unique(placement).tolist())
        edges = np.flatnonzero(~graph.control)
        target = placement[graph.edges[edges, 1]]
        moved, first = np.unique(np.stack([graph.edge_output[edges], target]), axis=1, return_index=True)
        source = placement[graph.edges[edges[first], 0]]
        leaves = source != moved[1]
        source, output, target = source[leaves], moved[0, leaves], moved[1, leaves]
        busy = np.zeros(len(cluster) ** 2)
        pair = source * len(cluster) + target
        np.add.at(busy, pair, graph.moved_bytes[output] / self.samples / cluster.bandwidth[source, target])
        return max(1.0 / slowest if slowest > 0 else np.inf, float(busy.max()))

    def of_stages(self, plan: Plan) -> float:
        """Seconds of a sample by the maximum flow through a plan's stages.

        What a device does in several stages, and what a link carries between several, share it.
        """
        stage = stages_of(self.problem.graph, plan.devices, plan.schedule.stages)
        places = [
            (number, device)
            for number in range(int(stage.max()) + 1)
            for device in plan.devices[int(np.flatnonzero(stage == number)[0])]
        ]
        held = {device: np.isin(stage, [number for number, on in places if on == device]) for _, device in places}
        links, bandwidth = list[Link](), self.problem.cluster.bandwidth
        for number in range(int(stage.max())):
            size = self._entering(stage, number + 1)
            of, to = ([place for place, (at, _) in enumerate(places) if at == each] for each in (number, number + 1))
            for source, target in product(of, to):
                device, other = places[source][1], places[target][1]
                links.append(Link(source, target, 0.0 if device == other else float(size / bandwidth[device, other])))
        return seconds_apart(
            [Place(at, device, self._seconds(device, stage == at, held[device])) for at, device in places], links
        )

    def _seconds(self, device: int, ops: Bools, held: Bools) -> float:
        """Of a sample on a device that computes some ops, (ops,), and holds these and others, (ops,)."""
        if not self.tables:
            return float(self._busy[ops, device].sum())
        rate = self.rate(device, held)
        part = len(np.unique(self._layer[ops])) / len(np.unique(self._layer[held]))
        return part / rate if rate > 0 else np.inf

    def _entering(self, stage: Ints, number: int) -> float:
        """Bytes of a sample that pass from earlier stages to this one and later ones."""
        graph = self.problem.graph
        producer, consumer = stage[graph.edges].T
        crossing = (producer < number) & (consumer >= number) & ~graph.control
        return float(graph.moved_bytes[np.unique(graph.edge_output[crossing])].sum()) / self.samples


def _flow_of(problem: Problem, rates: str) -> _Flow:
    """Raises InputError as `Flow.evaluator` does."""
    if problem.graph.is_training:
        raise InputError(
            "the objective flow is of requests that follow one another through a forward pass; plan one, as with "
            "--no-training, or take throughput"
        )
    samples = samples_of(problem.graph)
    if not rates:
        return _Flow(problem, samples=samples)
    path = Path(rates)
    found: Rates = read_document(path, Rates, version=VERSION, remedy="`docs/clusters.md` says what it holds")
    with located(path):
        tables = []
        for device in problem.cluster.devices:
            name = next(
                (each for each in (device.name, device.name.partition(":")[0]) if each in found.samples_per_second), ""
            )
            if not name:
                raise InputError(unknown("device", device.name, found.samples_per_second))
            for rate in found.samples_per_second[name]:
                if not 0 < rate < np.inf:
                    raise InputError(
                        f"samples_per_second of {name!r} has {rate}; expected positive numbers, and none for layers "
                        "that it has no room for"
                    )
            tables.append(found.samples_per_second[name])
    return _Flow(problem, tuple(tables), samples)


build = Flow
