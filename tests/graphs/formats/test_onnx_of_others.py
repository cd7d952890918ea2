"""ONNX models as other programs write them: weights in constants and tables, sizes left open, fused operators."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from envs.costs.costs import timed
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from graphs.files.load import load_cluster, load_graph
from graphs.formats.onnx import load_onnx
from graphs.foundation.errors import InputError
from graphs.problem import Problem

if TYPE_CHECKING:
    import onnx
else:
    onnx = pytest.importorskip("onnx")

FLOAT, LONG = 4, 8  # bytes
Values = np.ndarray[Any, Any]


def constant(name: str, values: Values) -> "onnx.NodeProto":
    return onnx.helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(values))


def saved(
    path: Path, nodes: list["onnx.NodeProto"], inputs: Mapping[str, list[int]], output: list[int],
    weights: Mapping[str, Values] | None = None, functions: list["onnx.FunctionProto"] | None = None,
) -> Path:  # fmt: skip
    """A file with a model of float inputs, of which "y" is the output."""
    shapes = [*inputs.items(), ("y", output)]
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes]
    tensors = [onnx.numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = onnx.helper.make_graph(nodes, "net", values[:-1], values[-1:], tensors)
    domains = [onnx.helper.make_opsetid(*each) for each in (("", 17), ("com.microsoft", 1), ("own", 1))]
    made = onnx.helper.make_model(graph, opset_imports=domains, ir_version=9, functions=functions or [])
    file = path / "m.onnx"
    file.write_bytes(made.SerializeToString())
    return file


def test_weights_may_be_values_of_constants(tmp_path: Path) -> None:
    weight, scale = np.zeros((64, 32), np.float32), np.zeros((), np.float32)
    product = onnx.helper.make_node("MatMul", ["x", "w"], ["p"])
    scaled = onnx.helper.make_node("Mul", ["p", "scale"], ["y"])
    nodes = [constant("w", weight), constant("scale", scale), product, scaled]
    graph = load_onnx(saved(tmp_path, nodes, {"x": [8, 64]}, [8, 32]))
    assert graph.weights.tolist() == [64 * 32 * FLOAT], "a scalar is no weight"
    as_initializer = load_onnx(saved(tmp_path, nodes[1:], {"x": [8, 64]}, [8, 32], {"w": weight}))
    assert graph.fingerprint == as_initializer.fingerprint
    turned = onnx.helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0])
    last = onnx.helper.make_node("MatMul", ["x", "t"], ["y"])
    graph = load_onnx(saved(tmp_path, [constant("w", weight.T), turned, last], {"x": [8, 64]}, [8, 32]))
    assert graph.weights.tolist() == [64 * 32 * FLOAT]
    listed = onnx.helper.make_node("Constant", [], ["w"], value_floats=[1.0] * 64)
    graph = load_onnx(
        saved(tmp_path, [listed, onnx.helper.make_node("Mul", ["x", "w"], ["y"])], {"x": [8, 64]}, [8, 64])
    )
    assert graph.weights.tolist() == [64 * FLOAT]


def test_a_weight_in_a_function_is_held_once_however_often_it_is_called(tmp_path: Path) -> None:
    body = [constant("w", np.zeros((64, 64), np.float32)), onnx.helper.make_node("MatMul", ["a", "w"], ["b"])]
    function = onnx.helper.make_function("own", "Layer", ["a"], ["b"], body, [onnx.helper.make_opsetid("", 17)])
    calls = [onnx.helper.make_node("Layer", [a], [b], domain="own") for a, b in (("x", "h"), ("h", "y"))]
    graph = load_onnx(saved(tmp_path, calls, {"x": [8, 64]}, [8, 64], functions=[function]))
    assert graph.flops.sum() == 2 * 2 * 8 * 64 * 64
    assert graph.weights.tolist() == [64 * 64 * FLOAT]


def test_caches_and_masks_are_held_by_the_devices_that_read_them(tmp_path: Path) -> None:
    """A cache of keys that is an input is seen through a view; a mask is an initializer of booleans."""
    nodes = [
        constant("shape", np.array([16, 16])),
        constant("zero", np.zeros((), np.float32)),
        onnx.helper.make_node("Reshape", ["past", "shape"], ["seen"]),
        onnx.helper.make_node("Concat", ["seen", "x"], ["all"], axis=0),
        onnx.helper.make_node("Where", ["mask", "all", "zero"], ["y"]),
    ]
    weights = {"mask": np.ones((20, 16), np.bool_)}
    graph = load_onnx(saved(tmp_path, nodes, {"past": [2, 8, 16], "x": [4, 16]}, [20, 16], weights))
    problem = timed(Problem(graph, load_cluster("p100x2")))
    held = {name: tensors * FLOAT for name, tensors in (("past", 2 * 8 * 16), ("x", 4 * 16))}
    for placement, expected in (([0, 0], [sum(held.values()) + 320, 0]), ([0, 1], [sum(held.values()), 320])):
        assert simulate(problem, Plan.of(placement)).held_bytes.tolist()[:2] == expected


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.float32, np.bool_])
def test_a_table_that_is_looked_up_is_a_weight_and_shapes_and_indices_are_not(tmp_path: Path, kind: type) -> None:
    body = """
        i = Cast <to = 7> (x)
        rows = Gather (table, i)
        f = Cast <to = 1> (rows)
        y = Reshape (f, shape)
    """
    made = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 23]> g (float[4] x) => (float[8,16] y) {{ {body} }}'
    )
    table: Values = np.zeros((1000, 32), kind)
    shape: Values = np.array([8, 16])
    made.graph.initializer.extend(onnx.numpy_helper.from_array(*each) for each in ((table, "table"), (shape, "shape")))
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    graph = load_onnx(tmp_path / "m.onnx")
    assert graph.weights.tolist() == [table.nbytes]
    rows = 4 * 32 * table.itemsize
    assert graph.bytes_accessed[graph.names.index("Gather_rows")] == 2 * rows + 4 * LONG


@pytest.mark.parametrize("size", [-1, 0])
def test_a_size_that_is_none_is_asked_for(tmp_path: Path, size: int) -> None:
    weight = {"w": np.zeros((64, 64), np.float32)}
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])]
    file = saved(tmp_path, nodes, {"x": [size, 64]}, [size, 64], weight)
    with pytest.raises(
        InputError, match=r"dimension 'x\[0\]' of input 'x' has no size; give it one, as in model.onnx:x"
    ):
        load_onnx(file)
    graph = load_graph(f"{file}:x[0]=8")
    assert graph.flops.tolist() == [2 * 8 * 64 * 64]
    assert graph.output_bytes.tolist() == [8 * 64 * FLOAT]


B, S, H = 2, 6, 32  # batch, length, size of all heads together


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "output", "flops"),
    [
        ("FusedMatMul", [[3, 4, 5], [3, 6, 5]], {"transB": 1}, [3, 4, 6], 2 * 3 * 4 * 5 * 6),
        ("FusedMatMul", [[3, 5, 4], [3, 5, 6]], {"transA": 1}, [3, 4, 6], 2 * 3 * 4 * 5 * 6),
        ("MatMulNBits", [[B, S, H], [64, 1, 16], [64]], {"K": H, "N": 64, "bits": 4, "block_size": 32}, [B, S, 64],
         2 * B * S * H * 64),
        ("FusedGemm", [[4, 5], [6, 5], [6]], {"transB": 1, "activation": "Relu"}, [4, 6], 2 * 4 * 5 * 6),
        ("FusedConv", [[2, 6, 8], [4, 3, 5]], {"group": 2, "activation": "Relu"}, [2, 4, 4], 2 * (2 * 4 * 4) * 3 * 5),
        ("Attention", [[B, S, H], [H, 3 * H], [3 * H]], {"num_heads": 4}, [B, S, H],
         2 * B * S * H * 3 * H + 2 * 2 * B * S * S * H),
        ("MultiHeadAttention", [[B, S, H], [B, 9, H], [B, 9, 64]], {"num_heads": 4}, [B, S, 64],
         2 * B * S * 9 * (H + 64)),
        ("MultiHeadAttention", [[B, S, H], [B, 4, 9, 8], [B, 4, 9, 8]], {"num_heads": 4}, [B, S, H],
         2 * B * S * 9 * 2 * H),
        ("MultiHeadAttention", [[B, S, 4, 3, 8]], {"num_heads": 4}, [B, S, H], 2 * B * S * S * 2 * H),
        ("GroupQueryAttention", [[B, 1, H], [B, 1, 16], [B, 1, 16], [B, 2, 7, 8], [B, 2, 7, 8]],
         {"num_heads": 4, "kv_num_heads": 2}, [B, 1, H], 2 * B * 1 * 8 * 2 * H),
        ("SkipLayerNormalization", [[B, S, H], [B, S, H], [H]], {}, [B, S, H], 0),
        ("MoE", [[B * S, H], [B * S, 8], [8, H, 64], [8, 64], [8, 64, H]], {"k": 2}, [B * S, H],
         2 * B * S * 2 * (H * 64 + 64 * H)),
    ],
)  # fmt: skip
def test_flops_of_onnx_runtimes_operators(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, operator: str, inputs: list[list[int]],
    attributes: dict[str, Any], output: list[int], flops: float,
) -> None:  # fmt: skip
    names = "abcde"[: len(inputs)]
    node = onnx.helper.make_node(operator, list(names), ["y"], domain="com.microsoft", **attributes)
    graph = load_onnx(saved(tmp_path, [node], dict(zip(names, inputs, strict=True)), output))
    assert graph.kinds == (f"com.microsoft.{operator}",)
    assert graph.flops.tolist() == [flops]
    assert not caplog.records


def test_flops_that_are_not_known_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = [
        onnx.helper.make_node("Mystery", ["x", "w"], ["h"], domain="own"),
        onnx.helper.make_node("Relu", ["h"], ["y"]),
    ]
    file = saved(tmp_path, nodes, {"x": [8, 64]}, [8, 64], {"w": np.zeros((64, 64), np.float32)})
    model = onnx.load(file)
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, [8, 64]))
    file.write_bytes(model.SerializeToString())
    assert load_onnx(file).flops.sum() == 0
    (record,) = caplog.records
    assert record.getMessage() == "m: the FLOPs of own.Mystery (1) are not known, and count as 0"
