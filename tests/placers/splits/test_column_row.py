"""Which products Megatron-LM's rule divides: of layers with dropout, with products that come together, and heads."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.foundation import by_name
from graphs.op_graph import Phase
from placers.splits.column_row import columns_and_rows

WIDE = "transformer:layers=4,width=1280,heads=20,sequence=1024,batch=4,vocabulary=50257"


def divided(spec: str, shards: int = 4) -> float:
    """The share of a step's FLOPs that is divided."""
    graph = training_step(capture(*by_name.build("graphs.families", spec), name=spec))
    split = columns_and_rows(graph, shards)
    share: float = graph.flops[[bool(index) for index in split]].sum() / graph.flops.sum()
    return share


@pytest.mark.parametrize("knobs", ["", ",attention=eager,activation=gelu_new", ",attention=megatron,separate=true"])
def test_dropout_leaves_nothing_whole_that_is_divided_without(knobs: str) -> None:
    assert divided(f"{WIDE}{knobs},dropout=0.1") == divided(f"{WIDE}{knobs}")


# ---- heads -----------------------------------------------------------------------------------------------------------

WORDS, WIDTH, LENGTH = 12, 8, 4


class Model(nn.Module):
    """An embedding, a perceptron of columns and rows, and a head, of which some things may be otherwise."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 10 if how == "other words" else WORDS)
        if how.startswith("tied"):
            self.head.weight = self.words.weight

    def forward(self, words: Tensor, targets: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        x = self.words(words) + self.places.weight
        scores: Tensor = self.head(x + (x if self.how == "no layers" else self.down(torch.relu(self.up(x)))))
        if self.how == "softmax":
            return (scores.softmax(-1) * targets.unsqueeze(-1)).sum()
        loss = F.cross_entropy(scores.flatten(0, 1), targets.flatten())
        if self.how == "its scores are looked at":
            return loss, scores.argmax(-1)
        return loss + torch.linalg.vector_norm(self.words.weight.sum(1)) if self.how == "tied, and its norm" else loss


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ("untied", {"words", "head", "_log_softmax", "nll_loss_forward"}),  # and the places are no words
        ("tied", {"words", "head", "_log_softmax", "nll_loss_forward"}),
        ("other words", {"head", "_log_softmax", "nll_loss_forward"}),  # the head's are not those of the embedding
        ("no layers", set()),  # there is no tensor parallelism that a head could be part of
        ("its scores are looked at", set()),  # all of them by each device
        ("softmax", set()),  # whose parts others than a loss read
        ("tied, and its norm", set()),  # of whole rows, by each device
    ],
)
def test_heads_are_divided_with_their_embedding_where_a_loss_alone_follows(how: str, found: set[str]) -> None:
    inputs = torch.zeros(4, LENGTH, dtype=torch.int64), torch.zeros(4, LENGTH, dtype=torch.int64)
    graph = training_step(capture(Model(how), inputs, name="model"))
    split = columns_and_rows(graph, 3)
    forward = [op for op in range(len(graph)) if graph.phase[op] == Phase.FORWARD and split[op]]
    names = {graph.names[op].partition("/")[0] for op in forward}
    assert names - {"up", "relu", "down"} == found
    assert ("up" in names) == (how != "no layers")


# ---- attention with a cache ------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Four heads; keys and values may be added to a cache that begins empty, as that of Hugging Face's models does."""

    def __init__(self, *, caches: bool) -> None:
        super().__init__()
        self.caches = caches
        self.embed, self.out = nn.Linear(16, 16), nn.Linear(16, 16, bias=False)
        self.projections = nn.ModuleList(nn.Linear(16, 16, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        query, key, value = (each(x).unflatten(-1, (4, 4)).transpose(1, 2) for each in self.projections)
        if self.caches:
            key, value = (torch.cat([torch.tensor([]), each], dim=-2) for each in (key, value))
        made: Tensor = self.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(-2))
        return x + made


def test_attention_with_a_cache_that_begins_empty_is_divided_as_without() -> None:
    def split(*, caches: bool) -> dict[str, str]:
        graph = training_step(capture(Attention(caches=caches), (torch.zeros(2, 6, 16),), name="attention"))
        return dict(zip(graph.names, columns_and_rows(graph, 4), strict=True))

    cached, expected = split(caches=True), split(caches=False)
    added = cached.keys() - expected.keys()
    assert added == {"cat", "cat_1", "cat.grad", "cat_1.grad"}
    assert all(cached[name] for name in added)
    assert {name: index for name, index in cached.items() if name not in added} == expected
    assert sum(map(bool, expected.values())) > len(expected) / 2
