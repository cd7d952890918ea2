"""Modules that are placed whole, and on which device each op is if they are.

Other programs place modules: what a module reads is brought to its device when it is called, and what a module's own
code computes between calls of its parts runs where these left their outputs. So these are placed whole, each the
outermost on its path:

    layers.3             a part with a number
    encoder.embed        one without parts, or with parameters or buffers of its own
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from envs.costs.costs import costs_of
from envs.placed_models.call_placement import on_calls
from envs.plan import Plan
from graphs.components import connected_components
from graphs.op_graph import Ints, OpGraph, Phase
from graphs.problem import Problem


@dataclass(frozen=True, eq=False)
class ModuleKeys:
    """The modules of a model that are placed whole, and where a plan puts most of each."""

    problem: Problem  # without op groups
    plan: Plan
    keys: tuple[str, ...]  # paths of modules, in the order of the model; none is inside of another
    devices: Ints  # (keys,) where the ops of each take most of the time
    of_op: Ints  # (ops,) the key that each forward op is of; -1 for code between modules, and for other phases

    @classmethod
    def of(cls, problem: Problem, plan: Plan, model: nn.Module) -> ModuleKeys:
        """Round an op placement to modules.

        Raises InputError for a plan that is none, and for a graph that does not know its calls.
        """
        problem, plan, _ = on_calls(problem, plan, model, "export")
        graph = problem.graph
        modules = dict(model.named_modules(remove_duplicate=False))
        key_of = {path: _key(path, modules) for path in modules}
        keys = tuple(dict.fromkeys(key for key in key_of.values() if key is not None))
        number = {key: index for index, key in enumerate(keys)}
        of_op = np.full(len(graph), -1)
        for op in np.flatnonzero(graph.phase == Phase.FORWARD).tolist():
            call = graph.calls[op]
            key = None if call is None else key_of.get(call.module)
            of_op[op] = -1 if key is None else number[key]
        same: dict[int, int] = {}  # a module that has several paths is on one device
        shared = [(index, same.setdefault(id(modules[key]), index)) for index, key in enumerate(keys)]
        return cls(problem, plan, keys, _majority(problem, plan, of_op, shared), of_op)

    def placed(self, ranks: Ints) -> Plan:
        """The plan with the modules on the devices that are numbers (keys,).

        Code between modules runs where the latest of what it reads was computed: on the highest number. If it reads
        only the model's inputs it runs where the first module is.
        """
        graph = self.problem.graph
        device = np.where(self.of_op >= 0, ranks[self.of_op], -1)
        inputs: list[list[int]] = [[] for _ in range(len(graph))]
        for producer, consumer in _data_edges(graph).tolist():
            inputs[consumer].append(producer)
        for op in graph.topological_order.tolist():
            if self.of_op[op] < 0 and graph.phase[op] == Phase.FORWARD:
                device[op] = max((int(device[producer]) for producer in inputs[op]), default=-1)
        device[device < 0] = ranks[0]
        mirrored = graph.mirror >= 0
        device[mirrored] = device[graph.mirror[mirrored]]
        return Plan.of(device, order=self.plan.order)


def _key(path: str, modules: dict[str, nn.Module]) -> str | None:
    """The module that a module is placed with; None for one that only holds others."""
    parts = path.split(".") if path else []
    for depth in range(len(parts) + 1):
        outer = ".".join(parts[:depth])
        module = modules[outer]
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        is_numbered = depth > 0 and parts[depth - 1].isdecimal()
        if own or is_numbered or not [*module.children()]:
            return outer
    return None


def _data_edges(graph: OpGraph) -> Ints:
    """(edges, 2) producer, consumer of the forward pass."""
    edges: Ints = graph.edges[~graph.control & (graph.phase[graph.edges] == Phase.FORWARD).all(axis=1)]
    return edges


def _majority(problem: Problem, plan: Plan, of_op: Ints, shared: list[tuple[int, int]]) -> Ints:
    """(keys,) the device of the most time; modules whose outputs are read by one op between modules share it.

    A module without ops is where the one before it is.
    """
    graph, keys = problem.graph, len(shared)
    edges = _data_edges(graph)
    keyed = np.flatnonzero(of_op >= 0)
    mirrored = np.flatnonzero(graph.mirror >= 0)
    tied = [
        np.column_stack([keyed, len(graph) + of_op[keyed]]),
        edges[of_op[edges[:, 1]] < 0],
        np.column_stack([mirrored, graph.mirror[mirrored]]),
        len(graph) + np.array(shared, np.int64),
    ]
    component = connected_components(np.concatenate(tied), len(graph) + keys)
    seconds = np.zeros((int(component.max()) + 1, len(problem.cluster)))
    of_ops, placement = component[: len(graph)], plan.placement
    least = 1e-12  # of ops that take no time the number counts
    np.add.at(seconds, (of_ops, placement), costs_of(problem).op_seconds[np.arange(len(graph)), placement] + least)
    of_keys = component[len(graph) :]
    found = np.where(seconds[of_keys].any(axis=1), seconds[of_keys].argmax(axis=1), -1)
    known = np.flatnonzero(found >= 0)
    before = np.maximum(np.searchsorted(known, np.arange(keys), side="right") - 1, 0)
    return np.asarray(found[known[before]], np.int64)
