"""Op graphs as ONNX models, both ways.

`load_onnx` reads any ONNX model as a forward pass (`graphs.formats.onnx_model` says how) and, exactly, what
`save_onnx` wrote (`graphs.formats.onnx_op_graph`). The package onnx is optional, and slow to import: it is
imported where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from graphs.formats import name_of
from graphs.foundation.documents import read_file
from graphs.foundation.errors import InputError, located
from graphs.foundation.extras import check_installed
from graphs.foundation.files import write_whole
from graphs.op_graph import OpGraph

# Imported late: onnx is an optional package, and takes a while to import.
if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto


def load_onnx(path: Path, *, sizes: Mapping[str, int] | None = None) -> OpGraph:
    """The op graph in an ONNX file: the forward pass of a model, or the graph that `save_onnx` was given.

    `sizes` gives sizes to the named dimensions of a model's inputs, as in {"batch": 8}; one without a name is called
    by its input and axis, "tokens[0]". External data is not read. Raises InputError, naming the file, if it is missing
    or damaged, if the size of a tensor is not known, if control flow depends on data, or without the package onnx.
    """
    check_installed("onnx", str(path))
    model = _parsed(path)
    from graphs.formats.onnx_model import forward_graph
    from graphs.formats.onnx_op_graph import is_op_graph, read_op_graph

    try:
        with located(path):
            return read_op_graph(model) if is_op_graph(model) else forward_graph(model, name_of(path), sizes or {})
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: {error}") from error


def save_onnx(graph: OpGraph, path: Path) -> None:
    """Write a graph; `load_onnx` gives back all of it. Raises InputError without the package onnx."""
    check_installed("onnx", str(path))
    from graphs.formats.onnx_op_graph import written_op_graph

    write_whole(path, written_op_graph(graph).SerializeToString(deterministic=True))


def _check_texts(path: Path, graph: GraphProto) -> None:
    """Raise InputError for names that are not UTF-8: protobuf silently gives them as bytes."""
    texts: list[str | bytes] = [graph.name]
    for node in graph.node:
        texts += [node.name, node.op_type, node.domain, *node.input, *node.output]
        for attribute in node.attribute:
            texts.append(attribute.name)
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _check_texts(path, inner)
    damaged = next((text for text in texts if isinstance(text, bytes)), None)
    if damaged is not None:
        raise InputError(f"{path} is damaged: {damaged!r} is a name and no text")


def _parsed(path: Path) -> ModelProto:
    from onnx import ModelProto

    raw = read_file(path, "torch.onnx.export writes one, and save_onnx")
    model = ModelProto()
    try:
        model.ParseFromString(raw)
    except Exception as error:  # of any implementation of protobuf
        raise InputError(f"{path} is damaged: it is no ONNX model ({error})") from error
    if not model.graph.node:
        raise InputError(f"{path} holds no ONNX model with any nodes")
    _check_texts(path, model.graph)
    return model
