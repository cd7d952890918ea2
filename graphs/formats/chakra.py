"""Chakra execution traces (`*.et`): what one rank ran in a step, with how long it took, as an op graph.

MLCommons' converter makes them of what PyTorch's profilers record, and placelab of plans (`envs.files.chakra_traces`).

- Each node is an op, and how long it took becomes its `measured_seconds`.
- Of a trace with kernels of a GPU, ops of the host take no time: they run ahead of the kernels.
- A message or a collective without a duration, as generators of traces leave it to a simulator of networks, has its
  `comm_size` as the bytes that it accesses, and no time: these follow from the cluster's links
  (`envs.costs.communication_times`). A warning says so.
- Of a trace in which no node took any time, as those of symbolic generators (STG), FLOPs are the `num_ops` of nodes,
  and the bytes that they access their `tensor_size`.
- An edge leads from each data dependency of a node, and carries nothing if it is a control dependency, too. Control
  dependencies alone are those that calls of PyTorch have: on the call in which they were made, and of a kernel on the
  op that launched it. They are no edges but in placelab's traces, where they are what a device ran before.
- An op's output are the tensors among its outputs, or else its `tensor_size`; a receive brings its `comm_size`.
"""

import ast
import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from graphs.formats import name_of
from graphs.formats.chakra_messages import Message, Value, attributes, nodes_of
from graphs.formats.chakra_nodes import Collective, NodeType
from graphs.formats.torch_nodes import tensors_in
from graphs.foundation.documents import read_file
from graphs.foundation.errors import InputError, located
from graphs.op_graph import Bools, Floats, OpGraph

_log = logging.getLogger("placelab")

KIND, SECONDS = "kind", "seconds"  # attributes that only placelab writes: what an op computes, and its exact time
_COUNTS = ("num_ops", "tensor_size")
_COMMUNICATION = (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE, NodeType.COMM_COLL_NODE)


def load_chakra(path: Path) -> OpGraph:
    """The op graph in a trace, a forward pass. Raises InputError, naming the file, if it is missing or damaged."""
    raw = read_file(path, "MLCommons' chakra_converter writes such a trace, and `placelab export --to chakra`")
    nodes = nodes_of(path, raw)
    with located(path):
        return _graph(name_of(path), nodes)


def _graph(name: str, nodes: Sequence[Message]) -> OpGraph:
    number = {int(node.id): index for index, node in enumerate(nodes)}
    if len(number) < len(nodes):
        [(twice, _)] = Counter(int(node.id) for node in nodes).most_common(1)
        raise InputError(f"two nodes have the id {twice}")
    about = [attributes(node) for node in nodes]
    edges, control = _edges(nodes, about, number)
    on_host = [bool(each.get("is_cpu_op", True)) for each in about]  # as its own feeder takes it
    kernels = any(not host and node.duration_micros for host, node in zip(on_host, nodes, strict=True))
    seconds = [
        0.0 if host and kernels else _number(node, each, SECONDS, node.duration_micros / 1e6)
        for node, each, host in zip(nodes, about, on_host, strict=True)
    ]
    flops, accessed, measured = _untimed(name, nodes, about, np.array(seconds), np.array(on_host) & kernels)
    sizes = [_output_bytes(node, each) for node, each in zip(nodes, about, strict=True)]
    return OpGraph(
        name, _names(nodes), tuple(map(_kind, nodes, about)), flops, accessed, np.array(sizes),
        np.array(edges, np.int64), np.array(control, np.bool_), measured_seconds=measured,
    )  # fmt: skip


def _untimed(
    name: str, nodes: Sequence[Message], about: Sequence[dict[str, Value]], seconds: Floats, ahead: Bools
) -> tuple[Floats, Floats, Floats]:
    """(ops,) FLOP, bytes accessed and seconds, NaN where they follow from these, given the seconds in the file.

    Ops of the host that run `ahead` take no time.
    """
    sent = [
        _number(node, each, "comm_size", 0.0) if node.type in _COMMUNICATION and SECONDS not in each else 0.0
        for node, each in zip(nodes, about, strict=True)
    ]
    accessed = np.where((seconds == 0) & ~ahead, sent, 0.0)
    flops = np.zeros(len(nodes))
    if not seconds.any() and not any(SECONDS in each for each in about):
        counted = np.array([[_number(*each, key, 0.0) for key in _COUNTS] for each in zip(nodes, about, strict=True)])
        is_moved = np.array([node.type in _COMMUNICATION for node in nodes])
        flops, traffic = counted.T
        accessed = np.where(is_moved, accessed, traffic)
        if flops.any() or accessed.any():
            return flops, accessed, np.full(len(nodes), np.nan)
    if accessed.any():
        _log.warning(
            "%s: %d of %d nodes send or receive data and have no duration; they take as long as their comm_size on the "
            "cluster's links, among all of its devices", name, (accessed > 0).sum(), len(nodes),
        )  # fmt: skip
    return flops, accessed, np.where(accessed > 0, np.nan, seconds)


def _edges(
    nodes: Sequence[Message], about: Sequence[dict[str, Value]], number: dict[int, int]
) -> tuple[list[tuple[int, int]], list[bool]]:
    """(edges, 2) producer, consumer, and (edges,) whether it only orders."""
    edges = dict[tuple[int, int], bool]()
    for index, (node, each_about) in enumerate(zip(nodes, about, strict=True)):
        for each in node.data_deps:
            if each not in number:
                raise InputError(f"node {node.name!r} depends on data of node {each}, which is not there")
            edges[number[each], index] = each in node.ctrl_deps
        for each in node.ctrl_deps if SECONDS in each_about else ():
            if each in number and number[each] != index:
                edges[number[each], index] = True
    return list(edges), list(edges.values())


def _names(nodes: Sequence[Message]) -> tuple[str, ...]:
    """Those of the nodes; if several are called the same, with their ids."""
    count = Counter(node.name for node in nodes)
    return tuple(node.name if node.name and count[node.name] == 1 else f"{node.name}#{node.id}" for node in nodes)


def _kind(node: Message, about: dict[str, Value]) -> str:
    """What is computed, if placelab has written it; "aten::mm", or the type of a node of another name."""
    if KIND in about:
        return str(about[KIND])
    if node.type not in set(NodeType):
        raise InputError(f"node {node.name!r} is of the unknown type {node.type}")
    if node.type == NodeType.COMM_COLL_NODE and about.get("comm_type") in set(Collective):
        return Collective(about["comm_type"]).name  # type: ignore[arg-type]
    return str(node.name) if "::" in node.name else NodeType(node.type).name


def _output_bytes(node: Message, about: dict[str, Value]) -> float:
    if node.type == NodeType.COMM_RECV_NODE and "comm_size" in about:
        return _number(node, about, "comm_size", 0.0)
    if not node.HasField("outputs") or "tensor_size" in about:
        return _number(node, about, "tensor_size", 0.0)
    try:
        values, types = (ast.literal_eval(text or "[]") for text in (node.outputs.values, node.outputs.types))
        return sum(tensor.bytes for tensor in tensors_in(values, types))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, IndexError) as error:
        raise InputError(f"node {node.name!r} has outputs that are no lists of tensors: {error}") from error


def _number(node: Message, about: dict[str, Value], key: str, otherwise: float) -> float:
    value = about.get(key, otherwise)
    if isinstance(value, str) or not 0 <= value < np.inf:
        raise InputError(f"node {node.name!r} has the {key} {value!r}; expected a number >= 0")
    return float(value)
