"""Models on the meta device get data, so that they can be run."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from graphs.capture.examples import Example, example_of, with_data

SMALL = (
    "transformer:layers=1,width=16,heads=2,sequence=8,batch=2,vocabulary=64,tied=true",
    "bert:layers=1,width=16,heads=2,sequence=8,batch=2",
    "resnet:layers=26,image=32,batch=2",
    "rnnlm:layers=1,steps=3,hidden=8,batch=2,vocabulary=16",
)


@pytest.mark.parametrize("spec", SMALL)
def test_families_run_and_their_loss_is_finite(spec: str) -> None:
    example = with_data(example_of(spec), seed=0)
    loss = example.module(*example.args, **example.kwargs)
    assert isinstance(loss, Tensor)
    assert loss.numel() == 1
    assert torch.isfinite(loss)
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [each.grad for each in example.module.parameters() if each.grad is not None]
    assert any(float(gradient.abs().max()) > 0 for gradient in gradients)


def test_equal_seeds_draw_equal_data_and_others_do_not() -> None:
    first, again, other = (with_data(example_of(SMALL[0]), seed=seed) for seed in (1, 1, 2))
    pairs = zip(first.module.state_dict().values(), again.module.state_dict().values(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)
    assert torch.equal(first.args[0], again.args[0])  # type: ignore[arg-type]  # both are tensors
    assert not torch.equal(first.module.tokens.weight, other.module.tokens.weight)  # type: ignore[arg-type, union-attr]


def test_tied_weights_stay_one() -> None:
    module = with_data(example_of(SMALL[0]), seed=0).module
    assert module.head.weight is module.tokens.weight  # type: ignore[union-attr]


def test_what_has_data_stays_as_it_is() -> None:
    module = nn.Linear(3, 4)
    example = Example(module, (torch.ones(2, 3),), {}, "linear")
    before = module.weight.detach().clone()
    assert with_data(example, seed=0) is example
    assert torch.equal(module.weight, before)


def test_random_numbers_of_the_program_stay_as_they_were() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    with_data(example_of(SMALL[3]), seed=5)
    assert torch.equal(torch.rand(4), expected)
