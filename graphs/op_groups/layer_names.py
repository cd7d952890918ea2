"""Layers by name: `blocks.2` in "blocks.2.branches.1/conv", a number in a container that has several."""

from functools import lru_cache

import numpy as np

from graphs.op_graph import Ints, OpGraph, Phase

_KEPT = 8  # names of ops: a search asks again and again, also of parts of a graph, which have the same ones
Keys = tuple[tuple[str, ...], ...]  # (ops,) the path of the layer of each, or ()


def unit_layers(graph: OpGraph) -> Ints:
    """(units,) the layer of each unit, from 0; empty if the names show no layers.

    A unit's layer is that of its costliest forward op.
    """
    layers = op_layers(graph)
    if len(layers) == 0:
        return layers
    cost = np.where(graph.phase == Phase.FORWARD, graph.flops + graph.bytes_accessed, -1.0)
    by_cost = np.lexsort((-np.arange(len(graph)), cost))
    chosen = np.zeros(graph.num_units, np.int64)
    chosen[graph.units[by_cost]] = layers[by_cost]
    return chosen


def unit_blocks(graph: OpGraph) -> Ints:
    """(units,) the block of each unit, from 0; empty if the names show no layers.

    Blocks are the layers that have modules inside, as those of a Transformer and unlike those of a head that is a
    sequence of modules; or all layers if none has. What is outside of them is with the block before it.
    """
    layers = unit_layers(graph)
    if len(layers) == 0:
        return layers
    return np.maximum(np.searchsorted(_blocks(graph.names), layers, side="right") - 1, 0)


def named_blocks(graph: OpGraph) -> Ints:
    """(ops,) the block that each op's name shows, as `unit_blocks` numbers them; -1 outside of them."""
    number = np.full(len(graph) + 1, -1)  # by layer; the last is of what is in none
    blocks = _blocks(graph.names)
    number[blocks] = np.arange(len(blocks))
    return number[_named(graph.names)]


def block_names(graph: OpGraph) -> tuple[str, ...]:
    """(blocks,) the module that is each block, such as "layers.3", as `unit_blocks` numbers them."""
    name_of = dict(zip(_named(graph.names).tolist(), map(".".join, _layer_keys(graph.names)), strict=True))
    return tuple(name_of[layer] for layer in _blocks(graph.names).tolist() if layer >= 0)


def op_layers(graph: OpGraph) -> Ints:
    """(ops,) the layer of each op, numbered in the order of the graph's ops; empty if the names show no layers.

    A forward op outside of the layers belongs to the latest layer that it depends on, else to the earliest that needs
    it; ops of later phases, which follow their forward ops, are left in layer 0 if their names do not show theirs.
    """
    layers = named_layers(graph)
    if layers.max() < 0:
        return layers[:0]
    inputs: list[list[int]] = [[] for _ in range(len(graph))]
    outputs: list[list[int]] = [[] for _ in range(len(graph))]
    for producer, consumer in graph.edges[(graph.phase[graph.edges] == Phase.FORWARD).all(axis=1)].tolist():
        inputs[consumer].append(producer)
        outputs[producer].append(consumer)
    for op in graph.topological_order.tolist():
        if layers[op] < 0:
            layers[op] = max(layers[inputs[op]], default=-1)
    for op in graph.topological_order[::-1].tolist():
        if layers[op] < 0:
            layers[op] = min((layer for layer in layers[outputs[op]] if layer >= 0), default=-1)
    return np.maximum(layers, 0)


def named_layers(graph: OpGraph) -> Ints:
    """(ops,) the layer that each op's name shows, numbered in the order of the graph's ops; -1 where it shows none."""
    return _named(graph.names).copy()


def path(name: str) -> list[str]:
    """The modules in an op's name: "blocks.2.branches.1/conv" -> blocks, 2, branches, 1."""
    return name.rpartition("/")[0].split(".")


@lru_cache(_KEPT)
def _named(names: tuple[str, ...]) -> Ints:
    """(ops,) as `named_layers`, not to be changed."""
    number: dict[tuple[str, ...], int] = {}
    return np.array([number.setdefault(key, len(number)) if key else -1 for key in _layer_keys(names)], np.int64)


@lru_cache(_KEPT)
def _blocks(names: tuple[str, ...]) -> Ints:
    """(blocks,) the layers that are blocks, as `named_layers` numbers them; not to be changed."""
    named, keys = _named(names), _layer_keys(names)
    has_modules = np.array([0 < len(key) < len(path(name)) for name, key in zip(names, keys, strict=True)])
    return np.unique(named[has_modules if has_modules.any() else named >= 0])


@lru_cache(_KEPT)
def _layer_keys(names: tuple[str, ...]) -> Keys:
    """For each op, the path down to its outermost number in a container that has several; empty without one."""
    paths = [path(name) for name in names]
    children: dict[tuple[str, ...], set[str]] = {}
    for parts in paths:
        for depth in _numbers(parts):
            children.setdefault(tuple(parts[:depth]), set()).add(parts[depth])
    found = list[tuple[str, ...]]()
    for parts in paths:
        depths = (depth for depth in _numbers(parts) if len(children[tuple(parts[:depth])]) > 1)
        found.append(tuple(parts[: next(depths, -1) + 1]))
    return tuple(found)


def _numbers(parts: list[str]) -> list[int]:
    return [depth for depth, part in enumerate(parts) if part.isdecimal()]
