"""The model trained without a plan, and how far results are from that."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from envs.running.adam import Adam
from envs.running.captured_program import CapturedProgram
from envs.running.model_data import batches, seeded_example
from envs.running.reference import Reference, Results, differences, unplaced
from envs.running.same_draws import SameDraws

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
def sparse():
    return nn.Sequential(nn.Embedding(6, 4, sparse=True), nn.Linear(4, 3)), (torch.tensor([[0, 2], [2, 5]]),)
def bfloat16():
    return Net(False, 0.0).bfloat16(), (torch.zeros(8, 6, dtype=torch.bfloat16), torch.arange(8) % 4)
class Cast(Net):
    def forward(self, x, y):
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x, y)
def autocast():
    return Cast(False, 0.0), (torch.zeros(8, 6), torch.arange(8) % 4)
def dropped():
    return Net(False, 0.5), (torch.zeros(8, 6), torch.arange(8) % 4)
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(MODEL)
    return str(path)


def first_step(model: str, *, seed: int = 0, shares: tuple[int, ...] = (1,), micro_batches: int = 1) -> Reference:
    example = seeded_example(model, seed)
    program = CapturedProgram.of(example)
    return unplaced(
        program, example.module, next(batches(example, seed=seed)), Adam(), shares=shares, micro_batches=micro_batches
    )


def test_it_is_the_users_step(file: str) -> None:
    found = first_step(f"{file}:plain", seed=3)
    example = seeded_example(f"{file}:plain", 3)
    loss = example.module(*next(batches(example, seed=3)).values())
    loss.backward()
    assert found.results.loss == loss.item()
    gradients = {name: each.grad for name, each in example.module.named_parameters() if each.grad is not None}
    torch.testing.assert_close(dict(found.results.gradients), gradients, rtol=0, atol=0)
    assert found.epsilon == pytest.approx(1e-3 * max(float(each.abs().max()) for each in gradients.values()))
    torch.optim.Adam(example.module.parameters(), 1e-3, eps=found.epsilon, fused=True).step()
    weights = {name: weight.detach() for name, weight in example.module.named_parameters()}
    torch.testing.assert_close({k: v.detach() for k, v in found.results.weights.items()}, weights, rtol=0, atol=0)
    assert not found.drew


def test_parts_of_a_batch_add_up_where_samples_are_apart(file: str) -> None:
    whole = first_step(f"{file}:plain").results
    for shares, micro_batches in (((1, 1), 1), ((1,), 4), ((1, 1), 2), ((3, 1), 1)):
        found = first_step(f"{file}:plain", shares=shares, micro_batches=micro_batches)
        assert all(each.relative < 1e-5 for each in differences([found.results], whole))


@pytest.mark.parametrize("name", ["bfloat16", "autocast"])
def test_rounding_is_that_of_what_is_computed_with(file: str, name: str) -> None:
    """Bfloat16 has eight bits of a number: sums of halves differ by more than float32 would explain."""
    model = f"{file}:{name}"
    whole, halves = first_step(model), first_step(model, micro_batches=2)
    assert whole.rounding == 2**-7
    assert first_step(f"{file}:plain").rounding == 2**-23
    found = differences([halves.results], whole.results, whole.rounding)
    assert max(each.relative for each in found) > 1e-3
    assert all(each.is_small and each.tolerance == 1 / 16 for each in found)
    less = {key: 0.9 * gradient for key, gradient in halves.results.gradients.items()}
    wrong = differences([replace(halves.results, gradients=less)], whole.results, whole.rounding)
    assert not wrong[1].is_small


def test_batch_norm_sees_the_parts_and_the_first_replicas_buffers_stay(file: str) -> None:
    whole, halves, apart = (
        first_step(f"{file}:normed", shares=shares, micro_batches=micro_batches).results
        for shares, micro_batches in (((1,), 1), ((1,), 2), ((1, 1), 1))
    )
    assert halves.loss == pytest.approx(apart.loss)
    assert halves.loss != pytest.approx(whole.loss)
    assert [int(each.buffers["norm.num_batches_tracked"]) for each in (whole, halves, apart)] == [1, 2, 1]
    example = seeded_example(f"{file}:normed", 0)
    first = nn.BatchNorm1d(8)
    first(example.module.first(next(batches(example))[0][:4]))  # type: ignore[operator]  # a layer
    assert torch.allclose(apart.buffers["norm.running_mean"], first.running_mean)  # type: ignore[arg-type]  # is there


def test_each_operation_draws_the_same_and_generators_stay_as_they_are(file: str) -> None:
    state = torch.get_rng_state()
    first, second = first_step(f"{file}:dropped"), first_step(f"{file}:dropped")
    assert first.drew
    assert first.results.loss == second.results.loss
    assert first.results.loss != first_step(f"{file}:plain").results.loss
    torch.manual_seed(7)
    state = torch.get_rng_state()
    with SameDraws() as draws:
        one, other, third = torch.rand(3), torch.rand(3), torch.randn(2, 4).sum()
    assert draws.drew
    assert torch.equal(one, other)
    assert third != 0
    assert torch.equal(torch.get_rng_state(), state)


def test_attention_draws_for_dropout_alone() -> None:
    query = torch.rand(2, 2, 8, 16)
    with SameDraws() as plain, sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        scaled_dot_product_attention(query, query, query, is_causal=True)
    assert not plain.drew
    with SameDraws() as dropped:
        scaled_dot_product_attention(query, query, query, dropout_p=0.5)
    assert dropped.drew


def test_gpus_compute_with_full_precision_and_in_one_order_while_steps_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = products.fp32_precision, convolutions.fp32_precision
    products.fp32_precision = convolutions.fp32_precision = "tf32"

    def told() -> tuple[str, str, bool]:
        return products.fp32_precision, convolutions.fp32_precision, torch.are_deterministic_algorithms_enabled()

    with SameDraws():
        assert told() == ("ieee", "ieee", True)
    assert told() == ("tf32", "tf32", False)
    products.fp32_precision, convolutions.fp32_precision = before


def test_a_table_whose_gradient_is_sparse_is_stepped(file: str) -> None:
    found = first_step(f"{file}:sparse").results
    table = found.gradients["0.weight"]
    assert table.layout is torch.strided
    assert table[2].abs().max() > 0
    assert not table[3].any()


def some_results() -> Results:
    return Results(1.0, {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([0.5, -4.0])}, {"b": torch.tensor(2)})


def test_the_largest_difference_names_its_tensor() -> None:
    expected = some_results()
    first = replace(some_results(), loss=0.25, weights={"w": torch.tensor([1.0, 2.5])}, buffers={})
    second = replace(some_results(), loss=0.5, weights={}, gradients={"w": torch.tensor([0.5, -3.0])})
    losses, gradients, weights, buffers = differences([first, second], expected)
    assert (losses.largest, losses.relative, losses.name) == (0.25, 0.25, "the first step")
    assert (gradients.largest, gradients.relative, gradients.name) == (1.0, 0.25, "w")
    assert (weights.largest, weights.relative, weights.name) == (0.5, 0.25, "w")
    assert (buffers.largest, buffers.relative, buffers.name) == (0.0, 0.0, "")
    assert [each.is_small for each in (losses, gradients, weights, buffers)] == [False, False, False, True]


def test_what_is_small_beside_all_others_may_be_rounding() -> None:
    gradients = {"bias": torch.tensor([1e-8]), "weight": torch.tensor([1.0])}
    expected = replace(some_results(), gradients=gradients)
    found = replace(expected, gradients=gradients | {"bias": torch.tensor([-1e-8])})
    assert differences([found], expected)[1].relative == pytest.approx(2e-6)


def test_a_gradient_that_the_model_does_not_have_is_infinitely_far_unless_it_is_zero() -> None:
    frozen = {"frozen": torch.zeros(2)}
    same = replace(some_results(), gradients=dict(some_results().gradients) | frozen)
    other = replace(some_results(), gradients=dict(some_results().gradients) | {"frozen": torch.full((2,), 8.0)})
    assert differences([same], some_results())[1].is_small
    found = differences([other], some_results())[1]
    assert (found.largest, found.name, found.is_small) == (8.0, "frozen", False)


def test_what_is_missing_or_no_number_is_infinitely_far() -> None:
    expected = some_results()
    without = differences([replace(some_results(), gradients={})], expected)[1]
    assert (without.largest, without.name, without.is_small) == (math.inf, "w", False)
    odd = differences([replace(some_results(), loss=math.nan)], expected)[0]
    assert (odd.largest, odd.is_small) == (math.inf, False)
