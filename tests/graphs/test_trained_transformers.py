"""Fine-tuning models of the package transformers: what is trained, and what it costs, are as in a real step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from graphs.capture.forward import capture
from graphs.capture.training_step import training_step

transformers = pytest.importorskip("transformers")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

SIZES = {
    "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "attn_implementation": "eager",
}  # fmt: skip


class Adapter(nn.Module):
    """A frozen layer, and a product of two narrow matrices that is added to it (LoRA, Hu et al. 2021)."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x) + self.up(self.down(x))
        return y


def whole() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, num_key_value_heads=2, use_cache=False))


def adapters() -> Any:
    model = whole().requires_grad_(requires_grad=False)
    for layer in model.model.layers:
        layer.self_attn.q_proj, layer.self_attn.v_proj = map(Adapter, (layer.self_attn.q_proj, layer.self_attn.v_proj))
    return model


def head() -> Any:
    model = whole().requires_grad_(requires_grad=False)
    model.lm_head.requires_grad_(requires_grad=True)
    return model


def checkpoints(make: Callable[[], Any], *, reentrant: bool) -> Callable[[], Any]:
    def made() -> Any:
        model = make()
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        return model

    return made


MODELS: dict[str, Callable[[], Any]] = {
    "all trained": whole,
    "adapters": adapters,
    "the head alone": head,
    "checkpoints": checkpoints(whole, reentrant=False),
    "reentrant checkpoints": checkpoints(whole, reentrant=True),
    "adapters and checkpoints": checkpoints(adapters, reentrant=False),
    "adapters and reentrant checkpoints": checkpoints(adapters, reentrant=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_fine_tuned_model_is_planned_as_it_is_trained(name: str) -> None:
    tokens = torch.zeros(2, 8, dtype=torch.long)
    inputs = {"input_ids": tokens, "labels": tokens}
    step = training_step(capture(MODELS[name]().train(), (), inputs, name="test"))
    real = MODELS[name]().train()
    with FlopCounterMode(display=False) as counter:
        real(**inputs).loss.backward()
    frozen = set(np.flatnonzero(step.frozen).tolist())
    trained = {name for weight, name in enumerate(step.weight_names) if weight not in frozen}
    assert trained == {name for name, weight in real.named_parameters() if weight.grad is not None}
    assert step.flops.sum() == counter.get_total_flops()
