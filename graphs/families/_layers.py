"""Layers of Transformers, with attention computed in one of four ways.

    scaled      the queries are scaled, then the scores are masked: product, sum, softmax, product
    eager       as transformers does by that name: product, division, `where` (GPT-2) or sum (others), softmax, product
    megatron    as Megatron-LM without flash attention, where one kernel scales scores, masks them and takes the softmax
                (`ScaledUpperTriangMaskedSoftmax`)
    sdpa        one operation, which writes no scores: flash attention (Dao et al. 2022)

PyTorch has no operation that masks and takes the softmax. For `megatron` the product scales and masks, which passes
over the scores as often.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import check_multiple
from graphs.foundation.errors import InputError, unknown

SCALED, EAGER, MEGATRON, SDPA = WAYS = ("scaled", "eager", "megatron", "sdpa")


class NewGelu(nn.Module):
    """GELU by its approximation with tanh, in eight operations, as GPT-2's code and transformers' `gelu_new`."""

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"gelu": nn.GELU, "gelu_new": NewGelu, "relu": nn.ReLU}


@dataclass(frozen=True)
class LayerKnobs:
    """What a layer is made of. Raises InputError, which names the family, for what cannot be."""

    family: str
    width: int
    heads: int
    inner: int = 0
    """Features between the two products of the feed-forward net; 0 for four times the width."""
    kv_heads: int = 0
    """Heads of keys and values, each of which as many heads of queries share (Ainslie et al. 2023); 0 for all."""
    dropout: float = 0.0
    """The share of what is set to zero: of the embeddings, of the attention's weights, and of both branches."""
    activation: str = "gelu"
    """`gelu`, `gelu_new` (in eight operations), or `relu`."""
    attention: str = SCALED
    """How attention is computed: `scaled`, `eager`, `megatron` or `sdpa`."""
    separate: bool = False
    """Whether queries, keys and values are products of their own, as in BERT and OPT, instead of parts of one."""
    causal: bool = True
    attention_dropout: bool = True
    """Whether the attention's weights are among what `dropout` sets to zero; OPT has them as they are."""

    def __post_init__(self) -> None:
        check_multiple(self.family, "width", self.width, of=self.heads, which="heads")
        check_multiple(self.family, "heads", self.heads, of=self.kv_heads or 1, which="kv_heads")
        if not 0.0 <= self.dropout < 1.0:
            raise InputError(f"{self.family}: expected dropout to be at least 0 and less than 1, got {self.dropout}")
        for knob, choices in (("activation", ACTIVATIONS), ("attention", WAYS)):
            if getattr(self, knob) not in choices:
                raise InputError(f"{self.family}: {unknown(knob, getattr(self, knob), choices)}")

    def mask(self, length: int) -> Tensor:
        """(length, length) what attention of so many positions is given: what to add to scores, or which to keep."""
        if not self.causal:
            return torch.zeros(length, length)
        if self.attention == EAGER:
            return torch.ones(length, length, dtype=torch.bool).tril()
        return torch.empty(length, length).fill_(-math.inf).triu(1)

    def dropped(self) -> nn.Module:
        """A dropout, or nothing where none is asked for."""
        return nn.Dropout(self.dropout) if self.dropout else nn.Identity()

    def feed_forward(self) -> nn.Sequential:
        """Two products with an activation between them."""
        inner = self.inner or 4 * self.width
        layers = nn.Linear(self.width, inner), ACTIVATIONS[self.activation](), nn.Linear(inner, self.width)
        return nn.Sequential(*layers, *([nn.Dropout(self.dropout)] if self.dropout else []))


class Attention(nn.Module):
    """Self-attention with several heads."""

    def __init__(self, knobs: LayerKnobs, *, bias: bool = True) -> None:
        super().__init__()
        self.heads, self.kv_heads = knobs.heads, knobs.kv_heads or knobs.heads
        self.sizes = [knobs.width, *[knobs.width // self.heads * self.kv_heads] * 2]
        if knobs.separate:
            self.query, self.key, self.value = (nn.Linear(knobs.width, size, bias=bias) for size in self.sizes)
        else:
            self.query_key_value = nn.Linear(knobs.width, sum(self.sizes), bias=bias)
        self.out = nn.Linear(knobs.width, knobs.width, bias=bias)
        self.weights_dropout = knobs.dropped() if knobs.attention_dropout else nn.Identity()
        self.out_dropout = knobs.dropped()
        self.knobs = knobs

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(batch, sequence, width) from the same, and a mask (sequence, sequence) as `LayerKnobs.mask` makes it."""
        batch, sequence, width = x.shape
        query, key, value = self.parts(x)
        scores = self.scores(query, key, mask)
        mixed = self.mixed(query, key, value, scores)
        projected: Tensor = self.out_dropout(self.out(mixed.transpose(1, 2).reshape(batch, sequence, width)))
        return projected

    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, (batch, heads, sequence, width / heads), and keys and values, of which there may be fewer heads."""
        if self.knobs.separate:
            found: Sequence[Tensor] = self.query(x), self.key(x), self.value(x)
        elif self.kv_heads == self.heads:
            found = self.query_key_value(x).chunk(3, -1)
        else:
            found = self.query_key_value(x).split(self.sizes, -1)
        counts = self.heads, self.kv_heads, self.kv_heads
        pairs = zip(found, counts, strict=True)
        return tuple(part.view(*x.shape[:2], count, -1).transpose(1, 2) for part, count in pairs)

    def scores(self, query: Tensor, key: Tensor, mask: Tensor) -> Tensor | None:
        """(batch, heads, sequence, sequence) scaled and masked; None for `sdpa`."""
        way, scale = self.knobs.attention, math.sqrt(query.shape[-1])
        if way == SDPA:
            return None
        key = self._repeated(key)
        if way == SCALED:
            return query / scale @ key.transpose(2, 3) + mask
        if way == EAGER:
            scores = query @ key.transpose(2, 3) / scale
            return torch.where(mask, scores, -math.inf) if mask.dtype == torch.bool else scores + mask
        products = query.flatten(0, 1), key.flatten(0, 1).transpose(1, 2)
        return torch.baddbmm(mask, *products, alpha=1 / scale).view(*query.shape[:2], *mask.shape)

    def mixed(self, query: Tensor, key: Tensor, value: Tensor, scores: Tensor | None) -> Tensor:
        """(batch, heads, sequence, width / heads): what each position takes of the values."""
        if scores is not None:
            taken: Tensor = self.weights_dropout(scores.softmax(dim=-1)) @ self._repeated(value)
            return taken
        dropout = self.knobs.dropout if self.training and self.knobs.attention_dropout else 0.0
        return F.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, is_causal=self.knobs.causal, enable_gqa=self.kv_heads < self.heads
        )

    def _repeated(self, part: Tensor) -> Tensor:
        """Keys or values for each head of queries."""
        shared = self.heads // self.kv_heads
        return part.repeat_interleave(shared, dim=1) if shared > 1 else part


class TransformerLayer(nn.Module):
    """Attention and feed-forward net, each with a residual connection."""

    def __init__(self, knobs: LayerKnobs) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(knobs.width)
        self.attention = Attention(knobs)
        self.feed_forward_norm = nn.LayerNorm(knobs.width)
        self.feed_forward = knobs.feed_forward()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(batch, sequence, width) from the same."""
        x = x + self.attention(self.attention_norm(x), mask)
        deeper: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return deeper


class PostNormLayer(nn.Module):
    """Attention and feed-forward net, a layer norm after each, as in the first Transformer (Vaswani et al. 2017)."""

    def __init__(self, attention: nn.Module, knobs: LayerKnobs) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = nn.LayerNorm(knobs.width)
        self.feed_forward = knobs.feed_forward()
        self.feed_forward_norm = nn.LayerNorm(knobs.width)

    def forward(self, x: Tensor, *context: Tensor) -> Tensor:
        """(batch, sequence, width) from the same, and whatever else the attention takes."""
        x = self.attention_norm(x + self.attention(x, *context))
        deeper: Tensor = self.feed_forward_norm(x + self.feed_forward(x))
        return deeper
