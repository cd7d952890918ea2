"""WrittenGraph: the op graph of an expansion, whose names and kinds are written when they are first read.

A search times thousands of expansions and reads neither. Tests compare these graphs with `OpGraph`s of the same values.
"""

from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.expansion.expanded import Role
from envs.expansion.layout import Layout
from graphs.algorithms.order import is_acyclic
from graphs.op_graph import MOST, MOST_FLOPS, RESIDENT, SPARSE, Bools, Floats, Ints, OpGraph
from graphs.op_graph.held_tensors import HeldTensors

_ROLES = tuple(role.name.lower() for role in Role)
_MARK = "#"  # the beginning of what expansion adds to the name of an op
_KEPT = 8  # graphs: a search expands one again and again

_CHECKED = (  # what `is_sound` reads, and the most that it may be
    ("flops", MOST_FLOPS), ("bytes_accessed", MOST), ("output_bytes", MOST), ("transfer_bytes", MOST),
    *((key, MOST) for key in RESIDENT), ("weights", MOST),
)  # fmt: skip


class WrittenGraph(OpGraph):
    """An op graph whose ops are copies of those of a given graph, and others; made by `written`.

    Each op is a unit by itself. One that is made of fields, as by `dataclasses.replace`, is as any op graph.
    """

    layout: Layout | None = None
    origin: Ints  # (ops,) the op of the given graph that each is a copy of, or acts for; -1 if none
    role: Ints  # (ops,) a Role

    def __len__(self) -> int:
        return len(self.flops)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """(ops,) unique names: of a copy its op's, with micro-batch and replica if there are several copies."""
        assert self.layout is not None
        return _names(self.layout, self.origin, self.role)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """(ops,) what each computes: as its op, or its role."""
        assert self.layout is not None
        given = self.layout.problem.graph.kinds
        kinds = (*given, *_ROLES)
        which = np.where(self.role <= Role.RECOMPUTED, self.origin, len(given) + self.role)
        return tuple([kinds[each] for each in which.tolist()])

    @cached_property
    def precisions(self) -> tuple[str, ...]:
        """(ops,) in which each multiplies: as its op; () if all do in single precision."""
        assert self.layout is not None
        given = self.layout.problem.graph.precisions
        return given and tuple(
            given[op] if role <= Role.RECOMPUTED else "" for op, role in zip(self.origin, self.role, strict=True)
        )

    @cached_property
    def units(self) -> Ints:
        """(ops,) the unit of each op, which is its number: no ops are tied."""
        return super().units if self.layout is None else _read_only(np.arange(len(self)))

    @cached_property
    def has_sparse_gradient(self) -> Bools:
        """(weights,) as of any op graph. Kinds need not be written to see that the given graph has none."""
        if self.layout is None or _has_sparse(self.layout.problem.graph):
            return super().has_sparse_gradient
        return _read_only(np.zeros(len(self.weights), np.bool_))


def written(
    layout: Layout, origin: Ints, role: Ints, values: dict[str, Any], held: HeldTensors | None = None,
    weight_precisions: tuple[str, ...] = (),
) -> OpGraph:  # fmt: skip
    """The graph of the ops of an expansion, (ops,), with arrays that are kept, by the field of `OpGraph`.

    The arrays are costs, edges, control, edge_bytes, weights, weight_uses, frozen, phase,
    transfer_bytes, unsent_bytes and working_bytes. Raises InputError as `OpGraph` does.
    """
    graph, count = object.__new__(WrittenGraph), len(origin)
    untied, messages, frozen = np.full(count, -1), values["edge_bytes"], values["frozen"]
    arrays = values | {
        "edge_bytes": np.zeros(0) if np.isnan(messages).all() else messages,
        "frozen": frozen if frozen.any() else np.zeros(0, np.bool_),
        "mirror": untied, "group": untied, "measured_seconds": np.full(count, np.nan),
    }  # fmt: skip
    rest: dict[str, Any] = {
        "name": layout.problem.graph.name, "measured_on": {}, "devices": (), "calls": (), "weight_names": (),
        "described": (), "batch_law": None, "signatures": None, "layout": layout, "origin": origin, "role": role,
        "held": held, "weight_precisions": weight_precisions,
        **{key: getattr(layout.problem.graph, key) for key in ("gradient_precision", "master_weights")},
    }  # fmt: skip
    vars(graph).update({key: _read_only(array) for key, array in arrays.items()} | rest)
    return (
        graph if _is_sound(graph) and not _has_mark(layout.problem.graph) else _checked(graph, values | {"held": held})
    )


def _checked(graph: WrittenGraph, values: dict[str, Any]) -> OpGraph:
    """The same graph, with everything written out and checked. Raises InputError, naming what is wrong."""
    kept = {
        key: getattr(graph, key) for key in ("precisions", "weight_precisions", "gradient_precision", "master_weights")
    }
    return OpGraph(graph.name, graph.names, graph.kinds, **kept, **values)


def _is_sound(graph: WrittenGraph) -> bool:
    """Whether all costs are such, and no ops wait for each other; names are unique, and edges lead to ops, as made."""
    for key, most in _CHECKED:
        amounts = getattr(graph, key)
        if not (amounts.min(initial=0.0) >= 0 and amounts.max(initial=0.0) <= most):  # of NaN, both are NaN
            return False
    messages: Floats = graph.edge_bytes
    if not ((messages >= 0) & (messages <= MOST) | np.isnan(messages)).all():
        return False
    return is_acyclic(graph.edges, len(graph))


@lru_cache(_KEPT)
def _has_mark(graph: OpGraph) -> bool:
    """Whether names may be those of copies, or of other ops that an expansion adds."""
    return any(_MARK in name for name in graph.names)


@lru_cache(_KEPT)
def _has_sparse(graph: OpGraph) -> bool:
    return any(kind.endswith(SPARSE) for kind in graph.kinds)


def _names(layout: Layout, origin: Ints, role: Ints) -> tuple[str, ...]:
    """(ops,) as `WrittenGraph.names`; the first are the copies of the layout."""
    names, copies, most = layout.problem.graph.names, len(layout.origin), int(layout.replicas.max())
    suffixes = [
        f"{_MARK}{micro_batch}.{replica}" for micro_batch in range(-1, layout.micro_batches) for replica in range(most)
    ]
    suffix = np.where(
        layout.count[layout.origin] > 1, (layout.micro_batch + 1) * most + layout.replica, len(suffixes)
    )  # fmt: skip
    suffixes.append("")
    of_copies = [names[op] + suffixes[which] for op, which in zip(layout.origin.tolist(), suffix.tolist(), strict=True)]
    further = zip(origin[copies:].tolist(), role[copies:].tolist(), strict=True)
    of_others = [
        f"{names[op] if op >= 0 else ''}{_MARK}{_ROLES[role]}.{number}"
        for number, (op, role) in enumerate(further, copies)
    ]
    return (*of_copies, *of_others)


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    array: NDArray[Any] = values[:]  # the caller's own may still be written
    array.flags.writeable = False
    return array
