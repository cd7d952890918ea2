"""Graphs say in which precision ops multiply and weights are kept, as the model's tensors have it."""

from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor, nn

from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.formats.graph_file import load_graph_file, save_graph
from graphs.op_graph import OpGraph, Phase
from graphs.op_graph.precision import precision_of
from graphs.op_graph.subgraph import subgraph

ROWS, WIDTH = 16, 32


class Layers(nn.Module):
    """Two layers; the first in an `autocast` block, if it has a type of data."""

    def __init__(self, cast: torch.dtype | None = None) -> None:
        super().__init__()
        self.first, self.second, self.cast = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), cast

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda", self.cast, enabled=self.cast is not None):
            x = self.first(x).relu()
        made: Tensor = self.second(x.to(self.second.weight.dtype))
        return made


def captured(module: nn.Module, dtype: torch.dtype = torch.float32) -> OpGraph:
    module = module.to(device="meta", dtype=dtype)
    return training_step(capture(module, [torch.zeros(ROWS, WIDTH, device="meta", dtype=dtype)], name="test"))


def multiplied(graph: OpGraph) -> dict[str, str]:
    """In which precision each op with FLOP multiplies, by name."""
    pairs = zip(graph.names, graph.precisions, graph.flops, strict=True)
    return {name: precision for name, precision, flops in pairs if flops}


def test_a_model_in_single_precision_says_nothing_of_it() -> None:
    graph = captured(Layers())
    assert graph.precisions == graph.weight_precisions == ()


@pytest.mark.parametrize(
    ("dtype", "expected"), [(torch.bfloat16, "bf16"), (torch.float16, "fp16"), (torch.float64, "fp64")]
)
def test_products_of_a_model_and_their_gradients_are_in_its_precision(dtype: torch.dtype, expected: str) -> None:
    single, graph = captured(Layers()), captured(Layers(), dtype)
    found = multiplied(graph)
    assert set(found.values()) == {expected}
    assert {graph.phase[graph.names.index(name)] for name in found} == {Phase.FORWARD, Phase.BACKWARD}
    assert set(graph.weight_precisions) == {expected}
    share = dtype.itemsize / 4
    for key in ("weights", "output_bytes", "bytes_accessed"):
        theirs, ours = getattr(single, key)[:-1], getattr(graph, key)[:-1]
        made = [op for op, kind in enumerate(graph.kinds[: len(ours)]) if kind != "loss"] if key != "weights" else ...
        assert ours[made].tolist() == (theirs[made] * share).tolist()
    assert graph.flops.tolist() == single.flops.tolist()


def test_autocast_for_cuda_casts_on_the_meta_device_what_it_casts_on_a_gpu() -> None:
    graph = captured(Layers(torch.bfloat16))
    assert {name.partition("/")[0]: precision for name, precision in multiplied(graph).items()} == {
        "first": "bf16", "second": ""
    }  # fmt: skip
    assert graph.weight_precisions == ()  # the weights stay in single precision
    assert graph.weights.sum() == 2 * (WIDTH + 1) * WIDTH * 4
    updates = graph.phase == Phase.UPDATE
    assert graph.bytes_accessed[updates].sum() == 7 * graph.weights.sum()  # and so do gradients and the optimizer


def test_a_graph_file_keeps_it_and_one_of_an_earlier_version_says_it_in_signatures(tmp_path: Path) -> None:
    graph, file = captured(Layers(), torch.bfloat16), tmp_path / "test.graph.json"
    save_graph(graph, file)
    kept = load_graph_file(file)
    assert (kept.precisions, kept.weight_precisions) == (graph.precisions, graph.weight_precisions)
    assert kept.fingerprint == graph.fingerprint != captured(Layers()).fingerprint
    content = msgspec.json.decode(file.read_bytes())
    del content["weight_precisions"]
    for node in content["nodes"]:
        node.pop("precision", None)
    file.write_bytes(msgspec.json.encode(content))
    earlier = load_graph_file(file)
    assert (earlier.precisions, earlier.weight_precisions) == (graph.precisions, graph.weight_precisions)


def test_a_part_of_a_graph_keeps_it() -> None:
    graph = captured(Layers(), torch.bfloat16)
    part = subgraph(graph, graph.phase == Phase.BACKWARD)
    assert part.precisions == tuple(
        each for each, phase in zip(graph.precisions, graph.phase, strict=True) if phase == Phase.BACKWARD
    )


def test_types_go_by_the_names_of_data_sheets() -> None:
    names = ("float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2", "int8", "int64")
    assert [precision_of(name) for name in names] == ["", "fp16", "bf16", "fp64", "fp8", "fp8", "int8", ""]
