"""Chakra execution traces: their bytes by hand, what becomes an op, and plans that are written as traces."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import placelab
from envs.expansion.nccl import all_reduce_seconds
from graphs.files.load import load_cluster, load_graph
from graphs.formats.chakra import load_chakra
from graphs.formats.chakra_messages import attribute, attributes, new, nodes_of, written
from graphs.foundation.errors import InputError
from tests.drawn import examples

# GlobalMetadata(version="0.0.4"), Node(id=3, name="a", type=COMP_NODE, data_deps=[1, 2], duration_micros=300,
# attr=[AttributeProto(name="is_cpu_op", bool_val=False)]), by the rules of protobuf's encoding
HEAD = bytes.fromhex("070a05302e302e34")
NODE = bytes.fromhex(
    "1e" "0803" "120161" "1804" "2a020102" "38ac02" "520e" "0a09" + b"is_cpu_op".hex() + "d80100"
)  # fmt: skip


def node(number: int, name: str = "", kind: int = 4, micros: int = 0, **more: Any) -> Any:
    about = [attribute(key, *value) for key, value in more.pop("about", {}).items()]
    return new("Node", id=number, name=name or f"n{number}", type=kind, duration_micros=micros, attr=about, **more)


def trace(path: Path, *nodes: Any) -> Path:
    path.write_bytes(written([new("GlobalMetadata", version="0.0.4"), *nodes]))
    return path


def test_bytes_by_hand() -> None:
    assert len(NODE) == 31
    (found,) = nodes_of(Path("x.et"), HEAD + NODE)
    assert (found.id, found.name, found.type, list(found.data_deps), found.duration_micros) == (3, "a", 4, [1, 2], 300)
    assert attributes(found) == {"is_cpu_op": False}
    again = node(3, "a", 4, 300, data_deps=[1, 2], about={"is_cpu_op": ("bool_val", False)})
    assert written([new("GlobalMetadata", version="0.0.4"), again]) == HEAD + NODE
    long = written([new("Node", name="x" * 300)])
    assert long[:5] == bytes.fromhex("af0212ac02")  # 303 bytes, of which 300 are the name


def test_a_recorded_trace_becomes_a_graph(tmp_path: Path) -> None:
    values, types = "[[7, 1, 0, 6, 4, 'cuda:0'], 3, [[8, 2, 0, 5, 2, 'cuda:0']]]", "['Tensor(float)', 'Int', "
    outputs = new("IOInfo", values=values, types=types + "'GenericList[Tensor(c10::Half)]']")
    gpu = {"is_cpu_op": ("bool_val", False)}
    path = trace(
        tmp_path / "mine.et",
        node(5, "aten::mm", micros=9, ctrl_deps=[1, 5], outputs=outputs),  # node 1 was removed by the converter
        node(6, "sgemm", micros=40, data_deps=[5], about=gpu),
        node(8, "again", micros=2, data_deps=[5], ctrl_deps=[5], about=gpu),
        node(9, "again", 7, 30, data_deps=[6, 8], about=gpu | {"comm_type": ("int64_val", 7)}),
        node(12, "got", 6, 0, about=gpu | {"comm_size": ("uint64_val", 1000)}),
    )
    for file in (path, tmp_path / "packed.et"):
        if file != path:
            file.write_bytes(gzip.compress(path.read_bytes()))
        graph = load_graph(str(file))
        assert graph.name == file.stem
        assert graph.names == ("aten::mm", "sgemm", "again#8", "again#9", "got")
        assert graph.kinds == ("aten::mm", "COMP_NODE", "COMP_NODE", "REDUCE_SCATTER", "COMM_RECV_NODE")
        assert graph.measured_seconds[:4].tolist() == [0, 40e-6, 2e-6, 30e-6]  # the host runs ahead
        assert np.isnan(graph.measured_seconds[4])  # what a message takes follows from links
        assert graph.bytes_accessed.tolist() == [0, 0, 0, 0, 1000]
        assert graph.output_bytes.tolist() == [6 * 4 + 5 * 2, 0, 0, 0, 1000]
        assert graph.edges.tolist() == [[0, 1], [0, 2], [1, 3], [2, 3]]
        assert graph.control.tolist() == [False, True, False, False]


def test_the_calls_in_which_calls_were_made_do_not_order_them(tmp_path: Path) -> None:
    """As MLCommons' converter writes: calls depend on data of the call before, kernels of what launched them."""
    host, gpu = {"is_cpu_op": ("bool_val", True)}, {"is_cpu_op": ("bool_val", False)}
    path = trace(
        tmp_path / "mine.et",
        node(1, "aten::linear", about=host),
        node(2, "aten::addmm", about=host, ctrl_deps=[1], data_deps=[1]),
        node(3, "sgemm", micros=40, about=gpu, ctrl_deps=[2], data_deps=[2]),
        node(4, "aten::relu", about=host, ctrl_deps=[6], data_deps=[2]),
        node(5, "elementwise", micros=9, about=gpu, ctrl_deps=[4], data_deps=[4, 3]),
        node(6, "MyModel", about=host, data_deps=[5]),  # in which 4 was called, and which another thread waits for
    )
    graph = load_chakra(path)
    assert graph.edges.tolist() == [[0, 1], [1, 2], [1, 3], [3, 4], [2, 4], [4, 5]]
    assert graph.control.tolist() == [True, True, False, True, False, False]
    assert graph.measured_seconds.tolist() == [0, 0, 40e-6, 0, 9e-6, 0]


def test_a_collective_is_told_by_its_type_and_other_ops_by_name_or_type(tmp_path: Path) -> None:
    scatter, unknown = ({"comm_type": ("int64_val", each)} for each in (7, 99))
    nodes = (
        node(1, kind=7, about=scatter), node(2, kind=7), node(3, kind=7, about=unknown), node(4, kind=4, about=scatter),
        node(5, "aten::mm", about=unknown), node(6, about={"kind": ("string_val", "mine")}),
    )  # fmt: skip
    kinds = load_chakra(trace(tmp_path / "mine.et", *nodes)).kinds
    assert kinds == ("REDUCE_SCATTER", "COMM_COLL_NODE", "COMM_COLL_NODE", "COMP_NODE", "aten::mm", "mine")


def test_ops_of_the_host_take_time_if_there_is_no_other(tmp_path: Path) -> None:
    graph = load_chakra(trace(tmp_path / "mine.et", node(1, micros=9), node(2, micros=3, data_deps=[1])))
    assert graph.measured_seconds.tolist() == [9e-6, 3e-6]


GPU = {"is_cpu_op": ("bool_val", False)}
SUM = GPU | {"comm_type": ("uint64_val", 0), "comm_size": ("uint64_val", 10**9)}


def test_a_collective_without_a_duration_takes_what_its_bytes_take(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = (node(0, micros=5, about=GPU), node(1, "sum", 7, data_deps=[0], about=SUM),
             node(2, micros=5, data_deps=[1], about=GPU))  # fmt: skip
    path = trace(tmp_path / "mine.et", *nodes)
    cluster = load_cluster("p100x2")
    placed = placelab.place(path, cluster="p100x2", groups=None)
    assert placed.timeline.step_seconds == pytest.approx(2 * 5e-6 + all_reduce_seconds(cluster, (0, 1), 1e9))
    message = "mine: 1 of 3 nodes send or receive data and have no duration; they take as long as their comm_size on"
    assert [message in record.getMessage() for record in caplog.records] == [True]
    hold = float(cluster.hold_seconds[0])
    alone = placelab.place(path, cluster="p100x1", placer="single_device", groups=None)
    assert alone.timeline.step_seconds == pytest.approx(1e-5 + 1e9 / cluster.devices[0].bytes_per_second + 2 * hold)


def test_a_trace_without_durations_takes_what_its_operations_and_bytes_take(tmp_path: Path) -> None:
    counted = GPU | {"num_ops": ("int64_val", 10**12), "tensor_size": ("uint64_val", 10**6)}
    moved = GPU | {"num_ops": ("int64_val", 10), "tensor_size": ("uint64_val", 10**9)}
    nodes = (node(0, about=counted), node(1, "sum", 7, data_deps=[0], about=SUM), node(2, data_deps=[1], about=moved))
    path = trace(tmp_path / "mine.et", *nodes)
    graph = load_graph(str(path))
    assert graph.flops.tolist() == [1e12, 0, 10]
    assert graph.bytes_accessed.tolist() == [1e6, 1e9, 1e9]
    assert np.isnan(graph.measured_seconds).all()
    cluster = load_cluster("p100x2")
    card = cluster.devices[0]
    placed = placelab.place(path, cluster="p100x2", cost_model="roofline", groups=None)
    roofline = 1e12 / card.flops_per_second + 1e9 / card.bytes_per_second
    sent = all_reduce_seconds(cluster, (0, 1), 1e9)
    assert placed.timeline.step_seconds == pytest.approx(roofline + sent)


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        ((node(1), node(1)), "two nodes have the id 1"),
        ((node(1, data_deps=[4]),), "node 'n1' depends on data of node 4, which is not there"),
        ((node(1, data_deps=[2]), node(2, data_deps=[1])), "is cyclic: n1 -> n2 -> n1"),
        ((node(1, kind=99),), "node 'n1' is of the unknown type 99"),
        ((node(1, outputs=new("IOInfo", values="[[1]]", types="['Tensor(float)']")),), "no lists of tensors"),
        ((node(1, outputs=new("IOInfo", values="open('x')", types="[]")),), "no lists of tensors"),
        ((node(1, about={"tensor_size": ("double_val", -1.0)}),), "has the tensor_size -1.0; expected a number >= 0"),
        ((), "holds no Chakra execution trace with any nodes"),
    ],
)
def test_what_is_no_trace_gets_one_sentence(tmp_path: Path, nodes: tuple[Any, ...], sentence: str) -> None:
    path = trace(tmp_path / "mine.et", *nodes)
    with pytest.raises(InputError, match=sentence) as raised:
        load_graph(str(path))
    assert str(path) in str(raised.value)


@given(cut=st.integers(0, 38), byte=st.integers(0, 255))
@settings(max_examples=examples(60, 9), deadline=None)
def test_damaged_files_are_refused_or_read(tmp_path_factory: pytest.TempPathFactory, cut: int, byte: int) -> None:
    path = tmp_path_factory.mktemp("damaged") / "mine.et"
    raw = HEAD + NODE.replace(bytes.fromhex("2a020102"), bytes.fromhex("30013001"))
    for damaged in (raw[:cut], raw[:cut] + bytes([byte]) + raw[cut + 1 :], raw[:cut] + bytes([byte]) + raw[cut:]):
        path.write_bytes(damaged)
        try:
            graph = load_chakra(path)
        except InputError as error:
            assert str(path) in str(error)  # noqa: PT017
        else:
            assert (graph.measured_seconds >= 0).all()


def test_a_missing_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="placelab export --to chakra"):
        load_graph(str(tmp_path / "none.et"))
