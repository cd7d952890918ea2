"""The model trained without a plan, and how far results are from that."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from envs.running.model_data import batches, seeded_example
from envs.running.reference import Results, comparable, differences, unplaced
from envs.running.training_job import Training
from graphs.foundation.errors import InputError

MODEL = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self, norm, p):
        super().__init__()
        self.first, self.head = nn.Linear(6, 8), nn.Linear(8, 4)
        self.norm = nn.BatchNorm1d(8) if norm else nn.Identity()
        self.p = p
    def forward(self, x, y):
        x = F.dropout(self.norm(self.first(x)), self.p) if self.p else self.norm(self.first(x))
        return F.cross_entropy(self.head(x.tanh()), y)

def plain():
    return Net(False, 0.0), (torch.zeros(8, 6), torch.arange(8) % 4)
def normed():
    return Net(True, 0.0), (torch.zeros(8, 6), torch.arange(8) % 4)
def dropped():
    return Net(False, 0.5), (torch.zeros(8, 6), torch.arange(8) % 4)
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(MODEL)
    return str(path)


def test_it_is_the_users_loop(file: str) -> None:
    found = unplaced(Training(f"{file}:plain", 4, seed=3))
    example = seeded_example(f"{file}:plain", 3)
    optimizer = torch.optim.Adam(example.module.parameters(), 1e-3, fused=True)
    data, losses = batches(example, seed=3), []
    for _ in range(4):
        optimizer.zero_grad()
        loss = example.module(*next(data).values())
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert found.losses == tuple(losses)
    assert all(torch.equal(found.weights[name], weight) for name, weight in example.module.named_parameters())
    assert len(set(losses)) == 4


def test_parts_of_a_batch_add_up_where_samples_are_apart(file: str) -> None:
    training = Training(f"{file}:plain", 3)
    whole = unplaced(training)
    for replicas, micro_batches in ((2, 1), (1, 4), (2, 2)):
        found = differences([unplaced(training, replicas=replicas, micro_batches=micro_batches)], whole)
        assert all(each.relative < 1e-5 for each in found)


def test_batch_norm_sees_the_parts_and_the_first_replicas_buffers_stay(file: str) -> None:
    training = Training(f"{file}:normed", 1)
    whole, halves, apart = (
        unplaced(training, replicas=replicas, micro_batches=micro_batches)
        for replicas, micro_batches in ((1, 1), (1, 2), (2, 1))
    )
    assert halves.losses == pytest.approx(apart.losses)
    assert halves.losses != pytest.approx(whole.losses)
    assert [int(each.buffers["norm.num_batches_tracked"]) for each in (whole, halves, apart)] == [1, 2, 1]
    example = seeded_example(f"{file}:normed", 0)
    first = nn.BatchNorm1d(8)
    first(example.module.first(next(batches(example))[0][:4]))  # type: ignore[operator]  # a layer
    assert torch.allclose(apart.buffers["norm.running_mean"], first.running_mean)  # type: ignore[arg-type]  # is there


def test_random_numbers_are_refused(file: str) -> None:
    with pytest.raises(InputError, match=r"draws random numbers as it runs.*dropout"):
        unplaced(Training(f"{file}:dropped", 1))


def some_results() -> Results:
    return Results(
        (1.0, 0.5), {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([0.5, -4.0])}, {"b": torch.tensor(2)}
    )


def test_the_largest_difference_names_its_tensor() -> None:
    expected = some_results()
    first = replace(some_results(), losses=(0.25, 0.5), weights={"w": torch.tensor([1.0, 2.5])}, buffers={})
    second = replace(some_results(), losses=(0.75, 0.25), weights={}, gradients={"w": torch.tensor([0.5, -3.0])})
    losses, gradients, weights, buffers = differences([first, second], expected)
    assert (losses.largest, losses.relative, losses.name) == (0.25, 0.5, "step 1")
    assert (gradients.largest, gradients.relative, gradients.name) == (1.0, 0.25, "w")
    assert (weights.largest, weights.relative, weights.name) == (0.5, 0.25, "w")
    assert (buffers.largest, buffers.relative, buffers.name) == (0.0, 0.0, "")
    assert [each.is_small for each in (losses, gradients, weights, buffers)] == [False, False, False, True]


def test_what_is_small_beside_all_others_may_be_rounding() -> None:
    gradients = {"bias": torch.tensor([1e-8]), "weight": torch.tensor([1.0])}
    expected = replace(some_results(), gradients=gradients)
    found = replace(expected, gradients=gradients | {"bias": torch.tensor([-1e-8])})
    assert differences([found], expected)[1].relative == pytest.approx(2e-6)


def test_an_epsilon_keeps_rounding_from_becoming_steps(file: str) -> None:
    training = Training(f"{file}:normed", 5)
    found = comparable(training)
    gradients = unplaced(replace(training, steps=1)).gradients
    assert found.epsilon == pytest.approx(1e-3 * max(float(each.abs().max()) for each in gradients.values()))
    assert replace(found, epsilon=training.epsilon) == training
    first, other = (unplaced(each, micro_batches=1) for each in (found, replace(found, steps=4)))
    assert first.losses[:4] == other.losses


def test_what_is_missing_or_no_number_is_infinitely_far() -> None:
    expected = some_results()
    without = differences([replace(some_results(), gradients={})], expected)[1]
    assert (without.largest, without.name, without.is_small) == (math.inf, "w", False)
    odd = differences([replace(some_results(), losses=(1.0, math.nan))], expected)[0]
    assert (odd.largest, odd.is_small) == (math.inf, False)
