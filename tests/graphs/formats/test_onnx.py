"""ONNX models: what becomes an op and what it costs, and what is refused."""

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from graphs.capture.forward import capture
from graphs.files.load import load_graph
from graphs.formats.onnx import load_onnx, save_onnx
from graphs.foundation.errors import InputError
from placelab import show
from tests.drawn import examples
from tests.oracle.toys import random_graph, toy_graph

onnx = pytest.importorskip("onnx")

FLOAT, LONG = 4, 8  # bytes
several = settings(max_examples=examples(50, 9), deadline=None, suppress_health_check=list(HealthCheck))


def written(
    path: Path, inputs: str, body: str, outputs: str, weights: Mapping[str, tuple[int, ...]] | None = None
) -> Path:
    """A file with a model in ONNX's text form, and with float weights of the given shapes."""
    header = '<ir_version: 10, opset_import: ["": 23, "other": 1]>'
    made = onnx.parser.parse_model(f"{header} g ({inputs}) => ({outputs}) {{ {body} }}")
    for name, shape in (weights or {}).items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(shape, np.float32), name))
    file = path / "m.onnx"
    file.write_bytes(made.SerializeToString())
    return file


def test_a_small_network_by_hand(tmp_path: Path) -> None:
    body = """
        c = Conv <pads = [1, 1, 1, 1]> (x, filters)
        r = Relu (c)
        m = GlobalAveragePool (r)
        f = Flatten (m)
        y = MatMul (f, matrix)
    """
    weights = {"filters": (7, 3, 3, 3), "matrix": (7, 5)}
    graph = load_onnx(written(tmp_path, "float[2,3,8,8] x", body, "float[2,5] y", weights))
    assert graph.name == "m"
    assert graph.names == ("Conv_c", "Relu_r", "GlobalAveragePool_m", "MatMul_y")
    assert graph.kinds == ("onnx.Conv", "onnx.Relu", "onnx.GlobalAveragePool", "onnx.MatMul")
    image, map_ = 2 * 3 * 64, 2 * 7 * 64
    assert graph.flops.tolist() == [2 * map_ * (3 * 3 * 3), 0, 0, 2 * 2 * 7 * 5]
    accessed = [image + 7 * 27 + map_, map_ + map_, map_ + 14, 14 + 35 + 10]
    assert graph.bytes_accessed.tolist() == [FLOAT * elements for elements in accessed]
    assert graph.output_bytes.tolist() == [FLOAT * map_, FLOAT * map_, FLOAT * 14, FLOAT * 10]
    assert graph.edges.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert graph.weights.tolist() == [FLOAT * 7 * 27, FLOAT * 35]
    assert graph.weight_uses.tolist() == [[0, 0], [3, 1]]
    assert not graph.is_training


@pytest.mark.parametrize(
    ("inputs", "node", "output", "flops"),
    [
        ("float[6,2,3] a, float[6,3,4] b", "MatMul (a, b)", "float[6,2,4]", 2 * 6 * 2 * 3 * 4),
        ("float[6,2,3] a, float[3] b", "MatMul (a, b)", "float[6,2]", 2 * 6 * 2 * 3),
        ("float[3,2] a, float[3,4] b", "Gemm <transA = 1> (a, b)", "float[2,4]", 2 * 2 * 3 * 4),
        ("float[2,3] a, float[4,3] b", "Gemm <transB = 1> (a, b)", "float[2,4]", 2 * 2 * 3 * 4),
        ("float[2,6,8] a, float[4,3,5] b", "Conv <group = 2> (a, b)", "float[2,4,4]", 2 * (2 * 4 * 4) * (3 * 5)),
        ("float[2,6,8] a, float[6,3,5] b", "ConvTranspose (a, b)", "float[2,3,12]", 2 * (2 * 6 * 8) * (3 * 5)),
        ("uint8[2,3] a, uint8[3,4] b", "MatMulInteger (a, b)", "int32[2,4]", 2 * 2 * 3 * 4),
        ("float[5,2,3] a, float[1,16,3] b, float[1,16,4] c", "LSTM <hidden_size = 4> (a, b, c)", "float[5,1,2,4]",
         2 * (5 * 2) * (16 * 3 + 16 * 4)),
        ("float[7,2,3] a, float[7,4,3] b", 'Einsum <equation = "bij,bkj->bik"> (a, b)', "float[7,2,4]",
         2 * 7 * 2 * 3 * 4),
        ("float[7,2,3] a, float[3,4] b", 'Einsum <equation = "...ij, jk"> (a, b)', "float[7,2,4]", 2 * 7 * 2 * 3 * 4),
        ("float[1,4,5,6] a, float[1,2,7,6] b, float[1,2,7,8] c", "Attention (a, b, c)", "float[1,4,5,8]",
         2 * 4 * 5 * 7 * (6 + 8)),
        ("float[1,5,24] a, float[1,7,12] b, float[1,7,16] c", "Attention <q_num_heads = 4, kv_num_heads = 2> (a, b, c)",
         "float[1,5,32]", 2 * 4 * 5 * 7 * (6 + 8)),
        ("float[2,3] a", "Softmax (a)", "float[2,3]", 0),
    ],
)  # fmt: skip
def test_flops_by_hand(tmp_path: Path, inputs: str, node: str, output: str, flops: float) -> None:
    graph = load_onnx(written(tmp_path, inputs, f"y = {node}", f"{output} y"))
    assert graph.flops.tolist() == [flops]


def test_views_and_parts(tmp_path: Path) -> None:
    body = """
        r = Relu (x)
        t = Transpose <perm = [1, 0]> (r)
        left, right = Split <axis = 0, num_outputs = 2> (t)
        a = Tanh (left)
        b = Tanh (right)
        whole = Identity (t)
        d = Dropout (whole)
        c = Tanh (d)
    """
    graph = load_onnx(written(tmp_path, "float[2,6] x", body, "float[3,2] a, float[3,2] b, float[6,2] c"))
    assert [kind.removeprefix("onnx.") for kind in graph.kinds] == ["Relu", "Split", "Split", "Tanh", "Tanh", "Tanh"]
    assert graph.edges.tolist() == [[0, 1], [0, 2], [0, 5], [1, 3], [2, 4]]
    assert graph.output_bytes.tolist() == [48, 24, 24, 24, 24, 48]
    assert graph.bytes_accessed.tolist() == [96, 0, 0, 48, 48, 96]
    assert graph.units.tolist() == [0, 0, 0, 1, 2, 3]


def test_a_tied_weight_is_held_once_and_a_lookup_reads_the_rows_it_finds(tmp_path: Path) -> None:
    body = """
        e = Gather (table, tokens)
        t = Transpose <perm = [1, 0]> (table)
        y = MatMul (e, t)
    """
    graph = load_onnx(written(tmp_path, "int64[3] tokens", body, "float[3,1000] y", {"table": (1000, 4)}))
    assert graph.weights.tolist() == [FLOAT * 4000]
    assert graph.weight_uses.tolist() == [[0, 0], [1, 0]]
    assert graph.bytes_accessed[0] == 3 * LONG + 2 * FLOAT * 3 * 4


def test_constants_and_what_no_output_depends_on_are_no_ops(tmp_path: Path) -> None:
    body = """
        two = Constant <value_float = 2.0> ()
        four = Mul (two, two)
        shape = Shape (x)
        flat = Reshape (x, shape)
        unread = Exp (x)
        y = Mul (flat, four)
    """
    graph = load_onnx(written(tmp_path, "float[2,3] x", body, "float[2,3] y"))
    assert graph.names == ("Mul_y",)
    assert graph.weights.tolist() == []


def test_an_expanded_tensor_occupies_what_it_was_made_of(tmp_path: Path) -> None:
    body = "r = Relu (x) shape = Constant <value_ints = [5, 3]> () e = Expand (r, shape) y = Exp (e)"
    graph = load_onnx(written(tmp_path, "float[1,3] x", body, "float[5,3] y"))
    assert graph.bytes_accessed.tolist() == [FLOAT * 6, FLOAT * (3 + 15)]


def test_small_types_have_their_own_size(tmp_path: Path) -> None:
    body = "h = Cast <to = 10> (x) y = Cast <to = 22> (h)"
    graph = load_onnx(written(tmp_path, "float[8] x", body, "int4[8] y"))
    assert graph.output_bytes.tolist() == [16, 4]


def test_products_are_in_the_precision_of_what_they_read(tmp_path: Path) -> None:
    body = "h = MatMul (x, x) f = Cast <to = 1> (h) y = MatMul (f, w)"
    graph = load_onnx(written(tmp_path, "float16[8,8] x", body, "float[8,2] y", {"w": (8, 2)}))
    assert graph.precisions == ("fp16", "", "")
    assert graph.weight_precisions == ()


def test_sizes_are_given_to_dimensions_that_have_none(tmp_path: Path) -> None:
    body = "shape = Shape (x) ones = ConstantOfShape (shape) s = Add (x, ones) y = MatMul (s, w)"
    file = written(tmp_path, "float[batch,3] x, float[?,4] w", body, "float[batch,4] y")
    graph = load_onnx(file, sizes={"batch": 5, "w[0]": 3})
    assert graph.flops.tolist() == [0, 2 * 5 * 3 * 4]
    with pytest.raises(
        InputError, match=r"m\.onnx: dimension 'batch' of input 'x' has no size; .*sizes=\{'batch': 8\}"
    ):
        load_onnx(file)
    with pytest.raises(InputError, match=r"dimension 'w\[0\]' of input 'w' has no size"):
        load_onnx(file, sizes={"batch": 5})
    with pytest.raises(InputError, match=r"unknown dimension 'bath'; did you mean 'batch'\? there are: batch, w\[0\]"):
        load_onnx(file, sizes={"bath": 5})
    with pytest.raises(InputError, match="'batch' is given the size 0; expected at least 1"):
        load_onnx(file, sizes={"batch": 0})
    with pytest.raises(InputError, match=r"sizes of its tensors do not fit together: .*MatMul"):
        load_onnx(file, sizes={"batch": 5, "w[0]": 7})


def test_external_data_is_not_read(tmp_path: Path) -> None:
    file = written(tmp_path, "float[2,3] x", "y = MatMul (x, w)", "float[2,4] y", {"w": (3, 4)})
    made = onnx.load_model(file)
    onnx.external_data_helper.set_external_data(made.graph.initializer[0], "../../elsewhere.bin")
    made.graph.initializer[0].ClearField("raw_data")
    made.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    file.write_bytes(made.SerializeToString())
    assert load_onnx(file).weights.tolist() == [FLOAT * 12]


def test_functions_are_written_out(tmp_path: Path) -> None:
    text = """
        <ir_version: 10, opset_import: ["": 23, "own": 1]> g (float[2,3] x) => (float[2,3] y) { y = own.twice (x) }
        <domain: "own", opset_import: ["": 23]> twice (a) => (c) { b = Relu (a) c = Tanh (b) }
    """
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    assert load_onnx(tmp_path / "m.onnx").kinds == ("onnx.Relu", "onnx.Tanh")


def test_functions_that_double_their_callers_are_not_written_out(tmp_path: Path) -> None:
    header, model = '<domain: "own", opset_import: ["": 23, "own": 1]>', '<ir_version: 10, opset_import: ["own": 1]>'
    doubling = [f"{header} f{i} (a) => (c) {{ b = own.f{i + 1} (a) c = own.f{i + 1} (b) }}" for i in range(60)]
    last = f"{header} f60 (a) => (c) {{ c = Tanh (a) }}"
    text = "\n".join([model, "g (float[2] x) => (float[2] y) { y = own.f0 (x) }", *doubling, last])
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    with pytest.raises(InputError, match=r"m\.onnx: with its functions written out, it has more than 1,000,000 nodes"):
        load_onnx(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("inputs", "body", "output", "sentence"),
    [
        ("bool c", "y = If (c) <then_branch = t () => (float[1] p) { p = Constant <value_floats = [1.0]> () }, "
         "else_branch = e () => (float[1] q) { q = Constant <value_floats = [1.0]> () }>", "float[1] y",
         r"node 'If of y' is control flow \(If\); export the model with fixed shapes"),
        ("float[2,3] x", "n = NonZero (x) y = Abs (n)", "int64[2,found] y", "the size of value 'n' cannot be inferred"),
        ("float[2] x", "h = other.Thing (x) y = Relu (h)", "float[2] y", "the size of value 'h' cannot be inferred"),
        ("float[2] x", "s = SequenceConstruct (x, x) y = ConcatFromSequence <axis = 0> (s)", "float[4] y",
         "value 's' is no tensor but a sequence_type"),
        ("string[2] x", "y = StringNormalizer (x)", "string[2] y", "elements of value 'x' are no numbers but STRING"),
        ("float[2,2] x", 'y = Einsum <equation = "ij,j!->i"> (x, x)', "float[2] y", "is no equation of Einsum"),
        ("float[2,4] x", "y, z = Split <num_outputs = 1> (x)", "float[1,4] y", "has 2 outputs, and says 1"),
        ("float[2,4] x", "y, z = Split <num_outputs = 3> (x)", "float[1,4] y", "has 2 outputs, and says 3"),
        ("float[2] x", "y = Rlu (x)", "float[2] y", "no valid ONNX model: No Op registered for Rlu"),
        ("float[2] x", "y = Relu (z)", "float[2] y", "no valid ONNX model: .*'z'"),
        ("float[2] x", "unread = Relu (x)", "float[2] x", "graph 'm' has no ops"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(tmp_path: Path, inputs: str, body: str, output: str, sentence: str) -> None:
    with pytest.raises(InputError, match=rf"m\.onnx: (?s:.*){sentence}"):
        load_onnx(written(tmp_path, inputs, body, output))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's, about this exporter; the newer one needs more
def test_what_torch_exports_costs_what_is_captured(tmp_path: Path) -> None:
    layers = (nn.Conv2d(3, 8, 3), nn.ReLU(), nn.ConvTranspose2d(8, 4, 2), nn.Flatten(), nn.Linear(4 * 49, 5))
    module, image = nn.Sequential(*layers).eval(), torch.zeros(2, 3, 8, 8)
    torch.onnx.export(module, (image,), tmp_path / "m.onnx", dynamo=False)
    read, captured = load_onnx(tmp_path / "m.onnx"), capture(module, (image,), name="m")
    assert read.names == ("0/Conv", "1/Relu", "2/ConvTranspose", "4/Gemm")
    assert [name.partition("/")[0] for name in captured.names] == ["0", "1", "2", "4"]
    for key in ("flops", "bytes_accessed", "output_bytes", "weight_bytes", "edges"):
        assert getattr(read, key).tolist() == getattr(captured, key).tolist(), key


def test_the_path_that_torchs_newer_exporter_keeps_beside_a_node_is_taken(tmp_path: Path) -> None:
    file = written(tmp_path, "float[2] x", "h = Relu (x) y = Relu (h)", "float[2] y")
    made = onnx.load_model(file)
    for node in made.graph.node:
        node.name = "node_relu"
        entry = node.metadata_props.add()
        entry.key, entry.value = "pkg.torch.onnx.name_scopes", "['', 'layers', 'layers.0', 'relu']"
    file.write_bytes(made.SerializeToString())
    assert load_onnx(file).names == ("layers.0/node_relu", "layers.0/node_relu_1")


def test_an_onnx_file_is_a_graph_by_its_path(tmp_path: Path) -> None:
    graph, file = random_graph(9, 1), tmp_path / "one.onnx"
    save_onnx(graph, file)
    assert load_graph(str(file)).fingerprint == graph.fingerprint
    assert show(str(file), groups=3).units == 3


def test_a_file_that_is_not_there_or_damaged_and_a_package_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"none\.onnx does not exist"):
        load_onnx(tmp_path / "none.onnx")
    with pytest.raises(InputError, match="cannot be read"):
        load_onnx(tmp_path)
    (tmp_path / "m.onnx").write_bytes(b"no model")
    with pytest.raises(InputError, match=r"m\.onnx is damaged"):
        load_onnx(tmp_path / "m.onnx")
    (tmp_path / "m.onnx").write_bytes(b"")
    with pytest.raises(InputError, match=r"m\.onnx holds no ONNX model"):
        load_onnx(tmp_path / "m.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    for use in (lambda: load_onnx(tmp_path / "m.onnx"), lambda: save_onnx(toy_graph([1], []), tmp_path / "m.onnx")):
        with pytest.raises(InputError, match=r"m\.onnx needs the package onnx: pip install 'placelab\[onnx\]'"):
            use()


@settings(max_examples=examples(300, 30), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.booleans())
def test_a_damaged_file_gives_one_sentence(tmp_path: Path, data: st.DataObject, own: bool) -> None:
    if own:
        save_onnx(toy_graph([1, 2, 3], [(0, 1), (1, 2)], weights=[4], weight_uses=[(1, 0)]), tmp_path / "m.onnx")
    else:
        body = "h = Conv (x, w) t = Transpose (h) l, r = Split <num_outputs = 2> (t) y = MatMul (l, r)"
        written(tmp_path, "float[2,2,4,4] x", body, "float[2,4,2,2] y", {"w": (2, 2, 1, 1)})
    raw = bytearray((tmp_path / "m.onnx").read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "m.onnx").write_bytes(raw[: data.draw(st.integers(0, len(raw)) | st.just(len(raw)))])
    with contextlib.suppress(InputError):  # anything else would be a traceback
        assert len(load_onnx(tmp_path / "m.onnx")) > 0


def test_a_size_is_given_with_the_name_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected sizes as model\.onnx:batch=8, got 'batch=many'"):
        load_graph(f"{tmp_path / 'model.onnx'}:batch=many")
    with pytest.raises(InputError, match=r"model\.onnx does not exist"):
        load_graph(f"{tmp_path / 'model.onnx'}:batch=8")
