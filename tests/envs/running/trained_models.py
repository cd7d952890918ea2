"""Small models with a loss whose gradients are larger than the noise of rounding, and batches for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_structure, tree_unflatten

from envs.running.captured_program import CapturedProgram
from graphs.capture.examples import Example, with_data
from tests.envs.placed_models.models import BATCH, MODELS, WIDTH, WORDS
from tests.graphs.gradient_stops import ASKED, CHECKPOINTS, OWN, STOPS


class Squares(nn.Module):
    """The mean of the squares of all that a model returns."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Tensor) -> Tensor:
        outputs = [leaf for leaf in tree_leaves(self.model(**inputs)) if isinstance(leaf, Tensor)]
        return torch.stack([(output**2).mean() for output in outputs]).sum()


class NextWords(nn.Module):
    """The cross-entropy of the words that a model foretells."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, words: Tensor, wanted: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.model(words).flatten(0, 1), wanted.flatten())


class Recurrent(nn.Module):
    """An LSTM and a GRU, and the mean squared error of what they make."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(WIDTH, WIDTH, 2, batch_first=True), nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: Tensor, wanted: Tensor) -> Tensor:
        made, _ = self.gru(self.lstm(x)[0])
        return nn.functional.mse_loss(made, wanted)


class Twice(nn.Module):
    """One batch norm that is run twice, a buffer that is computed, one that holds an input, and views of a part."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)
        self.seen: Tensor
        self.register_buffer("latest", torch.zeros(BATCH, WIDTH))
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("scale", torch.full((), 0.5))

    def forward(self, x: Tensor) -> dict[str, Tensor | list[Tensor]]:
        y = self.norm(self.linear(self.norm(x)))
        self.latest = x
        self.seen = self.seen + y.detach().abs().mean()
        parts = (y * self.scale).tanh().split(WIDTH // 4, 1)
        return {"parts": [parts[2].transpose(0, 1), parts[0]], "both": parts[0] @ parts[1].t(), "which": y.argmax(1)}


class Views(nn.Module):
    """Views of weights, inputs and outputs, which several ops read; parts, an expanded output."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, WIDTH, WIDTH) / WIDTH**0.5)

    def forward(self, x: Tensor) -> Tensor:
        turned = x.t()
        first = self.weight[0] @ turned
        second = self.weight[1] @ first.view(WIDTH, BATCH) + turned
        halves = (second * 2).chunk(2, 1)
        best, _ = (halves[0] @ halves[1].transpose(0, 1)).topk(3, 0)
        wide = best.sum(0).expand(5, WIDTH)
        result: Tensor = wide[1:4] * self.weight[2, :, None, 0].t()
        return result.tanh()


class Wholes(nn.Module):
    """Operations that compilers take apart, and PyTorch does not."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.slope = nn.Linear(WIDTH, WIDTH), nn.RMSNorm(WIDTH), nn.PReLU(WIDTH)

    def forward(self, x: Tensor, wanted: Tensor) -> Tensor:
        y = nn.functional.mish(self.slope(self.norm(nn.functional.hardswish(self.linear(x)))))
        y = nn.functional.pad(y, (1, 1), "reflect").roll(2, 1)[:, 2:]
        return nn.functional.smooth_l1_loss(torch.addcmul(x, y, y), wanted) + y.logsumexp(1).mean()


def _floats(*shape: int) -> Tensor:
    return torch.randn(*shape)


def _of(name: str, around: Callable[[nn.Module], nn.Module] = Squares) -> Callable[[], Example]:
    def make() -> Example:
        model, inputs = MODELS[name]()
        model.train(name != "bert")  # which drops at random
        return Example(around(model), (), inputs(BATCH, torch.Generator().manual_seed(1)), name, BATCH)

    return make


def _mlp() -> Example:
    return Example(MODELS["mlp"]()[0], (_floats(BATCH, WIDTH),), {}, "mlp", BATCH)


def _gpt() -> Example:
    words = torch.randint(0, WORDS, (2, BATCH, 8))
    return Example(NextWords(MODELS["gpt"]()[0]), (words[0],), {"wanted": words[1]}, "gpt", BATCH)


def _recurrent() -> Example:
    return Example(Recurrent(), (_floats(BATCH, 3, WIDTH), _floats(BATCH, 3, WIDTH)), {}, "recurrent", BATCH)


def _twice() -> Example:
    return Example(Twice(), (_floats(BATCH, WIDTH),), {}, "twice", BATCH)


def _views() -> Example:
    return Example(Views(), (_floats(BATCH, WIDTH),), {}, "views", BATCH)


def _wholes() -> Example:
    return Example(Wholes(), (_floats(BATCH, WIDTH), _floats(BATCH, WIDTH)), {}, "wholes", BATCH)


STOPPED = {
    name: STOPS[name]
    for name in (
        "detach, with another reader", "no_grad", "inference_mode", "gan", "straight-through", "vq-vae", "first frozen",
        "adapter", "weight.detach", "frozen for one use",
    )
} | {"checkpoint": CHECKPOINTS["not reentrant"], "asked: an input": ASKED["an input"]}  # fmt: skip
CALLED = {f"own: {name}": OWN[name] for name in ("reversal", "a product", "one operation", "the input", "a view")}
"""Models that call custom functions of at most one operation, which may be any part by itself."""


def stopped(name: str) -> Example:
    """A model that stops gradients, or calls custom functions, with data."""
    model, inputs = (STOPPED | CALLED | {f"own: {each}": make for each, make in OWN.items()})[name]()
    return with_data(Example(model, inputs, {}, name, len(inputs[0])), seed=3)


EXAMPLES: dict[str, Callable[[], Example]] = {
    "mlp": _mlp, "gpt": _gpt, "conv": _of("conv"), "bert": _of("bert"), "experts": _of("experts"),
    "recurrent": _recurrent, "twice": _twice, "views": _views, "wholes": _wholes,
    **{name: partial(stopped, name) for name in STOPPED | CALLED},
}  # fmt: skip


def example_of(name: str) -> Example:
    """Always with the same weights and inputs."""
    torch.manual_seed(3)
    return EXAMPLES[name]()


@cache
def program_of(name: str) -> CapturedProgram:
    """Captured once in a process."""
    return CapturedProgram.of(example_of(name))


def batch_of(example: Example, step: int) -> list[Tensor]:
    """The inputs of a step, by leaf; no one needs to know other things that are given."""
    random = torch.Generator().manual_seed(step)
    leaves = tree_leaves((example.args, example.kwargs))
    return [
        torch.randn(leaf.shape, generator=random) if leaf.is_floating_point() else leaf.flip(0) if step % 2 else leaf
        for leaf in leaves
    ]


def called(example: Example, module: nn.Module, leaves: list[Tensor]) -> list[Tensor]:
    """The tensors that a module returns for such inputs."""
    args, kwargs = tree_unflatten(leaves, tree_structure((example.args, example.kwargs)))
    return [leaf for leaf in tree_leaves(module(*args, **kwargs)) if isinstance(leaf, Tensor)]
