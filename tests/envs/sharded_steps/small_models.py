"""Small models with numbers, captured, and what PyTorch makes of them as a whole."""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from graphs.capture.forward import traced
from graphs.capture.training_step import training_step
from graphs.op_graph import OpGraph


@dataclass(frozen=True)
class Trained:
    """A model, its training step, and what the step makes of its weights and inputs."""

    graph: OpGraph
    given: dict[int, Tensor]  # weights and inputs by number
    loss: Tensor
    gradients: list[Tensor]  # (weights,)


class Perceptron(nn.Module):
    """Three layers, of sizes that few numbers divide."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        first, second, third, last = widths
        self.first, self.second, self.third = (
            nn.Linear(first, second), nn.Linear(second, third), nn.Linear(third, last),
        )  # fmt: skip

    def forward(self, x: Tensor, wanted: Tensor) -> Tensor:
        """The mean squared error."""
        x = self.second(torch.relu(self.first(x)))
        return nn.functional.mse_loss(self.third(torch.tanh(x)), wanted)


class Block(nn.Module):
    """A block of a transformer with an embedding before it, and classes after it."""

    def __init__(self, words: int, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.words = nn.Embedding(words, width)
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.classes = nn.Linear(width, words)

    def forward(self, words: Tensor, wanted: Tensor) -> Tensor:
        """The cross-entropy of the next words."""
        x = self.words(words)
        x = x + self.attention(self.before(x))
        x = x + self.down(nn.functional.gelu(self.up(self.between(x))))
        return nn.functional.cross_entropy(self.classes(x).flatten(0, 1), wanted.flatten())

    def attention(self, x: Tensor) -> Tensor:
        """Of each word to all words."""
        samples, length, width = x.shape
        query, key, value = (
            each.view(samples, length, self.heads, -1).transpose(1, 2) for each in self.joint(x).split(width, -1)
        )
        scores = query @ key.transpose(2, 3) / (width // self.heads) ** 0.5
        mixed = (torch.softmax(scores, -1) @ value).transpose(1, 2).reshape(samples, length, width)
        out: Tensor = self.out(mixed)
        return out


class Residual(nn.Module):
    """A residual block of convolutions, and what is before and after it."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 3, 2, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.block = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip
        self.head = nn.Linear(channels, classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """The cross-entropy of images."""
        x = self.stem(images)
        x = torch.relu(x + self.block(x)).mean((2, 3))
        return nn.functional.cross_entropy(self.head(x), labels)


def perceptron() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """9 samples."""
    return Perceptron(6, 10, 7, 5), (torch.randn(9, 6), torch.randn(9, 5))


def block() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """6 samples of 5 words, 4 heads."""
    return Block(11, 12, 4, 14), (torch.randint(11, (6, 5)), torch.randint(11, (6, 5)))


def residual() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """6 images of 18 x 14."""
    return Residual(6, 7), (torch.randn(6, 3, 18, 14), torch.randint(7, (6,)))


MODELS = {each.__name__: each for each in (perceptron, block, residual)}


@cache
def trained(name: str, dtype: torch.dtype = torch.float32) -> Trained:
    """A model of `MODELS`, always with the same numbers."""
    torch.manual_seed(0)
    module, given = MODELS[name]()
    module = module.to(dtype)
    return as_whole(module, tuple(each.to(dtype) if each.is_floating_point() else each for each in given))


def as_whole(module: nn.Module, given: tuple[Tensor, ...]) -> Trained:
    """What a module makes of its inputs."""
    builder = traced(module, given, name=type(module).__name__.lower())
    graph = training_step(builder.build())
    known = {number: tensor.detach().clone() for number, tensor in builder.given().items()}
    weights = [builder.given()[-1 - number] for number in range(len(graph.weights))]
    loss = module(*given)
    return Trained(graph, known, loss.detach(), list(torch.autograd.grad(loss, weights)))
