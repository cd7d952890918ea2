"""Formats that count layers in a row: what they lack is said, and models that are none are refused."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import placelab
from envs.plans.plan import Plan
from evaluation.exports.formats import export_plan
from evaluation.exports.module_keys import ModuleKeys
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError
from tests.evaluation.row_model import Row, row_on_four, stages_in


@pytest.mark.parametrize("to", ["vllm", "megatron", "deepspeed", "torchtitan"])
def test_the_order_of_devices_that_a_text_lacks_is_said(to: str) -> None:
    model, problem = Row(), row_on_four()
    keys = ModuleKeys.of(problem, Plan.of([0] * len(problem.graph)), model)
    written = export_plan(problem, keys.placed(np.array([2, 2, 2, 0, 0, 0, 0, 2])), model, to)
    assert "rank 0 is gpu:2, rank 1 is gpu:0" in written.notes[0]
    assert "CUDA_VISIBLE_DEVICES=2,0" in written.notes[0]
    assert export_plan(problem, keys.placed(np.array([0, 0, 0, 1, 1, 1, 1, 0])), model, to).notes == ()
    mixed = export_plan(problem, keys.placed(np.array([0, 0, 1, 0, 1, 1, 1, 0])), model, to)
    assert mixed.moved == 2
    assert mixed.notes == (
        "On other devices than planned: layers.1 on gpu:0 (planned gpu:1), layers.2 on gpu:1 (planned gpu:0).",
    )
    beside = replace(problem, cluster=load_cluster("cpu_gpu:gpus=3"), op_seconds=None)
    with pytest.raises(InputError, match=f"{to} has stages on GPUs, and this plan has modules on cpu:0 next to others"):
        export_plan(beside, keys.placed(np.array([0, 0, 0, 1, 1, 1, 1, 0])), model, to)


class Skips(nn.Module):
    """Layers that go down, and layers that go up, each of which reads what one that went down has left."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.up = nn.ModuleList(nn.Linear(16, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        left = [x]
        for layer in self.down:
            left.append(x := layer(x).relu())
        for layer in self.up:
            x = layer(torch.cat([x, left.pop()], 1))
        return x


class Tables(nn.Module):
    """Tables side by side, as those of a recommender."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(20, 8) for _ in range(4))
        self.top = nn.Linear(32, 1)

    def forward(self, ids: Tensor) -> Tensor:
        y: Tensor = self.top(torch.cat([table(ids[:, i]) for i, table in enumerate(self.tables)], 1))
        return y


class Graphs(nn.Module):
    """Layers of a graph network, which all read the edges."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(GraphLayer(*pair) for pair in pairwise(sizes))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edges).relu()
        return x


class GraphLayer(nn.Linear):
    """Sums what the neighbours have."""

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:  # type: ignore[override]
        gathered = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
        return super().forward(x + gathered)


@pytest.mark.parametrize(
    ("model", "inputs", "why"),
    [
        (Skips(), (torch.ones(4, 8),), "'up.1' of 'Skips:.*' reads 'down.1' as well"),
        (Tables(), (torch.zeros(4, 4, dtype=torch.long),), "'tables.1' of 'Tables:.*' does not read 'tables.0'"),
        (Graphs((8, 16, 4)), (torch.ones(5, 8), torch.zeros(2, 7, dtype=torch.long)), "graph"),
        (Graphs((8, 8, 8, 8)), (torch.ones(5, 8), torch.zeros(2, 7, dtype=torch.long)), "graph"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("to", ["vllm", "megatron", "deepspeed", "torchtitan", "llama_cpp"])
def test_models_that_are_no_chain_of_layers_are_refused(
    model: nn.Module, inputs: tuple[Tensor, ...], why: str, to: str
) -> None:
    problem = placelab.place((model, inputs), cluster="p100x2", placer="single_device", groups=None).problem
    with pytest.raises(InputError, match=None if to == "llama_cpp" else why):  # that knows layers by name
        export_plan(problem, Plan.of(np.arange(len(problem.graph)) * 2 // len(problem.graph)), model, to)


def test_layers_that_are_counted_have_equal_weights() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
    problem = placelab.place(
        (model, (torch.ones(4, 8),)), cluster="p100x2", placer="single_device", groups=None
    ).problem
    plan = Plan.of([0] * len(problem.graph))
    for to in ("vllm", "megatron"):
        with pytest.raises(
            InputError, match=f"{to} counts equal layers, and '0' and '1' of 'Sequential:.*' have unlike"
        ):
            export_plan(problem, plan, model, to)
    apart = Plan.of([int(name.startswith("1")) for name in problem.graph.names])
    assert stages_in("torchtitan", export_plan(problem, apart, model, "torchtitan").text) == '[["0"], ["1"]]'
