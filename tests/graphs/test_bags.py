"""How many samples there are where an EmbeddingBag adds up rows bag by bag."""

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphs.capture.examples import given_example
from graphs.files.load import load_graph
from graphs.foundation.errors import InputError
from graphs.transforms.batch import scaled


class Bags(nn.Module):
    """The sums of rows of tables, next to numbers, if there are any."""

    def __init__(self, *, last: bool = False) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(16, 4, mode="sum", include_last_offset=last) for _ in range(2))
        self.register_buffer("starts", 2 * torch.arange(4))

    def forward(self, rows: Tensor, offsets: Tensor | None = None, dense: Tensor | None = None) -> Any:
        found = [table(rows, self.starts if offsets is None else offsets) for table in self.tables]
        return sum(found, torch.zeros(()) if dense is None else dense)


ROWS = torch.arange(20) % 16
BAGS = 2 * torch.arange(8)


@pytest.mark.parametrize(
    ("model", "inputs", "samples"),
    [
        (Bags(), (ROWS, BAGS), 8),
        (Bags(), (ROWS, BAGS, torch.zeros(8, 4)), 8),
        (Bags(last=True), (ROWS, torch.cat([BAGS, torch.tensor([20])]), torch.zeros(8, 4)), 8),
        (Bags(), (ROWS, None, torch.zeros(4, 4)), 0),  # the module itself says where bags begin
        (nn.EmbeddingBag(16, 4), (ROWS.view(10, 2),), 10),
    ],
)
def test_there_are_as_many_samples_as_bags(model: nn.Module, inputs: tuple[Any, ...], samples: int) -> None:
    assert load_graph((model, inputs)).samples == samples


def test_what_grows_with_bags_is_said_by_the_rule(caplog: pytest.LogCaptureFixture) -> None:
    """For inputs are not cut where rows and bags have other lengths."""
    with caplog.at_level(logging.WARNING, "placelab"):
        graph = load_graph((Bags(), (ROWS, BAGS)), with_law=True)
    assert "how its costs grow with the batch is assumed" in caplog.text
    assert "its inputs do not say how many samples they are" in caplog.text
    assert graph.samples == 8
    half = scaled(graph, 4, 8)
    [op] = [op for op, name in enumerate(graph.names) if name == "tables.0/_embedding_bag"]
    assert half.output_bytes[op] == graph.output_bytes[op] / 2
    with pytest.raises(InputError, match="let the function that makes the model take `batch`"):
        given_example((Bags(), (ROWS, BAGS)), "bags", name="bags").resized(4)
