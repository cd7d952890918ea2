"""Small models of all kinds, each with example inputs, that are run by plans."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from envs.placed_models.call_placement import on_calls
from envs.placed_models.parallel import run_by_plan
from envs.plans.plan import Plan
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.files.load import load_cluster
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from graphs.runtime import IDEAL, Runtime, runtime_of

WORDS, LENGTH, WIDTH, BATCH = 40, 8, 16, 4
Made = tuple[nn.Module, Callable[[int, torch.Generator], dict[str, Any]]]  # and what makes the inputs of a batch


class Block(nn.Module):
    """A block of a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.second_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 6, WIDTH // 2).transpose(1, 2).chunk(3, 1)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        y: Tensor = x + self.down(F.gelu(self.up(self.second_norm(x))))
        return y


class GPT(nn.Module):
    """A decoder whose embedding is its last layer, too."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


class Conv(nn.Module):
    """Two towers with batch norm, one of which changes tensors in place."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.right = nn.Sequential(nn.Conv2d(3, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.last = nn.Conv2d(16, 8, 3, stride=2, padding=1, groups=2, bias=False)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, 10)

    def forward(self, image: Tensor) -> Tensor:
        both = torch.cat([self.left(image), self.right(image)], 1)
        x = F.max_pool2d(self.norm(self.last(both)).relu_(), 2)
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


class Experts(nn.Module):
    """A mixture of experts, each of which computes all rows; the two best count."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.gate = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)) for _ in range(4)
        )
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.into(x))
        scores = F.softmax(self.gate(x), -1)
        best, which = scores.topk(2, -1)
        share = torch.zeros_like(scores).scatter(-1, which, best / best.sum(-1, keepdim=True))
        mixed = x
        for number, expert in enumerate(self.experts):
            mixed = mixed + share[:, number, None] * expert(x)
        logits: Tensor = self.head(mixed)
        return logits


class Checkpointed(nn.Module):
    """Four regions that are computed again in the backward pass, in both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.regions = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for number, region in enumerate(self.regions):
            x = checkpoint(region, x, use_reentrant=number % 2 == 1) + x
        return x


def _rows(batch: int, random: torch.Generator) -> dict[str, Any]:
    return {"x": torch.randn(batch, WIDTH, generator=random)}


def _words(name: str) -> Callable[[int, torch.Generator], dict[str, Any]]:
    return lambda batch, random: {name: torch.randint(0, WORDS, (batch, LENGTH), generator=random)}


class MLP(nn.Sequential):
    """Layers in a row."""

    def __init__(self) -> None:
        super().__init__(*[layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())])

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return result


def mlp() -> Made:
    return MLP(), _rows


def gpt() -> Made:
    return GPT(), _words("words")


def conv() -> Made:
    return Conv(), lambda batch, random: {"image": torch.randn(batch, 3, 8, 8, generator=random)}


def experts() -> Made:
    return Experts(), _rows


def bert() -> Made:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2, intermediate_size=2 * WIDTH,
        max_position_embeddings=LENGTH,
    )  # fmt: skip

    def inputs(batch: int, random: torch.Generator) -> dict[str, Any]:
        mask = torch.ones(batch, LENGTH, dtype=torch.long)
        mask[:, LENGTH - 2 :] = 0  # as of padded sentences
        return _words("input_ids")(batch, random) | {"attention_mask": mask}

    return transformers.BertModel(config), inputs


MODELS = {make.__name__: make for make in (mlp, gpt, conv, experts, bert)}


# ---- run by plans ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Run:
    """A model, and a copy of it that is run by a random plan."""

    model: nn.Module
    parallel: nn.Module
    inputs: Callable[[int, torch.Generator], dict[str, Any]]
    problem: Problem  # whose plan has calls on one device each
    plan: Plan

    def batch(self, size: int = BATCH, seed: int = 1) -> dict[str, Any]:
        on = next(self.model.parameters()).device
        drawn = self.inputs(size, torch.Generator().manual_seed(seed))
        return {name: tensor.to(on) for name, tensor in drawn.items()}


@cache
def captured(name: str) -> OpGraph:
    """The training step of a model."""
    model, inputs = MODELS[name]()
    return training_step(capture(model, (), inputs(BATCH, torch.Generator().manual_seed(1)), name=name))


WAITING = runtime_of("parallelize:host=none")


def random_run(
    name: str, seed: int, *, devices: int = 3, on: str = "cpu", defer: bool = False, runtime: Runtime = IDEAL
) -> Run:
    """A model run by a random plan, on one device that stands for several."""
    torch.manual_seed(seed)
    with torch.device(on):
        model, inputs = MODELS[name]()
    graph = captured(name)
    problem = Problem(graph, load_cluster(f"p100x{devices}"), runtime=replace(runtime, defer=defer))
    random = Plan.of_units(problem, np.random.default_rng(seed).integers(0, devices, graph.num_units))
    problem, plan, _ = on_calls(problem, random, model)
    parallel = run_by_plan(deepcopy(model), problem, plan, [on] * devices)
    return Run(model, parallel, inputs, problem, plan)


def loss_of(returned: Any) -> Tensor:
    """A loss of all outputs."""
    outputs = [returned] if isinstance(returned, Tensor) else list(returned.values())
    return torch.stack([(output.float() ** 2).mean() for output in outputs]).sum()


def by_modules(
    model: nn.Module,
    graph: OpGraph,
    device_of: Callable[[str], int],
    *,
    whole_modules: bool = True,
    runtime: str = "ideal",
) -> nn.Module:
    """A copy of a model whose ops are on the device of their module's path."""
    devices = np.array([0 if call is None else device_of(call.module) for call in graph.calls] or [0])
    mirrored = np.flatnonzero(graph.mirror >= 0)
    devices[mirrored] = devices[graph.mirror[mirrored]]
    problem = Problem(graph, load_cluster("p100x3"), runtime=runtime_of(runtime))
    problem, plan, _ = on_calls(problem, Plan.of(devices.tolist()), model)
    return run_by_plan(deepcopy(model), problem, plan, ["cpu"] * 3, whole_modules=whole_modules)


def step(model: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """What the model returns, and its gradients."""
    model.zero_grad()
    torch.manual_seed(0)
    returned = model(*args, **kwargs)
    loss_of(returned).backward()  # type: ignore[no-untyped-call]
    return returned, [weight.grad for weight in model.parameters()], model.state_dict()


def assert_same_steps(models: tuple[nn.Module, nn.Module], rows: int = BATCH) -> None:
    x = torch.arange(4.0 * rows).reshape(rows, 4)
    expected, found = (step(model, x) for model in models)
    torch.testing.assert_close(found, expected)
