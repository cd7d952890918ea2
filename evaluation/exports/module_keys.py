"""A plan rounded to modules that are placed whole: on which device, or in which stage of a pipeline, each of them is.

    op placement     places are devices: a module goes where its ops take most of the time
    pipeline         places are stages: likewise, but no earlier than what the module reads

A rounded pipeline has the stages, devices and order of passes of the given one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import nn

from envs.costs.costs import costs_of
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY
from envs.plans.stages import Devices, stages_of
from evaluation.exports.degrees import joined_stages, takes_apart
from evaluation.exports.written import Written
from graphs.algorithms.components import strong_components
from graphs.algorithms.order import topological_order
from graphs.algorithms.pairs import distinct_pairs
from graphs.foundation.errors import InputError, listed
from graphs.op_graph import Floats, Ints, Phase
from graphs.op_groups.grouping import untied
from graphs.op_groups.whole_modules import WholeModules
from graphs.problem import Problem

LEAST = 1e-12  # seconds: of ops that take no time the number counts
WITH_ONE_DEVICE_EACH = (
    "make one with `placelab place ... --no-training --plans placement --groups modules`, and export it with "
    "--no-training"
)


@dataclass(frozen=True, eq=False)
class ModuleKeys:
    """The modules of a model that are placed whole, and where a plan puts most of each."""

    problem: Problem  # without op groups
    plan: Plan
    modules: WholeModules
    hosts: Devices  # of each place its device, or those of its replicas
    places: Ints  # (keys,) where the ops of each take most of the time

    @classmethod
    def of(cls, problem: Problem, plan: Plan, model: nn.Module) -> ModuleKeys:
        """Round a plan to modules.

        Raises InputError for a graph that does not know its calls.
        """
        graph = untied(problem.graph)
        problem, modules = replace(problem, graph=graph), WholeModules.of(graph, model)
        place, hosts = plan.placement, tuple((device,) for device in range(len(problem.cluster)))
        if is_pipeline(plan):
            place = stages_of(graph, plan.devices, plan.schedule.stages)
            hosts = tuple(plan.devices[op] for op in np.unique(place, return_index=True)[1].tolist())
        found = cls(problem, plan, modules, hosts, _most(problem, plan, modules, place))
        return found._without_empty_parts() if plan.schedule.stages else found

    def _without_empty_parts(self) -> ModuleKeys:
        """The same without stages that have no module, but run as one with others that have."""
        if takes_apart(self.plan, self.hosts):
            return self
        pieces, held = joined_stages(self.plan, self.hosts), set(self.places.tolist())
        with_modules = {pieces[place] for place in held}
        kept = [place for place, piece in enumerate(pieces) if place in held or piece not in with_modules]
        number, schedule = {place: at for at, place in enumerate(kept)}, self.plan.schedule
        recompute = tuple(number[place] for place in schedule.recompute if place in number)
        return replace(
            self, plan=replace(self.plan, schedule=replace(schedule, recompute=recompute)),
            hosts=tuple(self.hosts[place] for place in kept),
            places=np.array([number[place] for place in self.places.tolist()], np.int64),
        )  # fmt: skip

    @property
    def keys(self) -> tuple[str, ...]:
        """The model's own tensors, and paths of modules, in its order; none is inside of another."""
        return self.modules.keys

    @property
    def devices(self) -> Ints:
        """(keys,) the device of each module, of a plan without replicas."""
        return np.array([self.hosts[place][0] for place in self.places.tolist()], np.int64)

    @property
    def gpu_numbers(self) -> dict[int, int]:
        """Of each device of the cluster that is no CPU, its number among these."""
        gpus = [number for number, device in enumerate(self.problem.cluster.devices) if device.kind != "cpu"]
        return {gpu: number for number, gpu in enumerate(gpus)}

    def check_on_gpus(self, to: str) -> None:
        """Raise InputError for a plan with modules on CPUs next to other devices."""
        devices = self.problem.cluster.devices
        used = {device for place in set(self.places.tolist()) for device in self.hosts[place]}
        cpus = sorted(device for device in used if devices[device].kind == "cpu")
        if cpus and len(cpus) < len(used):
            raise InputError(
                f"{to} has stages on GPUs, and this plan has modules on {devices[cpus[0]].name} next to others; give a "
                "plan for GPUs alone"
            )

    @property
    def is_pipeline(self) -> bool:
        """Whether places are stages, and not devices."""
        return is_pipeline(self.plan)

    @cached_property
    def first_op(self) -> Ints:
        """(keys,) the first op of each module; of one without ops, that of the module before it."""
        ops, first = np.unique(self.modules.of_op, return_index=True)
        found = np.full(len(self.keys), -1)
        found[ops[ops >= 0]] = first[ops >= 0]
        return _filled(found)

    @cached_property
    def _weights(self) -> list[set[int]]:
        """Of each module the weights that its forward ops read."""
        found: list[set[int]] = [set() for _ in self.keys]
        for op, weight in self.problem.graph.weight_uses.tolist():
            if self.modules.of_op[op] >= 0:
                found[self.modules.of_op[op]].add(weight)
        return found

    @cached_property
    def weight_bytes(self) -> Floats:
        """(keys,) bytes of the weights that each module reads."""
        weights = self.problem.graph.weights
        return np.array([weights[sorted(each)].sum() for each in self._weights], np.float64)

    def weights_of(self, key: int) -> dict[str, float]:
        """The bytes of each weight of a module, by its name in there."""
        graph, inside = self.problem.graph, f"{self.keys[key]}."
        return {graph.weight_names[each].removeprefix(inside): graph.weights[each] for each in self._weights[key]}

    def written(self, text: str, places: Ints, hosts: Devices = (), notes: Sequence[str] = ()) -> Written:
        """A text, and the plan that it says: the modules at these places, as `placed` takes them."""
        names = [device.name for device in self.problem.cluster.devices]
        moved = list[str]()
        for key in np.unique(self.modules.of_op[self.modules.of_op >= 0]).tolist():
            planned, found = self.hosts[self.places[key]], (hosts or self.hosts)[places[key]]
            if planned != found:
                moved.append(f"{self.keys[key]} on {_called(found, names)} (planned {_called(planned, names)})")
        lost = [f"On other devices than planned: {listed(moved)}."] if moved else []
        return Written(text, self.problem, self.placed(places, hosts), (*notes, *lost), len(moved))

    def placed(self, places: Ints, hosts: Devices = ()) -> Plan:
        """The plan with the modules at these places, (keys,), which have these devices, those of the plan unless given.

        Code between modules runs where the latest of what it reads was computed: at the highest number. If it reads
        only the model's inputs it runs where the first module is, or in the first stage. Raises InputError if a stage
        has no modules.
        """
        graph, of_op, hosts = self.problem.graph, self.modules.of_op, hosts or self.hosts
        place = np.where(of_op >= 0, places[of_op], -1)
        inputs: list[list[int]] = [[] for _ in range(len(graph))]
        for producer, consumer in self.modules.data_edges.tolist():
            inputs[consumer].append(producer)
        np.maximum.at(place, self.modules.reads[:, 0], places[self.modules.reads[:, 1]])
        for op in graph.topological_order.tolist():
            if of_op[op] < 0 and graph.phase[op] == Phase.FORWARD:
                place[op] = max([int(place[op]), *(int(place[producer]) for producer in inputs[op])])
        place[place < 0] = 0 if self.is_pipeline else places[0]
        mirrored = graph.mirror >= 0
        place[mirrored] = place[graph.mirror[mirrored]]
        devices = tuple(hosts[each] for each in place.tolist())
        if not self.is_pipeline or (len(hosts) == 1 and not self.plan.schedule.stages):
            return replace(self.plan, devices=devices)
        empty = sorted(set(range(len(hosts))) - set(places.tolist()))
        if empty:
            raise InputError(
                f"rounded to whole modules, stage {empty[0]} of this plan has none: it has {len(hosts)} stages for "
                f"{len(self.keys)} modules; give a plan with fewer, or one made with `groups='modules'`"
            )
        return replace(self.plan, devices=devices, schedule=replace(self.plan.schedule, stages=tuple(place.tolist())))


def _called(devices: Sequence[int], names: Sequence[str]) -> str:
    return "+".join(names[each] for each in devices)


def check_one_device_each(plan: Plan, to: str) -> None:
    """Raise InputError for a plan with replicas, or shards."""
    if (several := _most_devices(plan)) > 1:
        raise InputError(
            f"{to} takes plans with one device per op, and this plan places ops on {several} devices each; "
            f"{WITH_ONE_DEVICE_EACH}, or, to train, use `to='torchtitan'`, megatron, deepspeed or fsdp"
        )


def is_pipeline(plan: Plan) -> bool:
    """Whether the plan has stages that follow one another, or replicas, and not only devices."""
    schedule = plan.schedule
    return bool(schedule.stages or schedule.recompute) or schedule.order != AS_READY or _most_devices(plan) > 1


def _most_devices(plan: Plan) -> int:
    """How many devices an op has, at most."""
    return max(map(len, plan.devices), default=1)


def _most(problem: Problem, plan: Plan, modules: WholeModules, place: Ints) -> Ints:
    """(keys,) the place of the most time, given that of each op, (ops,); modules that share a device have the same one.

    A module without ops is where the one before it is.
    """
    graph, together = problem.graph, modules.together
    if is_pipeline(plan):
        together = _without_circles(modules, together)
    of_ops, of_keys = together[: len(graph)], together[len(graph) :]
    seconds = np.zeros((int(together.max()) + 1, int(place.max()) + 1))
    cost = costs_of(problem).op_seconds[np.arange(len(graph)), plan.placement] + LEAST
    np.add.at(seconds, (of_ops, place), cost)
    found = np.where(seconds.any(axis=1), seconds.argmax(axis=1), -1)
    if is_pipeline(plan):
        found[np.setdiff1d(of_ops, of_keys)] = 0  # of the model's inputs alone
        found = _no_earlier(found, distinct_pairs(of_ops[modules.data_edges])[0])
    return _filled(found[of_keys])


def _without_circles(modules: WholeModules, together: Ints) -> Ints:
    """(ops + keys,) numbers as `together`; what feeds each other in a circle is one: it must be in the same stage."""
    edges, count = distinct_pairs(together[modules.data_edges])[0], int(together.max()) + 1
    return strong_components(edges, count)[together]


def _no_earlier(stage: Ints, edges: Ints) -> Ints:
    """(nodes,) the stages, (nodes,), each put off to the latest of those that feed it along the edges, (edges, 2)."""
    edges, found = edges[edges[:, 0] != edges[:, 1]], stage.copy()
    after: list[list[int]] = [[] for _ in range(len(stage))]
    for first, second in edges.tolist():
        after[first].append(second)
    for node in topological_order(edges, len(stage)).tolist():
        for second in after[node]:
            found[second] = max(found[second], found[node])
    return found


def _filled(found: Ints) -> Ints:
    """(keys,) what was found of each; of one with -1 that of the one before it, or of the first that has any."""
    known = np.flatnonzero(found >= 0)
    before = np.maximum(np.searchsorted(known, np.arange(len(found)), side="right") - 1, 0)
    return np.asarray(found[known[before]], np.int64)
