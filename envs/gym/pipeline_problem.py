"""PipelineProblem: one problem as a chain of layers, with all that is made once to construct many pipelines for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from envs.pipelines.construction import Actions, Construction, Decision
from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline
from envs.plans.plan import Plan
from envs.plans.schedule import Sharing
from envs.prepared_problem import PreparedProblem
from envs.simulation.simulator import LaidOut, Outcome
from graphs.algorithms.pairs import distinct_pairs
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats, Ints
from graphs.problem import Problem

Grain = Literal["stages", "ops"]


@dataclass(eq=False)
class PipelineProblem:
    """A problem, its layers, and what a step takes on one device.

    Raises InputError for a graph whose ops are bound to devices: a stage runs whole layers.
    """

    prepared: PreparedProblem
    most_layers: int
    grain: Grain  # at which plans are timed that are no op placements

    def __post_init__(self) -> None:
        graph = self.problem.graph
        if self.problem.allowed is not None:
            bound = next(op for op, names in enumerate(graph.devices) if names)
            raise InputError(
                f"the stages of a pipeline run whole layers, but op {graph.names[bound]!r} of {graph.name!r} may only "
                f"run on {', '.join(graph.devices[bound])}; use an environment that places ops, such as Placeto-v0"
            )

    @property
    def problem(self) -> Problem:
        """What is to be spread over devices."""
        return self.prepared.problem

    @cached_property
    def layers(self) -> Layers:
        """The chain that pipelines cut, with what its layers cost the fastest device."""
        return Layers.of(self.problem, self.most_layers, (self.prepared.fastest_device,))

    @cached_property
    def seconds(self) -> Floats:
        """(layers, devices) seconds of each layer on each device, whole batch, launches included."""
        busy = self.prepared.simulator.costs.busy_seconds(self.problem)
        total = np.zeros((len(self.layers), busy.shape[1]))
        np.add.at(total, self.layer_of_op, busy)
        return total

    @cached_property
    def layer_of_op(self) -> Ints:
        """(ops,) the layer of each."""
        layer: Ints = self.layers.of_unit[self.problem.graph.units]
        return layer

    @cached_property
    def layer_grain(self) -> LayerGrain:
        """What pipelines are judged on without touching ops."""
        return LayerGrain(self.problem, self.layers)

    @cached_property
    def weight_bytes(self) -> Floats:
        """(layers + 1, layers + 1) what the distinct weights of layers from one to before another occupy."""
        graph, count = self.problem.graph, len(self.layers)
        ops, weights = graph.weight_uses.T
        weight, layer = distinct_pairs(np.column_stack([weights, self.layer_of_op[ops]]))[0].T
        earlier = np.where(np.diff(weight, prepend=-1) == 0, np.concatenate([[-1], layer[:-1]]), -1)
        # a layer's use of a weight adds to it if layers from b on are taken, the weight's user before it being before b
        added = np.zeros((count + 1, count + 1))
        np.add.at(added, (earlier + 1, layer + 1), self.problem.weight_memory.bytes[weight])
        before, after = np.indices(added.shape)
        found: Floats = np.where(before < after, np.cumsum(added, axis=0), 0.0).cumsum(axis=1)
        return found

    @cached_property
    def _weight_gradients_apart(self) -> bool:
        return self.layers.weight_gradients_apart(self.problem)

    @cached_property
    def alone(self) -> Plan:
        """Everything on the fastest device, as it is before anything is decided."""
        return Plan.of_units(self.problem, np.full(len(self.problem.units), self.prepared.fastest_device))

    @cached_property
    def start(self) -> Outcome:
        """What a step takes then."""
        return self.prepared.simulator.run(self.alone.per_unit(self.problem))

    def outcome(self, pipeline: LayerPipeline) -> Outcome:
        """What a pipeline costs, at the grain. Raises InputError if it is not valid for the problem."""
        plan = pipeline.plan(self.problem, self.layers)
        if self.grain == "stages" and not plan.is_placement:
            return self.layer_grain.outcome(pipeline)
        laid = LaidOut.of(self.problem, plan)
        return laid.simulator().run(laid.placement)

    def construction(self, actions: Actions, sharing: Sharing, usable: Sequence[int] = ()) -> Construction:
        """A pipeline of which nothing is decided yet, on all devices, or on those that may be used."""
        graph = self.problem.graph
        return Construction(
            actions, len(self.layers), len(self.problem.cluster), samples=graph.samples,
            is_training=graph.is_training, weight_gradients_apart=self._weight_gradients_apart, sharing=sharing,
            usable=usable,
        )  # fmt: skip

    def with_room(self, construction: Construction) -> Bools:
        """(actions,) what is possible, and leaves room for the weights of the stage under way.

        Where nothing does, what is possible; all actions once nothing is left to decide, as the next one is void.
        """
        if construction.ended:
            return np.ones(len(construction.actions), np.bool_)
        legal, actions = construction.legal(), construction.actions
        has_room, begin = legal.copy(), construction.begin
        memory = self.problem.cluster.memory_bytes
        if construction.decision == Decision.DEVICES:
            devices = slice(actions.first_device, actions.first_device + len(memory))
            has_room[devices] &= self.weight_bytes[begin, begin + 1] <= memory
        elif construction.decision == Decision.END:
            ends = slice(actions.first_end, actions.first_end + len(self.layers))
            has_room[ends] &= self.weight_bytes[begin, 1:] <= memory[construction.chosen].min()
        return has_room if has_room.any() else legal
