"""Steps of the zoo that train models of Hugging Face's transformers, which take seconds to import."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.graphs.zoo_networks import Made, Step, classes, frozen

WIDTH = 32


class LoRA(nn.Module):
    """A frozen linear layer, and two of low rank next to it."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = frozen(base)
        self.dropout = nn.Dropout(0.1)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        adapted: Tensor = self.base(x) + 2.0 * self.up(self.down(self.dropout(x)))
        return adapted


def lora_llama() -> Made:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(vocab_size=100, hidden_size=WIDTH, intermediate_size=64, **sizes)
    model = frozen(LlamaForCausalLM(config))
    for layer in model.model.layers:  # type: ignore[union-attr]
        layer.self_attn.q_proj = LoRA(layer.self_attn.q_proj)
        layer.self_attn.v_proj = LoRA(layer.self_attn.v_proj)
    return Step(lambda m, words: m.model(words, labels=words).loss, model=model), (torch.randint(100, (4, 32)),)


def frozen_vit() -> Made:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=WIDTH, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8
    )
    parts = {"backbone": frozen(ViTModel(config, add_pooling_layer=False)).eval(), "head": nn.Linear(WIDTH, 10)}

    def loss(m: Any, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(m.head(m.backbone(images).last_hidden_state[:, 0]), labels)

    return Step(loss, **parts), (torch.randn(8, 3, 32, 32), classes(10, 8))


def bert_last_layer() -> Made:
    from transformers import BertConfig, BertForSequenceClassification

    sizes: dict[str, Any] = {"num_hidden_layers": 3, "num_attention_heads": 2, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(vocab_size=100, hidden_size=WIDTH, intermediate_size=64, **sizes)
    model = BertForSequenceClassification(config)
    frozen(model.bert.embeddings)
    for layer in model.bert.encoder.layer[:-1]:
        frozen(layer)
    words, labels = torch.randint(100, (8, 16)), classes(2, 8)
    return Step(lambda m, w, y: m.model(w, labels=y).loss, model=model), (words, labels)


def hugging_face_checkpoints() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=100,
            n_positions=64,
            n_embd=WIDTH,
            n_layer=3,
            n_head=2,
            attn_pdrop=0.0,
            bos_token_id=1,
            eos_token_id=1,
        )
    )
    model.gradient_checkpointing_enable()  # type: ignore[no-untyped-call]
    model.train()
    words = torch.randint(100, (4, 32))
    return Step(lambda m, w: m.model(w, labels=w, use_cache=False).loss, model=model), (words,)
