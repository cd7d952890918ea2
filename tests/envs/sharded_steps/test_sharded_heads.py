"""Plans that divide a vocabulary, its head and its embedding, run shard by shard: the model as a whole."""

import pytest
import torch
from torch import Tensor, nn

from envs.expansion.expand import expand
from graphs.foundation import by_name
from graphs.problem import Problem
from tests.envs.sharded_steps.sharded_checks import check
from tests.envs.sharded_steps.small_models import as_whole
from tests.oracle.toys import toy_cluster

WORDS, WIDTH = 11, 8


class Layer(nn.Module):
    """A perceptron, and what is added to it."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.down(torch.tanh(self.up(x)))
        return y


class Model(nn.Module):
    """Two layers between an embedding and a head, which may be one weight."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.words, self.layers = nn.Embedding(WORDS, WIDTH), nn.ModuleList([Layer(), Layer()])
        self.head = nn.Linear(WIDTH, WORDS)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, words: Tensor, wanted: Tensor) -> Tensor:
        x = self.words(words)
        for layer in self.layers:
            x = layer(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), wanted.flatten())


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(
    ("degrees", "devices"),
    [("tp=2", 2), ("tp=3", 3), ("tp=2,dp=2", 4), ("tp=2,pp=2", 4), ("tp=3,pp=2,recompute=true", 6)],
)
def test_a_model_whose_vocabulary_is_divided_is_the_model(degrees: str, devices: int, tied: bool) -> None:
    """11 words: of three parts one is smaller, of two one. Embedding and head may be on other devices."""
    torch.manual_seed(0)
    words, wanted = torch.randint(WORDS, (8, 3)), torch.randint(WORDS, (8, 3))
    whole = as_whole(Model(tied).double(), (words, wanted))
    problem = Problem(whole.graph, toy_cluster(devices), optimizer="sgd")
    plan = by_name.build("placers", f"parallel:{degrees}").place(problem).plan
    by = dict(zip(whole.graph.names, plan.split, strict=True))
    assert (by["words/embedding"][-1], by["nll_loss_forward"][-1]) == ("v", "c")
    check(whole, expand(problem, plan), 1e-11)
