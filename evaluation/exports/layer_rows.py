"""Which modules are a model's layers: numbered ones in a row, each of which reads what the one before it made.

Programs that say how many layers are where take such models alone. In a U-Net layers read what earlier modules left for
them, tables of a recommender stand side by side, and layers of a graph network read the graph.
"""

from collections import defaultdict
from itertools import pairwise

import numpy as np

from evaluation.exports.module_keys import ModuleKeys
from graphs.foundation.errors import InputError
from graphs.notation.signatures import Signature, origin
from graphs.op_graph import Bools, Ints, Phase

_REMEDY = "use `to='device_map'`"
_SUMS = {  # by indices: what nodes of a graph do with their neighbours
    "aten.index_add", "aten.scatter_add", "aten.scatter_reduce", "aten.segment_reduce", "aten._sparse_mm",
}  # fmt: skip
_PRODUCTS = {"aten.mm", "aten.bmm", "aten.baddbmm", "aten.addmm"}  # with a matrix of neighbours


def by_layers(where: Ints) -> list[int]:
    """The places of layers, (layers,), in the order of what they have."""
    return sorted(set(where.tolist()), key=lambda place: float(np.flatnonzero(where == place).mean()))


def after(keys: ModuleKeys, layers: list[int]) -> Bools:
    """(keys,) whether each module is called after the last of the layers."""
    found: Bools = keys.first_op > keys.first_op[layers].max()
    found[layers] = False
    return found


def layers_of(keys: ModuleKeys) -> list[int]:
    """The numbers of the modules that are layers: the parts of the module that has most numbered ones.

    Raises InputError if none has two, if other modules are between them, and if they are no chain.
    """
    numbered = defaultdict[str, list[int]](list)
    for index, key in enumerate(keys.keys):
        parent, _, last = key.rpartition(".")
        if last.isdecimal():
            numbered[parent].append(index)
    layers = max(numbered.values(), key=len, default=[])
    if len(layers) < 2 or layers != list(range(layers[0], layers[0] + len(layers))):
        raise InputError(
            f"{keys.problem.graph.name!r} is no row of numbered layers, of which this export says how many are on "
            f"each device; {_REMEDY}"
        )
    _check_chain(keys, layers)
    _check_no_graph(keys, layers)
    return layers


def check_equal(keys: ModuleKeys, layers: list[int], to: str) -> None:
    """Raise InputError for layers that have unlike weights: a program that counts them takes equal ones.

    The last one may leave some of them unread, as that of XLNet does.
    """
    first, *others = (keys.weights_of(layer) for layer in layers)
    for layer, weights in zip(layers[1:], others, strict=True):
        fewer, more = sorted((first, weights), key=len)
        if not fewer.items() <= more.items() or (not fewer and more):
            one, other = keys.keys[layers[0]], keys.keys[layer]
            raise InputError(
                f"{to} counts equal layers, and {one!r} and {other!r} of {keys.problem.graph.name!r} have unlike "
                f"weights; {_REMEDY}"
            )


def _check_chain(keys: ModuleKeys, layers: list[int]) -> None:
    """Raise InputError for a layer that reads what is computed with weights, but not what the one before it made."""
    read, name = _read(keys, layers), keys.problem.graph.name
    called = [layer for layer in layers if (keys.modules.of_op == layer).any()]  # others compute nothing
    for before, layer in pairwise(called):
        others = sorted(read[layer] - {before})
        if before not in read[layer]:
            raise InputError(
                f"this export is for layers in a chain, and {keys.keys[layer]!r} of {name!r} does not read "
                f"{keys.keys[before]!r}; {_REMEDY}"
            )
        if others:
            raise InputError(
                f"this export is for layers in a chain, and {keys.keys[layer]!r} of {name!r} reads "
                f"{keys.keys[others[0]]!r} as well; {_REMEDY}"
            )


def _check_no_graph(keys: ModuleKeys, layers: list[int]) -> None:
    """Raise InputError for layers of which several sum by the same input, or multiply by it: the edges of a graph."""
    graph, seen = keys.problem.graph, dict[int, int]()
    weights, signatures = len(graph.weights), graph.signatures
    if signatures is None:
        return
    for op in np.flatnonzero(np.isin(keys.modules.of_op, layers)).tolist():
        signature = signatures.signature(op)
        if signature is None or not (_is_sum(signature) or signature.function in _PRODUCTS):
            continue
        origins = [origin(number, weights) for number in signatures.numbers(op)]
        if signature.function in _PRODUCTS and any(each.kind == "weight" for each in origins):
            continue
        for number in (each.number for each in origins if each.kind == "input"):
            layer = int(keys.modules.of_op[op])
            if seen.setdefault(number, layer) != layer:
                raise InputError(
                    f"this export is for layers that read one another alone, and those of {graph.name!r} read a graph "
                    f"as well, as {keys.keys[layer]!r} does in {graph.names[op]!r}; {_REMEDY}"
                )


def _is_sum(signature: Signature) -> bool:
    accumulates = signature.function == "aten.index_put" and signature.arguments[3:4] == (True,)
    return accumulates or signature.function in _SUMS


def _read(keys: ModuleKeys, layers: list[int]) -> list[set[int]]:
    """Of each module those with weights, and layers, that it reads, with or without other code in between."""
    graph, of_op = keys.problem.graph, keys.modules.of_op
    is_source = keys.weight_bytes > 0
    is_source[layers] = True
    inputs: list[list[int]] = [[] for _ in range(len(graph))]
    for producer, consumer in keys.modules.data_edges.tolist():
        inputs[consumer].append(producer)
    made: list[set[int]] = [set() for _ in range(len(graph))]  # by op: whose outputs reach its readers
    read: list[set[int]] = [set() for _ in keys.keys]
    for op in graph.topological_order.tolist():
        if graph.phase[op] != Phase.FORWARD:
            continue
        reached = set[int]().union(*(made[producer] for producer in inputs[op]))
        key = int(of_op[op])
        if key >= 0:
            read[key] |= reached - {key}
        made[op] = {key} if key >= 0 and is_source[key] else reached
    return read
