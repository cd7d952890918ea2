"""Plans of sequence, context and expert parallelism, run shard by shard: the model as a whole."""

import pytest
import torch
from torch import Tensor, nn

from envs.expansion.expand import expand
from graphs.foundation import by_name
from graphs.problem import Problem
from tests.envs.sharded_steps.sharded_checks import check
from tests.envs.sharded_steps.small_models import as_whole
from tests.oracle.toys import toy_cluster
from tests.placers import mixtures

WORDS, WIDTH, HEADS = 11, 8, 4


class Layer(nn.Module):
    """Attention of each word to those before it, and a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.joint, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        samples, length, width = x.shape
        parts = self.joint(self.before(x)).split(width, -1)
        query, key, value = (each.view(samples, length, HEADS, -1).transpose(1, 2) for each in parts)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(samples, length, width))
        y: Tensor = x + self.down(torch.tanh(self.up(self.between(x))))
        return y


class Model(nn.Module):
    """Two layers between an embedding and a head."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Parameter(torch.randn(length, WIDTH))
        self.layers, self.head = nn.ModuleList([Layer(), Layer()]), nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor, wanted: Tensor) -> Tensor:
        x = self.words(words) + self.places
        for layer in self.layers:
            x = layer(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), wanted.flatten())


@pytest.mark.parametrize(
    ("degrees", "devices"),
    [
        ("cp=2", 2),
        ("cp=3", 3),
        ("tp=2,sequence=true", 2),
        ("dp=2,cp=2", 4),
        ("cp=2,tp=2,sequence=true,pp=2,recompute=true", 8),
        ("dp=2,cp=2,tp=2,zero=3", 8),
    ],
)
def test_a_model_whose_sequence_is_divided_is_the_model(degrees: str, devices: int) -> None:
    """5 words: of three parts one is smaller, of two one."""
    torch.manual_seed(0)
    words, wanted = torch.randint(WORDS, (4, 5)), torch.randint(WORDS, (4, 5))
    whole = as_whole(Model(5).double(), (words, wanted))
    problem = Problem(whole.graph, toy_cluster(devices), optimizer="sgd")
    plan = by_name.build("placers", f"parallel:{degrees}").place(problem).plan
    check(whole, expand(problem, plan), 1e-11)


@pytest.mark.parametrize(
    ("degrees", "devices"), [("ep=2", 2), ("ep=2,dp=4", 4), ("ep=2,tp=2,pp=2,stages=mixture,sequence=true", 8)]
)
def test_a_model_whose_experts_are_divided_is_the_model(degrees: str, devices: int) -> None:
    torch.manual_seed(0)
    shape = 8, mixtures.SEQUENCE, mixtures.WIDTH
    whole = as_whole(mixtures.Model().double(), (torch.randn(shape).double(), torch.randn(shape).double()))
    problem = Problem(whole.graph, toy_cluster(devices), optimizer="sgd")
    plan = by_name.build("placers", f"parallel:{degrees}").place(problem).plan
    check(whole, expand(problem, plan), 1e-11)
