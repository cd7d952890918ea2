"""Every process has the same model and the same batches; batches that were not planned for are refused."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from envs.running.captured_program import CapturedProgram
from envs.running.model_data import batches, seeded_example
from graphs.foundation.errors import InputError, UserCodeError

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(10, 4), nn.Linear(4, 3)
    def forward(self, tokens, noise, scale=1.0):
        return (self.head(self.table(tokens)) + noise).sum() * scale

def model(batch=4):
    return Net(), (torch.arange(batch) % 10, torch.zeros(batch, 3)), {"scale": 2.0}
"""
DATA = """
import torch
def good():
    for k in range(2):
        yield (torch.full((4,), k), torch.ones(4, 3)), {"scale": 2.0}
def tuples():
    return [(torch.zeros(4, dtype=torch.int64), torch.ones(4, 3))]
def short():
    return [((torch.zeros(3, dtype=torch.int64), torch.ones(3, 3)), {"scale": 2.0})]
def other():
    return [((torch.zeros(4, dtype=torch.int64), torch.ones(4, 3)), {"scale": 3.0})]
def empty():
    return []
def tensor():
    return torch.zeros(4)
def wrong():
    yield {}["x"]
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "data.py").write_text(DATA)
    return tmp_path


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_equal_seeds_give_equal_weights_and_batches_and_others_do_not(files: Path) -> None:
    first, again, other = (seeded_example(f"{files}/model.py:model", seed) for seed in (1, 1, 2))
    assert same(first.module.state_dict(), again.module.state_dict())
    assert not same(first.module.state_dict(), other.module.state_dict())
    drawn = [batches(example, seed=seed) for example, seed in ((first, 1), (again, 1), (first, 2))]
    one, two, three = ([next(each) for _ in range(3)] for each in drawn)
    for mine, theirs in zip(one, two, strict=True):
        assert all(torch.equal(mine[leaf], theirs[leaf]) for leaf in mine)
    assert any(not torch.equal(one[0][leaf], three[0][leaf]) for leaf in one[0])
    assert sorted(one[0][0].tolist()) == [0, 1, 2, 3]
    assert one[0][1].std() > 0
    assert not torch.equal(one[0][1], one[1][1])


def test_another_number_of_samples(files: Path) -> None:
    batch = next(batches(seeded_example(f"{files}/model.py:model", 0, samples=8)))
    assert [tuple(tensor.shape) for tensor in batch.values()] == [(8,), (8, 3)]


def test_the_users_batches_are_gone_through_again_and_again(files: Path) -> None:
    example = seeded_example(f"{files}/model.py:model", 0)
    given = batches(example, f"{files}/data.py:good")
    assert [int(next(given)[0][0]) for _ in range(5)] == [0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("tuples", "batch 1: it is made up otherwise than the model's inputs"),
        ("short", "batch 1: input 0 is torch.int64 of shape (3,), and the step was planned for"),
        ("other", "batch 1: input 2 is 3.0, and the model was planned with 2.0"),
        ("empty", "there are no batches"),
        ("tensor", "expected a sequence of batches, or what yields them; got Tensor"),
    ],
)
def test_batches_that_were_not_planned_for_are_refused(what: str, sentence: str, files: Path) -> None:
    example = seeded_example(f"{files}/model.py:model", 0)
    with pytest.raises(InputError) as refused:
        next(batches(example, f"{files}/data.py:{what}"))
    assert sentence in str(refused.value)


def test_what_the_users_code_raises_names_its_line(files: Path) -> None:
    with pytest.raises(UserCodeError, match=r"data.py:17: KeyError: 'x'"):
        next(batches(seeded_example(f"{files}/model.py:model", 0), f"{files}/data.py:wrong"))


IN_OBJECTS = """
import torch
from torch import nn

class Graph:
    def __init__(self, nodes, edges):
        self.nodes, self.edges, self.name = nodes, edges, "one"

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)
    def forward(self, graph, scale=1.0, weights=None):
        return (self.head(graph.nodes)[graph.edges] * weights).square().mean() * scale

def graph(nodes=4):
    return Graph(torch.zeros(nodes, 3), torch.arange(4) % 2)

def model():
    return Net(), (graph(),), {"scale": 2.0, "weights": torch.zeros(4, 2)}

def good():
    return [((graph(),), {"scale": 2.0, "weights": torch.ones(4, 2)})]

def large():
    return [((graph(5),), {"scale": 2.0, "weights": torch.ones(4, 2)})]

def other():
    return [((torch.ones(4, 3),), {"scale": 2.0, "weights": torch.ones(4, 2)})]
"""


def test_tensors_in_objects_are_inputs_by_their_number(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(IN_OBJECTS)
    example = seeded_example(f"{tmp_path}/model.py:model", 0)
    program = CapturedProgram.of(example)
    assert program.leaves == (0, 1, 2)
    assert {leaf for part in program.parts for leaf in part.inputs.values()} == {0, 1, 2}
    drawn = next(batches(example))
    assert [tuple(tensor.shape) for tensor in drawn.values()] == [(4, 3), (4,), (4, 2)]
    (graph,), named = program.arguments(drawn)
    assert graph.nodes is drawn[0]
    assert graph.edges is drawn[1]
    assert graph.name == "one"
    assert named["weights"] is drawn[2]
    assert example.args[0] is not graph
    given = next(batches(example, f"{tmp_path}/model.py:good"))
    assert torch.equal(given[2], torch.ones(4, 2))
    for what, sentence in (("large", r"input 0 is torch.float32 of shape \(5, 3\)"), ("other", "input 0 is tensor")):
        with pytest.raises(InputError, match=sentence):
            next(batches(example, f"{tmp_path}/model.py:{what}"))


GIVEN = """
import torch

def model():
    table, scale = torch.arange(3.0), torch.tensor(2.0)
    tokens, mask = torch.arange(16), torch.arange(1.0, 33.0).reshape(16, 2)
    return torch.nn.Linear(2, 2), (tokens, mask, table, scale, tokens)
"""


def test_each_step_has_the_samples_in_another_order_and_their_inputs_together(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(GIVEN)
    drawn = batches(seeded_example(f"{tmp_path}/model.py:model", 0))
    orders = set()
    for batch in (next(drawn) for _ in range(4)):
        tokens, mask, table, scale, again = batch.values()
        assert sorted(tokens.tolist()) == list(range(16))
        assert torch.equal(mask, torch.stack([2.0 * tokens + 1, 2.0 * tokens + 2], dim=1))
        assert again is tokens
        assert table.tolist() == [0, 1, 2]
        assert scale == 2
        orders.add(tuple(tokens.tolist()))
    assert len(orders) == 4
