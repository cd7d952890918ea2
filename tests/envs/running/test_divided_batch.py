"""Batches are divided by their samples, and only where the model's inputs can be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from envs.running.captured_program import CapturedProgram
from envs.running.divided_batch import check_divisible, divided, parts_of_replica
from graphs.capture.examples import given_example
from graphs.foundation.errors import InputError


def test_a_batch_is_divided_by_its_samples_alone() -> None:
    batch: Any = {0: torch.arange(6).reshape(6, 1), 1: torch.ones(2), 2: torch.tensor(3.0), 3: torch.ones(12, 2)}
    parts = divided(batch, 3, 6)
    assert [part[0].flatten().tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]
    assert all(part[which] is batch[which] for which in (1, 2, 3) for part in parts)  # a longer table is no sample's
    assert divided(batch, 1, 6) == [batch]
    with pytest.raises(InputError, match="6 samples cannot be divided into 4 equal parts"):
        divided(batch, 4, 6)
    halves = parts_of_replica(batch, 6, (1, 1, 1), 1, 2)
    assert [part[0].flatten().tolist() for part in halves] == [[2], [3]]
    of_unequal = [parts_of_replica(batch, 6, (2, 1), replica, 2) for replica in range(2)]
    assert [[part[0].flatten().tolist() for part in parts] for parts in of_unequal] == [[[0, 1], [2, 3]], [[4], [5]]]
    with pytest.raises(InputError, match="6 samples cannot be divided into 4 equal parts"):
        parts_of_replica(batch, 6, (3, 1), 0, 1)


class Bags(nn.Module):
    """The sums of rows of a table, of as many as each sample has."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(10, 4, mode="sum"), nn.Linear(4, 3)

    def forward(self, rows: Tensor, offsets: Tensor | None = None) -> Tensor:
        return F.cross_entropy(
            self.head(self.bag(rows, offsets)), torch.zeros(len(self.bag(rows, offsets)), dtype=torch.long)
        )


def test_bags_with_offsets_are_not_divided() -> None:
    rows = torch.arange(8)
    with_offsets = CapturedProgram.of(given_example((Bags(), (rows, 2 * torch.arange(4))), "bags", name="bags"))
    with pytest.raises(InputError, match=r"bags: the offsets of the EmbeddingBag 'bag' are an input, and number the"):
        check_divisible(with_offsets)
    check_divisible(CapturedProgram.of(given_example((Bags(), (rows.view(4, 2),)), "bags", name="bags")))
