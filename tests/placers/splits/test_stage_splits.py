"""How stages are divided inside is found by search: what experts know comes out of it, and no rule says so."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from envs.pipelines.pipeline import LayerStage
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.descriptions.descriptions import descriptions_of
from graphs.files.load import load_cluster, load_graph
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from placers.splits.column_row import columns_and_rows
from placers.splits.parts import Option
from placers.splits.stage_splits import SearchedSplits
from tests.envs.expansion.divided_graphs import ITEM, mlp

DEVICES = tuple(range(4))
LAYERS, WIDTH, SEQUENCE, BATCH = 2, 1024, 16, 4
TRANSFORMER = f"transformer:layers={LAYERS},width={WIDTH},heads=16,sequence={SEQUENCE},batch={BATCH},vocabulary=64"


def on(graph: OpGraph, cluster: str = "v100_servers:servers=1,devices=4") -> Problem:
    return Problem(graph, load_cluster(cluster), optimizer="sgd")


def products(problem: Problem, found: tuple[Option, ...], kind: str) -> dict[str, Option]:
    """By name what forward ops of a kind divide."""
    graph = problem.graph
    return {
        graph.names[op]: found[op]
        for op in np.flatnonzero(graph.phase == Phase.FORWARD).tolist()
        if kind in graph.kinds[op]
    }


def test_columns_and_rows_of_a_transformer_as_in_megatron() -> None:
    """Heads in attention, columns and then rows of both parts of a layer: two sums forward, and two backward."""
    problem = on(load_graph(TRANSFORMER))
    graph = problem.graph
    found = SearchedSplits(problem, DEVICES)(LayerStage(0, 1, DEVICES, 4))
    by_rule = columns_and_rows(graph, 4)
    in_layers = [name for name in graph.names if name.startswith("layers.") and "mm" in name]
    for op, name in enumerate(graph.names):
        if name in in_layers and graph.phase[op] == Phase.FORWARD:
            assert found[op] == (by_rule[op],) * 2, name
    timeline = simulate(problem, Plan((DEVICES,) * len(graph), split=found, mesh=(2, 2)))
    written = timeline.expansion
    assert written is not None
    moved = written.problem.graph.moved_bytes[timeline.transfers.output]
    origin = written.origin[timeline.transfers.producer]
    all_reduce = 2 * 3 * ITEM * BATCH * SEQUENCE * WIDTH
    is_of_layer = np.array([graph.names[op].startswith("layers.") for op in origin])
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        assert moved[is_of_layer & (graph.phase[origin] == phase)].sum() == LAYERS * 2 * all_reduce


def test_one_weird_trick_of_convolutional_networks() -> None:
    """The batch for the convolutions of a VGG, columns and rows for its large products (Krizhevsky 2014)."""
    problem = on(load_graph("vgg:batch=64"), "p100x2")
    found = SearchedSplits(problem, (0, 1))(LayerStage(0, 1, (0, 1), 2))
    convolutions, linear = (products(problem, found, kind) for kind in ("convolution", "addmm"))
    assert len(convolutions) == 16
    assert set(convolutions.values()) == {()}, "the batch"
    assert len(linear) == 3
    assert {index for option in linear.values() for index in option or ("n",)} <= {"m", "k", "k.0"}, "not the batch"


class DenseMixture(nn.Module):
    """Every token is computed by every expert, and a gate weighs their results."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.empty(experts, width, 4 * width))
        self.down = nn.Parameter(torch.empty(experts, 4 * width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        """(tokens, width) to the same."""
        weights = torch.softmax(self.gate(tokens), dim=-1)
        hidden = nn.functional.gelu(torch.einsum("nd,edf->enf", tokens, self.up))
        made = torch.einsum("enf,efd->end", hidden, self.down)
        mixed: Tensor = torch.einsum("end,ne->nd", made, weights)
        return mixed.sum()


def test_experts_of_a_dense_mixture() -> None:
    """Each device has experts of its own: neither their weights nor what is between their products is moved."""
    with torch.device("meta"):
        graph = training_step(capture(DenseMixture(512, 8), (torch.empty(64, 512),), name="mixture"))
    problem = on(graph)
    found = SearchedSplits(problem, DEVICES)(LayerStage(0, 1, DEVICES, 4))
    by = products(problem, found, "bmm")
    experts = {name: option for name, option in by.items() if "mm" in name}
    assert len(experts) >= 2
    described = dict(zip(graph.names, descriptions_of(graph), strict=True))
    for name, option in list(experts.items())[:2]:
        each = described[name]
        assert each is not None
        assert {each.operator.sizes[index] for index in option} == {8}, name


def test_replicas_divide_the_batch_and_what_was_found_is_kept() -> None:
    problem = on(load_graph(TRANSFORMER), "v100_servers:servers=2,devices=2")
    splits = SearchedSplits(problem, DEVICES)
    stage = LayerStage(0, 1, DEVICES, 2)
    assert stage.axes == (2, 2)
    found = splits(stage)
    for op, (each, option) in enumerate(zip(descriptions_of(problem.graph), found, strict=True)):
        is_update = problem.graph.phase[op] >= Phase.UPDATE
        assert not option or option[0] == ("" if each is None or is_update else each.batch)
    first = splits(LayerStage(0, 3, (0, 1), 2))
    assert splits(LayerStage(5, 9, (2, 3), 2)) is first, "of another server with equal links"
    assert splits(LayerStage(0, 3, DEVICES, 2)) is found


def test_weights_keep_to_the_memory_of_the_stages() -> None:
    """Where all of them fit, small products are done by the batch; with less memory their weights are divided."""
    problem = on(mlp([256] * 4, 4096).graph)
    stage, plans = LayerStage(0, 1, DEVICES, 4), []
    for memory in (1e12, float(problem.weight_state_bytes.sum()) * 0.4):
        devices = tuple(replace(device, memory_bytes=memory) for device in problem.cluster.devices)
        given = replace(problem, cluster=replace(problem.cluster, devices=devices))
        plans.append(Plan((DEVICES,) * len(problem.graph), split=SearchedSplits(given, DEVICES)(stage), mesh=(2, 2)))
    held = [simulate(problem, plan).held_bytes.max() for plan in plans]
    assert held[0] > 0.9 * problem.weight_memory.bytes.sum()
    assert held[1] < 0.4 * problem.weight_memory.bytes.sum()
