"""An ordinary ONNX model becomes a forward graph, by the rules of `graphs.capture.forward`, without computing anything.

- An initializer is not an op but a weight of the ops that read it, and so is the value of a Constant that has more
  than one element. One of 64-bit integers or booleans is taken to be an index, a shape or a mask, unless it is looked
  up in: as inputs are, it is held by every device that reads it, and sent nowhere (`graphs.op_graph.held_tensors`).
- What is computed from constants or shapes alone is a constant.
- A view of a whole tensor is not an op, a view of a part of one costs nothing and shares its tensor's device.
- A node that no output depends on is left out.
- Sizes are those that ONNX's strict shape inference finds, or the file says; FLOPs are those of
  `graphs.formats.onnx_flops`, and of ONNX Runtime's operators those of `graphs.formats.onnx_contrib_flops`.
- Memory traffic is every tensor read and written, once; of a table that is looked up, only the rows found.
- An op is called by the path of its module, if the file gives one, and its node: "layers.0.cell/Gemm".
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from onnx import AttributeProto, TensorProto, checker, helper, inliner, shape_inference

from graphs.formats.onnx_contrib_flops import DOMAIN, contrib_flops
from graphs.formats.onnx_flops import OnnxCall, Shape, flops, numel
from graphs.foundation.by_name import unknown
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.op_graph.graph_draft import GraphDraft
from graphs.op_graph.held_tensors import HeldTensors
from graphs.op_graph.precision import SINGLE, precision_of

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto

_log = logging.getLogger("placelab")

_STANDARD = ("", "ai.onnx")  # the domains of ONNX's own operators
_VIEWS = {"Expand", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"}
_OF_SHAPES = {"Shape", "Size"}  # these read no data
# These read as much of their first operand as they write.
_LOOK_UPS = {"Gather", "GatherElements", "GatherND"}
_BLOCKS = "GatherBlockQuantized"  # ONNX Runtime's
_CONSTANT_TYPES = (TensorProto.INT64, TensorProto.BOOL)
_SMALL = 1024  # elements; the values of a larger initializer are not needed to infer shapes
_MOST_NODES = 1_000_000
_EQUATION = re.compile(rb"[A-Za-z., ]*(->[A-Za-z., ]*)?")
_SCOPES = "pkg.torch.onnx.name_scopes"  # where torch.onnx.export keeps "['', 'layers.0', 'linear']"


def forward_graph(model: ModelProto, name: str, sizes: Mapping[str, int]) -> OpGraph:
    """The op graph of a model, which is modified. Raises InputError as `load_onnx` does."""
    _refuse_control_flow(model)
    _move_constants(model.graph)
    weights = _taken_out(model.graph)
    model = _checked(model)
    _move_constants(model.graph)  # those of functions that are written out
    weights |= _taken_out(model.graph)
    live = _live(model.graph)
    _give_sizes(model.graph, live, weights, sizes)
    return _OnnxBuilder(_inferred(model), name, weights).build(live)


def _refuse_control_flow(model: ModelProto) -> None:
    for node in (*model.graph.node, *(node for function in model.functions for node in function.node)):
        if any(attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for attribute in node.attribute):
            remedy = "export the model with fixed shapes and without control flow that depends on data"
            raise InputError(f"node {_described(node)} is control flow ({node.op_type}); {remedy}")


def _move_constants(graph: GraphProto) -> None:
    """Values of Constant nodes with more than one element become initializers, equal ones of functions the same."""
    named: dict[bytes, str] = {}
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        value = _value(node)
        if value is None or numel(tuple(value.dims)) <= 1:
            graph.node.append(node)
            continue
        tensor = TensorProto()
        tensor.CopyFrom(value)
        tensor.name = ""
        name = named.setdefault(tensor.SerializeToString(), node.output[0])
        if name == node.output[0]:
            tensor.name = name
            graph.initializer.append(tensor)
        else:
            graph.node.append(helper.make_node("Identity", [name], list(node.output)))


def _value(node: NodeProto) -> TensorProto | None:
    """What a Constant node says, if that is a tensor or a list of floats."""
    if node.op_type != "Constant" or node.domain not in _STANDARD or len(node.output) != 1:
        return None
    for attribute in node.attribute:
        if attribute.name == "value" and attribute.HasField("t"):
            tensor: TensorProto = attribute.t
            return tensor
        if attribute.name == "value_floats":
            return helper.make_tensor("", TensorProto.FLOAT, [len(attribute.floats)], attribute.floats)
    return None


def _taken_out(graph: GraphProto) -> dict[str, TensorProto]:
    """The initializers by name, without values; large ones, and those kept elsewhere, become inputs of the graph."""
    if graph.sparse_initializer:
        raise InputError(f"initializer {graph.sparse_initializer[0].values.name!r} is sparse; export it as a dense one")
    initializers = {
        tensor.name: TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        for tensor in graph.initializer
    }
    kept = [tensor for tensor in graph.initializer if not _is_large(tensor)]
    inputs = {value.name for value in graph.input}
    for tensor in graph.initializer:
        if _is_large(tensor) and tensor.name not in inputs:
            inputs.add(tensor.name)
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return initializers


def _is_large(tensor: TensorProto) -> bool:
    return tensor.data_location == TensorProto.EXTERNAL or numel(tuple(tensor.dims)) > _SMALL


def _checked(model: ModelProto) -> ModelProto:
    """The model with its functions written out. Raises InputError, with ONNX's reason, if it is not valid."""
    try:
        checker.check_model(model)
        if _written_out(model) > _MOST_NODES:
            raise InputError(f"with its functions written out, it has more than {_MOST_NODES:,} nodes")
        return inliner.inline_local_functions(model) if model.functions else model
    except InputError:
        raise
    except Exception as error:  # whatever ONNX's checker raises
        raise InputError(f"this is no valid ONNX model: {_first_line(error)}") from error


def _written_out(model: ModelProto) -> int:
    """How many nodes a model has once functions, which do not call themselves, are written out where they are called.

    They call each other, so that a small file may hold more than could ever be written.
    """
    bodies = {(function.domain, function.name): function.node for function in model.functions}

    @cache
    def size(operator: tuple[str, str]) -> int:
        return sum(size((node.domain, node.op_type)) for node in bodies[operator]) if operator in bodies else 1

    return sum(size((node.domain, node.op_type)) for node in model.graph.node)


def _inferred(model: ModelProto) -> GraphProto:
    _refuse_what_ends_the_process(model)
    try:
        return shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    except Exception as error:  # whatever the operators' inference raises
        raise InputError(f"the sizes of its tensors do not fit together: {_first_line(error)}") from error


def _refuse_what_ends_the_process(model: ModelProto) -> None:
    """Raise InputError for nodes of damaged files at which ONNX's inference would not return."""
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "equation" and not _EQUATION.fullmatch(attribute.s):  # it would not terminate
                raise InputError(f"node {_described(node)}: {attribute.s!r} is no equation of Einsum")
            if attribute.name == "num_outputs" and attribute.i != len(node.output):  # it would abort
                raise InputError(f"node {_described(node)} has {len(node.output)} outputs, and says {attribute.i}")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).split("\n") if line.strip()]
    return " ".join(lines[:1]) or type(error).__name__


def _live(graph: GraphProto) -> list[NodeProto]:
    """The nodes that the outputs depend on, in order."""
    producer = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    stack = [producer[value.name] for value in graph.output if value.name in producer]
    live: set[int] = set()
    while stack:
        position = stack.pop()
        if position not in live:
            live.add(position)
            stack.extend(producer[name] for name in graph.node[position].input if name in producer)
    return [graph.node[i] for i in sorted(live)]


def _give_sizes(
    graph: GraphProto, live: Iterable[NodeProto], weights: Mapping[str, TensorProto], sizes: Mapping[str, int]
) -> None:
    """Write sizes into the dimensions that lack one. Raises InputError for one that is needed and not given."""
    read = {name for node in live for name in node.input}
    inputs = [value for value in graph.input if value.name not in weights]
    names = {value.name for value in inputs}
    named = {_dimension(value, axis) for value in inputs for axis in _unsized(value)}
    for dimension, size in sizes.items():
        if dimension not in named:
            raise InputError(unknown("dimension", dimension, sorted(named)))
        if size < 1:
            raise InputError(f"dimension {dimension!r} is given the size {size}; expected at least 1")
    for value in (*graph.input, *graph.value_info, *graph.output):
        for axis in _unsized(value):
            dimension = _dimension(value, axis)
            dim = value.type.tensor_type.shape.dim[axis]
            if dimension in sizes:
                dim.dim_value = sizes[dimension]
                continue
            if dim.HasField("dim_value"):
                dim.ClearField("dim_value")  # to be inferred
            if value.name in names & read:
                raise InputError(
                    f"dimension {dimension!r} of input {value.name!r} has no size; give it one, as in "
                    f"model.onnx:{dimension}=8 or load_onnx(path, sizes={{{dimension!r}: 8}}), or export the model "
                    "with fixed shapes"
                )


def _unsized(value: ValueInfoProto) -> list[int]:
    dims = value.type.tensor_type.shape.dim
    return [axis for axis, dim in enumerate(dims) if dim.dim_value < 1]  # exporters write 0 or -1 for any size, too


def _dimension(value: ValueInfoProto, axis: int) -> str:
    return value.type.tensor_type.shape.dim[axis].dim_param or f"{value.name}[{axis}]"


def _described(node: NodeProto) -> str:
    return repr(node.name or f"{node.op_type} of {', '.join(node.output)}")


@dataclass(frozen=True)
class _Tensor:
    """What is known of a value."""

    shape: Shape
    bytes: float  # that it occupies
    precision: str = SINGLE


class _OnnxBuilder:
    """Walks the nodes once, in order, and remembers what each value stands for."""

    def __init__(self, graph: GraphProto, name: str, initializers: Mapping[str, TensorProto]) -> None:
        self.name, self.initializers = name, initializers
        self.inputs = {value.name for value in graph.input if value.name not in initializers}
        self.types = {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}
        self.tensors: dict[str, _Tensor] = {}
        self.used = {value.name for value in graph.output}
        self.draft = GraphDraft(self.weight_of)
        self.weight: dict[str, int] = {}  # the weight that a value is, or looks at
        self.constants = {key for key, tensor in initializers.items() if tensor.data_type in _CONSTANT_TYPES}
        self.shown: dict[str, str] = {}  # the input that a value looks at
        self.held: dict[str, int] = {}  # by input or constant that ops read its number
        self.uses: list[tuple[int, int]] = []  # op, number of what is held
        self.uncounted = Counter[str]()  # kinds of ops whose FLOPs are not known

    def build(self, live: Sequence[NodeProto]) -> OpGraph:
        """The op graph; to be called once."""
        self.used.update(name for node in live for name in node.input)
        for node in live:
            self._visit(node)
        if self.uncounted:
            kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(self.uncounted.items()))
            _log.warning("%s: the FLOPs of %s are not known, and count as 0", self.name, kinds)
        sizes = np.array([self.tensor(name).bytes for name in self.held], np.float64)
        names = tuple("" if name in self.inputs else name for name in self.held)
        uses = np.array(self.uses, np.int64).reshape(-1, 2)
        held = HeldTensors(sizes, uses, np.zeros(len(sizes), np.bool_), names)
        return replace(self.draft.built(self.name), held=held)

    def _visit(self, node: NodeProto) -> None:
        standard = node.domain in _STANDARD
        written = [name for name in node.output if name in self.used]
        looked_up = (node.op_type in _LOOK_UPS if standard else node.op_type == _BLOCKS) and len(node.input) > 1
        if looked_up and node.input[0] in self.initializers and node.input[1] not in self.constants:
            self.constants.discard(node.input[0])  # a table of integers, and no shape
        if (standard and node.op_type in _OF_SHAPES) or all(name in self.constants for name in node.input if name):
            self.constants.update(written)
        elif standard and (node.op_type in _VIEWS or _is_idle_dropout(node, written)):
            self._view(node, node.input[0], written)
        else:
            read = {name: self.tensor(name) for name in node.input if name}
            made = {name: self.tensor(name) for name in written}
            accessed = [tensor.bytes for tensor in read.values()]
            total = sum(tensor.bytes for tensor in made.values())
            if looked_up:
                accessed[0] = min(accessed[0], total)
            costs = self._flops(node), sum(accessed) + total, total
            multiplied = next((tensor.precision for tensor in read.values()), SINGLE)
            self.draft.add_op(self._new_name(node), _kind(node), costs, read, written, precision=multiplied)
            self._hold(read)

    def _view(self, node: NodeProto, base: str, written: Sequence[str]) -> None:
        """Who reads a view reads its tensor; a part of an op's output is an op on the same device."""
        whole = self.draft.op.get(base)
        for name in written:
            if whole is not None and numel(self.tensor(name).shape) < numel(self.tensor(base).shape):
                self.draft.add_part(self._new_name(node), _kind(node), self.tensor(name).bytes, [base], name)
            elif whole is not None:
                self.draft.op[name] = whole
            elif (weight := self.weight_of(base)) is not None:
                self.weight[name] = weight
            else:
                self.shown[name] = self.shown.get(base, base)
            if node.op_type == "Expand":  # what was expanded occupies nothing
                self.tensors[name] = replace(self.tensor(name), bytes=self.tensor(base).bytes)

    def _hold(self, read: Iterable[str]) -> None:
        """Note the inputs and constants that the latest op reads."""
        for name in (self.shown.get(name, name) for name in read):
            if name in self.inputs or (name in self.initializers and name in self.constants):
                self.uses.append((len(self.draft.names) - 1, self.held.setdefault(name, len(self.held))))

    def weight_of(self, name: str) -> int | None:
        """The weight that a value is, or looks at; one that is read for the first time is added."""
        if name not in self.weight and name in self.initializers and name not in self.constants:
            self.weight[name] = self.draft.add_weight(self.tensor(name).bytes, self.tensor(name).precision)
        return self.weight.get(name)

    def tensor(self, name: str) -> _Tensor:
        """Raises InputError for a value whose size is not known."""
        if name not in self.tensors:
            if name in self.initializers:
                tensor = self.initializers[name]
                shape, kind = tuple(tensor.dims), tensor.data_type
            else:
                shape, kind = _inferred_type(name, self.types.get(name))
            precision = precision_of(TensorProto.DataType.Name(kind).lower())
            self.tensors[name] = _Tensor(shape, numel(shape) * _item_bytes(name, kind), precision)
        return self.tensors[name]

    def _new_name(self, node: NodeProto) -> str:
        """The node's name, with a number if an op has it already."""
        name = candidate = _name(node)
        number = 1
        while candidate in self.draft.names:
            candidate, number = f"{name}_{number}", number + 1
        return candidate

    def _flops(self, node: NodeProto) -> float:
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        read = [self.tensor(name).shape if name else None for name in node.input]
        # the sizes of what nobody reads may not be known of operators that are not ONNX's own
        named = [name for name in node.output if name]
        ours = node.domain in _STANDARD
        written = [self.tensor(name).shape if ours or name in self.used else () for name in named]
        call = OnnxCall(node.op_type, attributes, read, written)
        if ours:
            return flops(call)
        found = contrib_flops(call) if node.domain == DOMAIN else None
        if found is None:
            self.uncounted[_kind(node)] += 1
        return found or 0.0


def _is_idle_dropout(node: NodeProto, written: Sequence[str]) -> bool:
    """Whether a node is a dropout that passes on what it reads: outside of training, and with its mask unread."""
    return node.op_type == "Dropout" and len(node.input) < 3 and list(node.output[:1]) == list(written)


def _inferred_type(name: str, kind: TypeProto | None) -> tuple[Shape, int]:
    if kind is not None and kind.WhichOneof("value") not in (None, "tensor_type"):
        raise InputError(f"value {name!r} is no tensor but a {kind.WhichOneof('value')}; export the model without it")
    tensor = kind.tensor_type if kind is not None else None
    if tensor is None or not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        raise InputError(
            f"the size of value {name!r} cannot be inferred: it depends on data, or its operator is not one of ONNX's "
            "own; export the model with fixed shapes"
        )
    return tuple(dim.dim_value for dim in tensor.shape.dim), tensor.elem_type


def _item_bytes(name: str, kind: int) -> float:
    """Bytes of an element: "FLOAT8E4M3FN" has 8 bits."""
    text = TensorProto.DataType.Name(kind) if kind in TensorProto.DataType.values() else str(kind)
    bits = re.search(r"(?<=[A-Z])\d+", {"FLOAT": "FLOAT32", "DOUBLE": "FLOAT64", "BOOL": "BOOL8"}.get(text, text))
    if bits is None:
        raise InputError(f"the elements of value {name!r} are no numbers but {text}; export the model without it")
    return int(bits[0]) / 8


def _kind(node: NodeProto) -> str:
    return f"{'onnx' if node.domain in _STANDARD else node.domain}.{node.op_type}"


def _name(node: NodeProto) -> str:
    """Module path and node: torch's exporters give "/layers.0/cell/Gemm", or the path next to the name."""
    path, _, last = (node.name.strip("/") or f"{node.op_type}_{node.output[0]}").rpartition("/")
    scopes = [re.findall(r"'([^']*)'", entry.value) for entry in node.metadata_props if entry.key == _SCOPES]
    module = scopes[0][-2] if scopes and len(scopes[0]) > 1 else path.replace("/", ".")
    return f"{module}/{last}" if module else last
