"""A decoder with a cache of keys and values generates what it generates without a plan."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from envs.placed_models.call_placement import on_calls
from envs.placed_models.parallel import run_by_plan
from envs.plans.plan import Plan
from graphs.capture.forward import capture
from graphs.files.load import load_cluster
from graphs.problem import Problem
from tests.envs.placed_models.models import WIDTH, WORDS

LAYERS, HEADS, LONGEST = 2, 2, 12


class GrowingCache:
    """Keys and values so far, which `cat` puts together, as of transformers' `DynamicCache`."""

    def __init__(self) -> None:
        self.length, self._of = 0, dict[int, Tensor]()

    def put(self, layer: int, new: Tensor) -> Tensor:
        """(2, batch, heads, length so far, size) keys and values, with the new ones."""
        self._of[layer] = torch.cat([self._of[layer], new], 3) if layer in self._of else new
        return self._of[layer]


class FixedCache(GrowingCache):
    """Tensors of full length that are changed in place, as of transformers' `StaticCache`."""

    def put(self, layer: int, new: Tensor) -> Tensor:
        """(2, batch, heads, length so far, size) keys and values, with the new ones."""
        if layer not in self._of:
            self._of[layer] = new.new_zeros((*new.shape[:3], LONGEST, new.shape[4]))
        end = self.length + new.shape[3]
        self._of[layer][:, :, :, self.length : end] = new
        return self._of[layer][:, :, :, :end]


class CachedDecoder(nn.Module):
    """Attends to what it has seen in earlier calls, too."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(LAYERS))
        self.out = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor, cache: GrowingCache | None = None) -> Tensor:
        batch, length = words.shape
        seen = 0 if cache is None else cache.length
        x = self.words(words) + self.places(torch.arange(seen, seen + length, device=words.device))
        for layer, (qkv, out) in enumerate(zip(self.qkv, self.out, strict=True)):
            q, *kv = qkv(x).view(batch, length, 3 * HEADS, WIDTH // HEADS).transpose(1, 2).chunk(3, 1)
            k, v = kv if cache is None else cache.put(layer, torch.stack(kv))
            x = x + out(F.scaled_dot_product_attention(q, k, v, is_causal=not seen).transpose(1, 2).flatten(2))
        if cache is not None:
            cache.length += length
        logits: Tensor = self.head(x[:, -1])
        return logits


def generated(model: nn.Module, prompt: Tensor, cache: GrowingCache) -> tuple[Tensor, Tensor]:
    """Words after a prompt, each the likeliest one, and the logits that say so."""
    words, said = prompt, list[Tensor]()
    while words.shape[1] < LONGEST:
        said.append(model(words[:, cache.length :], cache))
        words = torch.cat([words, said[-1].argmax(1, keepdim=True)], 1)
    return words, torch.stack(said)


@pytest.mark.filterwarnings("ignore::envs.placed_models.parallel.UnknownCallWarning")  # of the cache
@pytest.mark.parametrize("make_cache", [GrowingCache, FixedCache])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_generates_what_the_model_itself_does(
    mode: Callable[[], torch.no_grad], make_cache: Callable[[], GrowingCache]
) -> None:
    torch.manual_seed(0)
    model = CachedDecoder().eval()
    prompts = torch.randint(0, WORDS, (3, 2, 5))
    problem = Problem(capture(model, (prompts[0],), name="decoder"), load_cluster("p100x3"))
    for seed in range(4):
        drawn = np.random.default_rng(seed).integers(0, 3, problem.graph.num_units)
        found, plan, _ = on_calls(problem, Plan.of_units(problem, drawn), model)
        placed = run_by_plan(deepcopy(model), found, plan, ["cpu"] * 3)
        for prompt in prompts:
            with mode():
                uncached = model(prompt)
                expected = generated(model, prompt, make_cache())
                torch.testing.assert_close(generated(placed, prompt, make_cache()), expected)
            torch.testing.assert_close(expected[1][0], uncached)
