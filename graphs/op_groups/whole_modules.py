"""Modules that are placed whole, and which ops go with each.

Other programs place modules: what a module reads is brought to its device when it is called, and what a module's own
code computes between calls of its parts runs where these left their outputs. So these are placed whole, each the
outermost on its path:

    layers.3             a part with a number
    encoder.embed        one without parts, or with parameters or buffers of its own
    positions            a tensor that the model itself has, and no part of it: all such are on one device
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from graphs.algorithms.components import connected_components
from graphs.foundation.errors import InputError
from graphs.notation.signatures import origin
from graphs.op_graph import Ints, OpGraph, Phase

# Imported for its types alone: torch takes seconds to import.
if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class WholeModules:
    """The modules of a model that are placed whole, and the ops of its graph that run in each."""

    graph: OpGraph
    keys: tuple[str, ...]  # the model's own tensors, then paths of modules, in its order; none is inside of another
    tensors: int  # how many of the keys are tensors: parameters and buffers of a model that has parts
    of_op: Ints  # (ops,) the key that each forward op is of; -1 for code between modules, and for other phases
    first: Ints  # (keys,) the first key that is the same module, as one that has several paths; tensors are as one
    reads: Ints  # (reads, 2) an op between modules, and a key whose tensors it reads

    @classmethod
    def of(cls, graph: OpGraph, model: nn.Module) -> WholeModules:
        """The modules of a model. Raises InputError for a graph that does not know the calls of the model's code."""
        check_calls(graph)
        modules = dict(model.named_modules(remove_duplicate=False))
        key_of = {path: _key(path, modules) for path in modules}
        own = _own(model) if key_of[""] is None else {}
        keys = tuple(dict.fromkeys([*own, *(key for key in key_of.values() if key is not None)]))
        number = {key: index for index, key in enumerate(keys)}
        of_op = np.full(len(graph), -1)
        for op in np.flatnonzero(graph.phase == Phase.FORWARD).tolist():
            call = graph.calls[op]
            key = None if call is None else key_of.get(call.module)
            of_op[op] = -1 if key is None else number[key]
        same: dict[int, int] = {}
        first = [same.setdefault(id(modules.get(key)), index) for index, key in enumerate(keys)]
        between = np.flatnonzero((of_op < 0) & (graph.phase == Phase.FORWARD))
        reads = [*_weights_read(graph, between, number), *_buffers_read(graph, between, own)]
        return cls(graph, keys, len(own), of_op, np.array(first, np.int64), np.array(reads, np.int64).reshape(-1, 2))

    @property
    def data_edges(self) -> Ints:
        """(edges, 2) producer, consumer of the forward pass."""
        graph = self.graph
        edges: Ints = graph.edges[~graph.control & (graph.phase[graph.edges] == Phase.FORWARD).all(axis=1)]
        return edges

    @property
    def together(self) -> Ints:
        """(ops + keys,) numbers, the same for ops and modules that share a device.

        They do so if an op between modules reads the outputs of both, or weights, and if they are the same module.
        """
        graph, edges = self.graph, self.data_edges
        keyed, mirrored = np.flatnonzero(self.of_op >= 0), np.flatnonzero(graph.mirror >= 0)
        tied = [
            np.column_stack([keyed, len(graph) + self.of_op[keyed]]),
            edges[self.of_op[edges[:, 1]] < 0],
            np.column_stack([mirrored, graph.mirror[mirrored]]),
            len(graph) + np.column_stack([np.arange(len(self.keys)), self.first]),
            self.reads + np.array([0, len(graph)]),
        ]
        return connected_components(np.concatenate(tied), len(graph) + len(self.keys))

    def tied(self) -> OpGraph:
        """The graph with an op group for each module, or for those that share a device.

        What reads only the model's inputs is with the first module that has ops. The graph's own groups are left out.
        """
        of_ops, of_keys = np.split(self.together, [len(self.graph)])
        is_alone = ~np.isin(of_ops, of_keys)
        first = of_keys[np.isin(of_keys, of_ops).argmax()]  # of those that have ops
        return replace(self.graph, group=np.where(is_alone, first, of_ops))


def check_calls(graph: OpGraph) -> None:
    """Raise InputError for a graph that does not know the calls of the model's code, and its weights by name."""
    if not graph.calls or not any(graph.weight_names):
        raise InputError(
            f"graph {graph.name!r} does not say which calls of a model's code its ops come from; give the model that "
            "it was captured from, which must be one that can be recorded"
        )


def tie_modules(graph: OpGraph, model: nn.Module) -> OpGraph:
    """The same ops, tied into op groups of whole modules: an export of a placement of these loses nothing.

    Raises InputError for a graph that does not know the calls of the model's code.
    """
    return WholeModules.of(graph, model).tied()


def _key(path: str, modules: dict[str, nn.Module]) -> str | None:
    """The module that a module is placed with; None for one that only holds others, as a model that has parts."""
    parts = path.split(".") if path else []
    for depth in range(len(parts) + 1):
        outer = ".".join(parts[:depth])
        module = modules[outer]
        is_numbered = depth > 0 and parts[depth - 1].isdecimal()
        if is_numbered or not [*module.children()] or (depth > 0 and _own(module)):
            return outer
    return None


def _own(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers that a module itself has, by name."""
    return {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False))}


def _weights_read(graph: OpGraph, ops: Ints, number: dict[str, int]) -> Iterator[tuple[int, int]]:
    """An op of these, (ops,), and the key whose parameter it reads, as the model's own code may."""
    among = set(ops.tolist())
    for op, weight in graph.weight_uses.tolist():
        if op in among:
            parts = graph.weight_names[weight].split(".")
            outer = [".".join(parts[:depth]) for depth in range(len(parts) + 1)]
            yield from ((op, number[path]) for path in outer if path in number)


def _buffers_read(graph: OpGraph, ops: Ints, own: dict[str, Tensor]) -> Iterator[tuple[int, int]]:
    """An op of these, (ops,), and the model's own tensors, if it may read a buffer among them.

    A graph does not tell buffers from inputs, so that one of the same shape is taken for the buffer.
    """
    shapes = {tuple(tensor.shape) for tensor in own.values()}
    for op in ops.tolist() if own else []:
        signature = None if graph.signatures is None else graph.signatures.signature(op)
        if signature is None or graph.signatures is None:
            continue
        for read, source in zip(signature.reads, graph.signatures.numbers(op), strict=True):
            if origin(source, len(graph.weights)).kind == "input" and read.base in shapes:
                yield op, 0
