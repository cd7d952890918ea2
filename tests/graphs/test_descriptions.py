"""Descriptions of captured training steps: every op reads what its producers make, at the place where they make it."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from envs.simulation.simulator import simulate
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.descriptions.descriptions import descriptions_of, updated_weights
from graphs.files.load import load_cluster, load_graph
from graphs.notation.described import Described, Source
from graphs.notation.operator import Operator, tensor
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from placers.tensor_parallel import TensorParallel
from tests.envs.placed_models.models import captured
from tests.oracle.toys import random_graph

SPECS = (
    "transformer:layers=1,width=40,heads=4,sequence=6,batch=8,vocabulary=100",
    "transformer:layers=1,width=40,heads=4,sequence=6,batch=8,vocabulary=100,tied=true",
    "llama:layers=1,width=48,heads=4,inner=20,sequence=6,batch=8",
    "vit:layers=1,width=40,heads=4,batch=8,image=32",
    "xlnet:layers=1,width=40,heads=4,sequence=6,batch=8",
    "transformer_xl:layers=1,width=40,heads=4,sequence=6,batch=8,vocabulary=100",
    "rnnlm:layers=2,hidden=8,steps=3,batch=4,vocabulary=50",
    "gnmt:layers=2,hidden=8,steps=3,batch=4,vocabulary=50",
    "wavenet:stacks=1,layers=3,channels=4,length=12,batch=4",
    "resnet:layers=26,batch=4,image=64,groups=32,squeeze=16",
)


def step(spec: str) -> tuple[OpGraph, tuple[Described | None, ...]]:
    graph = load_graph(spec)
    return graph, descriptions_of(graph)


@pytest.mark.parametrize("spec", SPECS)
def test_what_is_read_is_what_its_source_makes(spec: str) -> None:
    _, described = step(spec)
    weight = dict[int, tuple[int, ...]]()
    for each in described:
        assert each is not None
        for access, source in zip(each.operator.reads, each.sources, strict=True):
            if source is None:
                continue
            if source.op < 0:
                assert weight.setdefault(source.weight, access.shape) == access.shape
            else:
                made = described[source.op]
                assert made is not None
                assert made.operator.writes[source.result].shape == access.shape


@pytest.mark.parametrize("spec", SPECS)
def test_every_edge_says_what_it_carries(spec: str) -> None:
    graph, described = step(spec)
    named = {(source.op, op) for op, each in enumerate(described) if each for source in each.sources if source}
    edges = {(producer, consumer) for producer, consumer in graph.edges[~graph.control].tolist()}
    assert {pair for pair in named if pair[0] >= 0} == edges
    read = {(op, -1 - number) for number, op in named if number < 0}
    uses = {(op, weight) for op, weight in graph.weight_uses.tolist()}
    assert uses <= read


@pytest.mark.parametrize("spec", SPECS)
def test_ops_that_are_alike_share_their_operator(spec: str) -> None:
    _, described = step(spec)
    assert len({id(each.operator) for each in described if each}) < len(described)


def test_the_batch_is_a_variable_of_all_that_grows_with_it() -> None:
    graph, described = step(SPECS[0])
    for op, each in enumerate(described):
        assert each is not None
        is_of_samples = graph.phase[op] < Phase.UPDATE and not graph.kinds[op].startswith("loss")
        assert (each.batch != "") == is_of_samples, graph.names[op]
        assert not each.batch or each.operator.sizes[each.batch] == 8


def test_the_gradient_of_a_range_is_read_at_its_place() -> None:
    graph, described = step(SPECS[0])
    [product] = [i for i, name in enumerate(graph.names) if name.endswith("query_key_value/addmm.grad")]
    each = described[product]
    assert each is not None
    assert [str(access) for access in each.operator.reads] == [
        "[n.0, n.1, m.0, m.1, m.2]",
        "[n.0, n.1, m.0 - 1, m.1, m.2]",
        "[n.0, n.1, m.0 - 2, m.1, m.2]",
        "[m.0, m.1, m.2, k]",
    ]
    assert [graph.names[source.op] for source in each.sources[:3] if source] == [
        f"layers.0.attention/getitem_{i}.grad" for i in (3, 4, 5)
    ]


def test_the_same_graph_is_described_once_and_one_without_signatures_not_at_all() -> None:
    graph, described = step(SPECS[0])
    assert descriptions_of(graph) is described
    assert descriptions_of(random_graph(9, 1)) == (None,) * 9


def test_an_op_that_is_not_described_is_known_to_update_nothing() -> None:
    assert updated_weights([None], 0) == []


def test_what_is_not_described_is_read_as_one_output() -> None:
    """A scatter has gradients of two things that it reads."""
    graph = captured("experts")
    described = descriptions_of(graph)
    assert described[graph.names.index("scatter.grad")] is None
    for each in described:
        for source in () if each is None else each.sources:
            if source is not None and source.op >= 0:
                read = described[source.op]
                assert source.result < (1 if read is None else len(read.operator.writes))
    problem = Problem(graph, load_cluster("v100x2"))
    assert simulate(problem, TensorParallel().place(problem).plan).step_seconds > 0


def test_what_brings_a_weight_from_an_update_without_a_description_has_none() -> None:
    """Spectral norm reads a weight in a product of a matrix and a vector, which nothing describes, and divides it."""
    model = spectral_norm(nn.Linear(8, 8))
    graph = training_step(capture(model, (torch.rand(4, 8),), name="spectral norm"))
    described = descriptions_of(graph)
    brought = np.flatnonzero(graph.phase == Phase.REFRESH)
    assert len(brought) > 1
    assert [described[op] for op in brought] == [None] * len(brought)
    problem = Problem(graph, load_cluster("v100x2"))
    assert simulate(problem, TensorParallel().place(problem).plan).step_seconds > 0


def test_in_another_graph_ops_are_read_at_their_positions_there_and_weights_as_before() -> None:
    row = tensor((4,), "n")
    added = Described(Operator({"n": 4}, (row,) * 4, (row,)), (Source(5, 1), Source(2), Source(-1), None), "n")
    assert added.moved({5: 0}).sources == (Source(0, 1), None, Source(-1), None), "and what is left out from nowhere"
