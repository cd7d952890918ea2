"""What a module's code asks of its inputs' values is answered without running the module."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from envs.running.batches_as_planned import batches_as_planned
from envs.running.captured_program import CapturedProgram
from graphs.capture import by_values, known_values
from graphs.capture.examples import Example
from graphs.capture.tracing import trace
from graphs.foundation.errors import InputError

WIDTH = 4


class Masked(nn.Module):
    """As libraries do it: attention is causal by itself unless a mask leaves something out."""

    positions: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("positions", torch.arange(3))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        if (self.positions.diff() != 1).any():
            return y.sin()
        return y if mask.all() else y * mask[:, None]


def example(mask: Tensor) -> Example:
    torch.manual_seed(0)
    return Example(Masked(), (torch.randn(len(mask), WIDTH), mask), {}, "test", len(mask))


@pytest.fixture(autouse=True)
def _not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_values, "MOST_BYTES", 0)


@pytest.mark.parametrize("kept", [True, False])
def test_the_branch_of_the_example_is_captured(kept: bool) -> None:
    given = example(torch.tensor([True, kept]))
    program = trace(given.module, given.args, {}, name="test")
    called = [str(node.target) for node in program.nodes if node.op == "call_function"]
    assert "aten.sin.default" not in called
    assert ("aten.mul.Tensor" in called) == (not kept)
    assert [(answer.value.item(), answer.data) for answer in program.answers] == [(kept, "the example")]


def test_a_batch_with_another_answer_is_refused(tmp_path: Any) -> None:
    data = tmp_path / "data.py"
    data.write_text(
        "import torch\nx = torch.ones(2, 4)\n"
        "def batches():\n    return [(x, torch.tensor([True, True])), (x, torch.tensor([True, False]))]\n"
    )
    given = batches_as_planned(CapturedProgram.of(example(torch.tensor([True, True]))), f"{data}:batches")
    assert next(given)[1].all()
    with pytest.raises(InputError, match=r"depends on data at .*test_known_values.py:\d+, and a batch differs there"):
        next(given)


def test_what_is_too_large_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_values, "MOST_ELEMENTS", 1)
    given = example(torch.tensor([True, True]))
    with pytest.raises(InputError, match="the module must be run to be captured"):
        trace(given.module, given.args, {}, name="test")
