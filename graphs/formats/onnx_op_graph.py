"""What `save_onnx` writes: an ONNX model whose nodes carry the columns of an `OpGraph` as attributes.

The nodes belong to a domain of our own, "placelab". Viewers of ONNX models show it; no runtime can run it.

    Weight            bytes, precision                                  -> "weight.0"
    <kind of an op>   position, flops, bytes_accessed, output_bytes,    -> "op.0"
                      phase, mirror, group, measured_seconds,
                      measured_on, measured_devices, devices,
                      transfer_bytes, edges, control, edge_bytes, weight_uses,
                      precision, samples, fixed

A node's inputs are the producers of its incoming edges, whose positions among the graph's edges are `edges`, and then
the weights that it reads, whose positions among the uses are `weight_uses`; `control` says of each edge whether it
orders only, and `edge_bytes` of its own message, or NaN. `measured_on` are the seconds on each of `measured_devices`.
`samples` are those of a step, the same at each op, and `fixed` what of its FLOP, the bytes that it accesses and its
output does not grow with them, if it is known.
What is neutral is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper

from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.op_graph.batch_law import COSTS, BatchLaw
from graphs.op_graph.precision import SINGLE
from graphs.op_groups.grouping import MERGED

VERSION = 1
DOMAIN = "placelab"
WEIGHTS = "placelab.weights"  # the domain of the nodes that are no ops
MASTER = "master_weights"  # what a model says of itself, like "gradient_precision"
MEMBERS = "placelab.grouped"  # the domain of what earlier versions wrote of merged op groups: refused
_NUMBERS = {"phase": 0, "mirror": -1, "group": -1}  # with what is neutral


def is_op_graph(model: ModelProto) -> bool:
    """Whether `written_op_graph` made the model."""
    return any(opset.domain == DOMAIN for opset in model.opset_import)


def written_op_graph(graph: OpGraph) -> ModelProto:
    """The model of a graph."""
    incoming = _by_owner(graph.edges[:, 1].tolist(), len(graph))
    uses = _by_owner(graph.weight_uses[:, 0].tolist(), len(graph))
    frozen = [int(each) or None for each in graph.frozen.tolist()] or [None] * len(graph.weights)
    precisions = graph.weight_precisions or [SINGLE] * len(graph.weights)
    nodes = [
        helper.make_node(
            "Weight",
            [],
            [f"weight.{i}"],
            domain=WEIGHTS,
            bytes=_double("bytes", size),
            frozen=frozen,
            precision=precision or None,
        )
        for i, (size, frozen, precision) in enumerate(zip(graph.weights.tolist(), frozen, precisions, strict=True))
    ]
    for op in graph.topological_order.tolist():  # the order that ONNX asks for
        nodes.append(_written_op(graph, op, incoming[op], uses[op]))
    last = sorted(set(range(len(graph))) - set(graph.edges[:, 0].tolist()))
    outputs = [helper.make_tensor_value_info(f"op.{op}", TensorProto.UINT8, [None]) for op in last]
    domains = [helper.make_opsetid(domain, VERSION) for domain in (DOMAIN, WEIGHTS)]
    made = helper.make_graph(nodes, graph.name, [], outputs)
    model = helper.make_model(made, producer_name="placelab", opset_imports=domains)
    said = {"gradient_precision": graph.gradient_precision, MASTER: MASTER if graph.master_weights else ""}
    helper.set_model_props(model, {key: value for key, value in said.items() if value})
    return model


def read_op_graph(model: ModelProto) -> OpGraph:
    """The graph of a model. Raises InputError for one of another version, or damaged since it was written."""
    version = max(opset.version for opset in model.opset_import if opset.domain == DOMAIN)
    if version != VERSION:
        raise InputError(f"written as version {version}, this placelab reads version {VERSION}")
    graph, said = model.graph, {each.key: each.value for each in model.metadata_props}
    nodes: dict[str, list[_Node]] = {DOMAIN: [], WEIGHTS: []}
    for proto in graph.node:
        if proto.domain == MEMBERS:
            raise InputError(MERGED)
        if proto.domain not in nodes:
            raise InputError(f"node {proto.name!r} is of the domain {proto.domain!r}; expected nodes that we wrote")
        nodes[proto.domain].append(_Node(proto))
    ops = sorted(nodes[DOMAIN], key=lambda node: node.integer("position", -1))
    edges, uses = _edges(ops), _weight_uses(ops, nodes[WEIGHTS])
    _check_positions("position", [node.integer("position", -1) for node in ops])
    _check_positions("edges", [edge[0] for edge in edges])
    _check_positions("weight_uses", [use[0] for use in uses])
    columns: dict[str, Any] = {key: np.array([node.number(key) for node in ops]) for key in COSTS}
    columns |= {key: np.array([node.integer(key, neutral) for node in ops]) for key, neutral in _NUMBERS.items()}
    return OpGraph(
        graph.name,
        tuple(node.proto.name for node in ops),
        tuple(node.proto.op_type for node in ops),
        **columns,
        measured_seconds=np.array([node.number("measured_seconds", math.nan) for node in ops]),
        edges=np.array([edge[1:3] for edge in edges], np.int64).reshape(-1, 2),
        control=np.array([edge[3] != 0 for edge in edges], np.bool_),
        edge_bytes=np.array([edge[4] for edge in edges], np.float64),
        **_optional_columns(ops),
        weights=np.array([node.number("bytes") for node in nodes[WEIGHTS]]),
        weight_uses=np.array([use[1:] for use in uses], np.int64).reshape(-1, 2),
        precisions=tuple(node.text("precision") for node in ops),
        weight_precisions=tuple(node.text("precision") for node in nodes[WEIGHTS]),
        gradient_precision=said.get("gradient_precision", ""),
        master_weights=MASTER in said,
        frozen=np.array([node.integer("frozen", 0) != 0 for node in nodes[WEIGHTS]], np.bool_),
        batch_law=_batch_law(ops),
    )


# ---- writing ----


def _written_op(graph: OpGraph, op: int, edges: list[int], uses: list[int]) -> NodeProto:
    producers = [f"op.{i}" for i in graph.edges[edges, 0].tolist()]
    weights = [f"weight.{i}" for i in graph.weight_uses[uses, 1].tolist()]
    control = graph.control[edges]
    numbers = {key: int(getattr(graph, key)[op]) for key in _NUMBERS}
    seconds = float(graph.measured_seconds[op])
    attributes: dict[str, Any] = {
        "position": op,
        **{key: _double(key, float(getattr(graph, key)[op])) for key in COSTS},
        **{key: value for key, value in numbers.items() if value != _NUMBERS[key]},
        "measured_seconds": None if math.isnan(seconds) else _double("measured_seconds", seconds),
        "measured_on": _doubles("measured_on", [float(values[op]) for values in graph.measured_on.values()]),
        "measured_devices": list(graph.measured_on) or None,  # ONNX has no empty lists
        "devices": list(graph.devices[op]) or None if graph.devices else None,
        "precision": (graph.precisions and graph.precisions[op]) or None,
        "transfer_bytes": _doubles("transfer_bytes", graph.transfer_bytes[op : op + 1].tolist()),
        "edges": edges or None,
        "control": control.astype(int).tolist() if control.any() else None,
        "edge_bytes": _doubles("edge_bytes", graph.edge_bytes[edges].tolist() if len(graph.edge_bytes) else []),
        "weight_uses": uses or None,
        **_written_law(graph, op),
    }
    inputs, outputs = [*producers, *weights], [f"op.{op}"]
    return helper.make_node(graph.kinds[op], inputs, outputs, graph.names[op], domain=DOMAIN, **attributes)


def _written_law(graph: OpGraph, op: int) -> dict[str, Any]:
    law = graph.batch_law
    if law is None:
        return {}
    fixed = [float(getattr(law, key)[op]) for key in COSTS] if law.knows_ops else []
    return {"samples": law.samples, "fixed": _doubles("fixed", fixed)}


def _double(name: str, value: float) -> TensorProto:
    """A scalar tensor: ONNX's own numbers have 32 bits."""
    return helper.make_tensor(name, TensorProto.DOUBLE, [], [value])


def _doubles(name: str, values: list[float]) -> TensorProto | None:
    return helper.make_tensor(name, TensorProto.DOUBLE, [len(values)], values) if values else None


def _by_owner(owners: Iterable[int], count: int) -> list[list[int]]:
    positions: list[list[int]] = [[] for _ in range(count)]
    for position, owner in enumerate(owners):
        positions[owner].append(position)
    return positions


# ---- reading ----


def _edges(ops: Sequence[_Node]) -> list[tuple[int, int, int, int, float]]:
    """Position, producer, consumer, whether it only orders, and the bytes of its own message or NaN; sorted."""
    op_of = {node.output: op for op, node in enumerate(ops)}
    edges = []
    for op, node in enumerate(ops):
        positions = node.integers("edges")
        control = node.integers("control") or [0] * len(positions)
        own = node.numbers("edge_bytes") or [math.nan] * len(positions)
        producers = node.inputs[: len(positions)]
        node.check(len(producers) == len(positions) == len(control) == len(own), "edges", "an entry per producer")
        carried = zip(positions, producers, control, own, strict=True)
        edges += [(position, node.find(x, op_of), op, only, size) for position, x, only, size in carried]
    return sorted(edges)


def _weight_uses(ops: Sequence[_Node], weights: Sequence[_Node]) -> list[tuple[int, int, int]]:
    """Position, op and weight; sorted."""
    weight_of = {node.output: weight for weight, node in enumerate(weights)}
    uses = []
    for op, node in enumerate(ops):
        positions, read = node.integers("weight_uses"), node.inputs[len(node.integers("edges")) :]
        node.check(len(positions) == len(read), "weight_uses", "an entry per weight that it reads")
        uses += [(position, op, node.find(x, weight_of)) for position, x in zip(positions, read, strict=True)]
    return sorted(uses)


def _optional_columns(ops: Sequence[_Node]) -> dict[str, Any]:
    """Columns of an `OpGraph` that few graphs have."""
    sent = [node.numbers("transfer_bytes") or [node.number("output_bytes")] for node in ops]
    measured = [dict(zip(node.texts("measured_devices"), node.numbers("measured_on"), strict=False)) for node in ops]
    for node, found, size in zip(ops, measured, sent, strict=True):
        node.check(len(size) == 1, "transfer_bytes", "a tensor of one double")
        node.check(
            len(found) == len(node.texts("measured_devices")) == len(node.numbers("measured_on")), "measured_on",
            "an entry per device",
        )  # fmt: skip
    return {
        "transfer_bytes": np.array(sent).ravel() if any("transfer_bytes" in op.attributes for op in ops) else [],
        "devices": tuple(tuple(node.texts("devices")) for node in ops),
        "measured_on": {
            device: np.array([found.get(device, math.nan) for found in measured])
            for device in sorted({device for found in measured for device in found})
        },
    }


def _batch_law(ops: Sequence[_Node]) -> BatchLaw | None:
    samples, fixed = [node.integer("samples", -1) for node in ops], [node.numbers("fixed") for node in ops]
    for node, count, parts in zip(ops, samples, fixed, strict=True):
        node.check(count == samples[0], "samples", f"those of the first op, {samples[0]}")
        known = 0 if not fixed[0] else len(COSTS)
        node.check(len(parts) == known, "fixed", f"a tensor of {known} doubles, as many as of the first op")
    if not ops or samples[0] < 0:
        return None
    return BatchLaw(samples[0], *np.array(fixed).T) if fixed[0] else BatchLaw(samples[0])


def _check_positions(what: str, found: list[int]) -> None:
    """Raises InputError unless the sorted positions are 0, 1, 2, ..."""
    if found != list(range(len(found))):
        raise InputError(f"the positions in {what!r} are not 0 to {len(found) - 1}, once each")


class _Node:
    """A node that we wrote, whose attributes are checked as they are read."""

    def __init__(self, proto: NodeProto) -> None:
        self.proto = proto
        self.inputs = list(proto.input)
        self.attributes = {attribute.name: attribute for attribute in proto.attribute}
        self.check(len(proto.output) == 1, "output", "one name")
        self.output = proto.output[0]

    def check(self, fine: bool, key: str, expected: str) -> None:
        if not fine:
            raise InputError(f"node {self.proto.name!r}: expected {key} to be {expected}")

    def integer(self, key: str, neutral: int) -> int:
        value = self._attribute(key, AttributeProto.INT, "an integer").i
        return int(value) if key in self.attributes else neutral

    def integers(self, key: str) -> list[int]:
        return list(self._attribute(key, AttributeProto.INTS, "integers").ints)

    def number(self, key: str, neutral: float | None = None) -> float:
        attribute = self.attributes.get(key)
        self.check(attribute is not None or neutral is not None, key, "there")
        values: list[Any] = [neutral] if attribute is None else list(attribute.t.double_data)
        self.check(len(values) == 1, key, "a tensor of one double")
        return float(values[0])

    def numbers(self, key: str) -> list[float]:
        return list(self._attribute(key, AttributeProto.TENSOR, "a tensor of doubles").t.double_data)

    def text(self, key: str) -> str:
        return str(self._attribute(key, AttributeProto.STRING, "a text").s.decode())

    def texts(self, key: str) -> list[str]:
        return [text.decode() for text in self._attribute(key, AttributeProto.STRINGS, "texts").strings]

    def _attribute(self, key: str, kind: int, expected: str) -> AttributeProto:
        """The attribute of that name, an empty one if there is none."""
        attribute = self.attributes.get(key)
        self.check(attribute is None or attribute.type == kind, key, expected)
        return AttributeProto() if attribute is None else attribute

    def find(self, name: str, owners: Mapping[str, int]) -> int:
        self.check(name in owners, f"the input {name!r}", "the output of an op or a weight, as its position requires")
        return owners[name]
