"""A table that is looked up with sparse=True: its gradient holds the rows that were read, as PyTorch's does."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from envs.simulation.simulator import Simulator
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.formats.graph_file import load_graph_file, save_graph
from graphs.op_graph import OpGraph
from graphs.op_graph.optimizers import UPDATE_TRAFFIC
from graphs.problem import Problem
from tests.oracle.toys import toy_cluster

ROWS, WIDTH = 50, 6
TABLE = 4 * ROWS * WIDTH  # bytes
ROW, INDEX = 4 * WIDTH, 8  # bytes


class Lookups(nn.Module):
    """The same table looked up several times, and perhaps multiplied as well."""

    def __init__(self, times: int = 1, *, sparse: bool = True, tied: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH, sparse=sparse)
        self.times, self.tied = times, tied

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = sum((self.table(tokens + i) for i in range(self.times)), torch.zeros(1))
        return found @ self.table.weight.T if self.tied else found


class Bag(nn.Module):
    """The sums of three rows each."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=sparse)

    def forward(self, bags: Tensor) -> Tensor:
        sums: Tensor = self.table(bags)
        return sums


def tokens(*shape: int) -> Tensor:
    return torch.arange(int(torch.Size(shape).numel())).reshape(shape)


def step_of(module: nn.Module, given: Tensor) -> OpGraph:
    return training_step(capture(module, (given,), name="test"))


def ops(step: OpGraph, suffix: str) -> list[int]:
    return [op for op, name in enumerate(step.names) if name.endswith(suffix)]


def autograds(module: nn.Module, given: Tensor) -> Tensor:
    """The gradient of the table, as PyTorch makes it."""
    module(given).sum().backward()
    [table] = module.parameters()
    assert table.grad is not None
    return table.grad


def held(gradient: Tensor) -> int:
    """Bytes of a gradient's values and, if it is sparse, of what says where they are."""
    return gradient._indices().nbytes + gradient._values().nbytes if gradient.is_sparse else gradient.nbytes


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("tied", [True, False])
def test_a_gradient_is_as_large_as_autograds(sparse: bool, times: int, tied: bool) -> None:
    module, given = Lookups(times, sparse=sparse, tied=tied), tokens(4)
    step, gradient = step_of(module, given), autograds(module, given)
    assert gradient.is_sparse == (sparse and not tied)
    [update] = ops(step, ".update")
    complete = step.edges[step.edges[:, 1] == update, 0]
    assert step.output_bytes[complete].tolist() == [held(gradient)]


def test_one_look_up_by_hand() -> None:
    step = step_of(Lookups(), tokens(4))
    assert "aten.embedding.sparse" in step.kinds
    [lookup], [gradient], [update] = ops(step, "/embedding"), ops(step, "/embedding.grad_weight"), ops(step, ".update")
    rows, indices = 4 * ROW, 4 * INDEX
    assert step.bytes_accessed[lookup] == indices + rows + rows
    assert step.output_bytes[gradient] == indices + rows
    assert step.bytes_accessed[gradient] == (indices + rows) + (indices + rows)  # read, and written
    assert step.bytes_accessed[update] == UPDATE_TRAFFIC * (indices + rows)
    assert step.weights.tolist() == [TABLE]


def test_no_more_than_the_table_is_sent_and_updated() -> None:
    step = step_of(Lookups(), tokens(1000) % ROWS)
    [gradient], [update] = ops(step, "/embedding.grad_weight"), ops(step, ".update")
    assert step.output_bytes[gradient] == TABLE + 1000 * INDEX
    assert step.bytes_accessed[update] == UPDATE_TRAFFIC * TABLE


def test_only_the_rows_are_sent_to_the_tables_other_users() -> None:
    step = step_of(Lookups(2), tokens(4))
    [update] = ops(step, ".update")
    assert step.output_bytes[update] == 2 * 4 * (ROW + INDEX) < TABLE
    assert len(ops(step, ".refresh")) == 1


def test_bags_read_their_rows() -> None:
    given = tokens(4, 3)
    step, gradient = step_of(Bag(sparse=True), given), autograds(Bag(sparse=True), given)
    [lookup], [backward] = ops(step, "/_embedding_bag"), ops(step, "/_embedding_bag.grad_weight")
    assert held(gradient) == 12 * (ROW + INDEX)
    extra = 2 * INDEX * (4 + 12)  # where each bag starts, its size, and the bag of each row
    assert held(gradient) <= step.output_bytes[backward] <= held(gradient) + extra
    assert 12 * (ROW + INDEX) + 4 * ROW <= step.bytes_accessed[lookup] <= 12 * (ROW + INDEX) + 4 * ROW + extra
    dense = step_of(Bag(sparse=False), given)
    assert dense.bytes_accessed[lookup] == step.bytes_accessed[lookup]
    assert dense.output_bytes[ops(dense, "/_embedding_bag.grad_weight")].tolist() == [TABLE]
    assert dense.bytes_accessed[ops(dense, ".update")].tolist() == [UPDATE_TRAFFIC * TABLE]


def test_bags_of_a_huge_table_do_not_depend_on_its_size() -> None:
    def moved(rows: int) -> float:
        with torch.device("meta"):
            module = nn.EmbeddingBag(rows, WIDTH, mode="sum", sparse=True)
            step = step_of(module, torch.zeros(4, 3, dtype=torch.long))
        return float(step.bytes_accessed.sum() + step.output_bytes.sum())

    assert moved(10**9) == moved(10**4)


def test_a_file_keeps_the_kind(tmp_path: Path) -> None:
    path = tmp_path / "sparse.graph.json"
    forward = capture(Lookups(2), (tokens(4),), name="test")
    save_graph(forward, path)
    assert training_step(load_graph_file(path)).fingerprint == training_step(forward).fingerprint


@pytest.mark.parametrize(
    ("module", "tables"), [(Lookups(), 3.0), (Lookups(sparse=False), 4.0), (Lookups(tied=True), 4.0)]
)
def test_the_state_of_a_table_with_a_sparse_gradient_has_none(module: Lookups, tables: float) -> None:
    problem = Problem(step_of(module, tokens(4)), toy_cluster(1))
    assert problem.weight_state_bytes.tolist() == [tables * TABLE]
    static = Simulator(problem).timeline([0] * problem.graph.num_units).held_bytes
    assert static.tolist() == [3 * TABLE + problem.graph.held_tensors.bytes.sum()]  # any gradient is an op's output
