"""Modules that are placed whole, and which ops go with each.

Other programs place modules: what a module reads is brought to its device when it is called, and what a module's own
code computes between calls of its parts runs where these left their outputs. So these are placed whole, each the
outermost on its path:

    layers.3             a part with a number
    encoder.embed        one without parts, or with parameters or buffers of its own
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from graphs.components import connected_components
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints, OpGraph, Phase

# Imported for its types alone: torch takes seconds to import.
if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, eq=False)
class WholeModules:
    """The modules of a model that are placed whole, and the ops of its graph that run in each."""

    graph: OpGraph
    keys: tuple[str, ...]  # paths of modules, in the order of the model; none is inside of another
    of_op: Ints  # (ops,) the key that each forward op is of; -1 for code between modules, and for other phases
    first: Ints  # (keys,) the first key of the same module, which may have several paths

    @classmethod
    def of(cls, graph: OpGraph, model: nn.Module) -> WholeModules:
        """The modules of a model. Raises InputError for a graph that does not know the calls of the model's code."""
        if not graph.calls:
            raise InputError(
                f"graph {graph.name!r} does not say which calls of a model's code its ops come from; give the model "
                "that it was captured from, which must be one that can be recorded"
            )
        modules = dict(model.named_modules(remove_duplicate=False))
        key_of = {path: _key(path, modules) for path in modules}
        keys = tuple(dict.fromkeys(key for key in key_of.values() if key is not None))
        number = {key: index for index, key in enumerate(keys)}
        of_op = np.full(len(graph), -1)
        for op in np.flatnonzero(graph.phase == Phase.FORWARD).tolist():
            call = graph.calls[op]
            key = None if call is None else key_of.get(call.module)
            of_op[op] = -1 if key is None else number[key]
        same: dict[int, int] = {}
        first = [same.setdefault(id(modules[key]), index) for index, key in enumerate(keys)]
        return cls(graph, keys, of_op, np.array(first, np.int64))

    @property
    def data_edges(self) -> Ints:
        """(edges, 2) producer, consumer of the forward pass."""
        graph = self.graph
        edges: Ints = graph.edges[~graph.control & (graph.phase[graph.edges] == Phase.FORWARD).all(axis=1)]
        return edges

    @property
    def together(self) -> Ints:
        """(ops + keys,) numbers, the same for ops and modules that share a device.

        They do so if an op between modules reads the outputs of both, or if they are the same module.
        """
        graph, edges = self.graph, self.data_edges
        keyed, mirrored = np.flatnonzero(self.of_op >= 0), np.flatnonzero(graph.mirror >= 0)
        tied = [
            np.column_stack([keyed, len(graph) + self.of_op[keyed]]),
            edges[self.of_op[edges[:, 1]] < 0],
            np.column_stack([mirrored, graph.mirror[mirrored]]),
            len(graph) + np.column_stack([np.arange(len(self.keys)), self.first]),
        ]
        return connected_components(np.concatenate(tied), len(graph) + len(self.keys))

    def tied(self) -> OpGraph:
        """The graph with an op group for each module, or for those that share a device.

        What reads only the model's inputs is with the first module. Groups of the graph's own are left out.
        """
        together, ops = self.together, len(self.graph)
        lone = ~np.isin(together[:ops], together[ops:])
        return replace(self.graph, group=np.where(lone, together[ops], together[:ops]))


def tie_modules(graph: OpGraph, model: nn.Module) -> OpGraph:
    """The same ops, tied into op groups of whole modules: an export of a placement of these loses nothing.

    Raises InputError for a graph that does not know the calls of the model's code.
    """
    return WholeModules.of(graph, model).tied()


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
