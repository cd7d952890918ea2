"""What a module's code asks of its inputs' values is answered without running the module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import Node

from envs.running.batches_as_planned import batches_as_planned, check_batch
from envs.running.captured_program import CapturedProgram
from graphs.capture import by_values, known_values
from graphs.capture.examples import Example
from graphs.capture.tracing import trace
from graphs.foundation.errors import InputError
from tests.graphs.masked import WIDTH, Masked


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


def test_a_batch_with_another_answer_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data.py"
    data.write_text(
        "import torch\nx = torch.ones(2, 4)\n"
        "def batches():\n    return [(x, torch.tensor([True, True])), (x, torch.tensor([True, False]))]\n"
    )
    given = batches_as_planned(CapturedProgram.of(example(torch.tensor([True, True]))), f"{data}:batches")
    assert next(given)[1].all()
    with pytest.raises(InputError, match=r"depends on data at .*masked.py:\d+, and a batch differs there"):
        next(given)


class Counts(nn.Module):
    """Does something else in later steps: by a buffer, written or replaced, or another tensor that it keeps."""

    steps: Tensor

    def __init__(self, count: Callable[[Counts], object]) -> None:
        super().__init__()
        self.linear, self.count = nn.Linear(WIDTH, WIDTH), count
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.seen = torch.zeros(1)

    def forward(self, x: Tensor) -> Tensor:
        is_first = self.steps < 1 and self.seen < 1
        self.count(self)
        y: Tensor = self.linear(x)
        return y if is_first else y.sin()


def _replaced(module: Counts) -> None:
    module.steps = module.steps + 1


def _no_buffer_replaced(module: Counts) -> None:
    module.seen = module.seen + 1


@pytest.mark.parametrize(
    "module",
    [
        Counts(lambda module: module.steps.add_(1)),
        Counts(_replaced),
        Counts(lambda module: module.seen.add_(1)),
        Counts(_no_buffer_replaced),
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH, momentum=None)),  # 1 / steps
    ],
    ids=["written", "replaced", "no buffer", "no buffer, replaced", "batch norm"],
)
def test_what_the_module_changes_itself_is_that_of_the_first_step(
    module: nn.Module, caplog: pytest.LogCaptureFixture
) -> None:
    given = Example(module, (torch.ones(2, WIDTH),), {}, "test", 2)
    answers = trace(given.module, given.args, {}, name="test").answers
    assert {answer.data for answer in answers} == {"the first step"}
    assert caplog.text.count("those of the first step are taken") == 1
    with pytest.raises(InputError, match=r"data that the model changes.*, and its ops are those of the first"):
        CapturedProgram.of(given)
    unchanging = trace(Counts(lambda _: None), given.args, {}, name="test")
    assert not unchanging.answers


class Settles(nn.Linear):
    """Asks again and again of what it has computed."""

    def forward(self, x: Tensor) -> Tensor:
        while x.sum() > 1:
            x = x / 2
        return super().forward(x)


def test_what_is_behind_several_questions_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = list[object]()

    def noted(values: Mapping[Node, Any], argument: Any, own: Callable[..., Any] = known_values._argument) -> Any:
        ran.append(argument)
        return own(values, argument)

    monkeypatch.setattr(known_values, "_argument", noted)
    x = torch.full((1, WIDTH), 2.0**18)
    program = CapturedProgram.of(Example(Settles(WIDTH, WIDTH), (x,), {}, "test", 1))
    questions = 20 + 1
    assert len(program.builder.program.answers) == questions
    most = 7 * questions  # arguments of a division, a sum and a comparison
    assert len(ran) <= most
    ran.clear()
    check_batch(program, {0: x})
    assert 0 < len(ran) <= most


class Compares(nn.Module):
    """Asks whether inputs are equal, and writes to an array of one that it is given on the CPU."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if x.device.type == "cpu":
            x.numpy()[:] = 0
        return x if (x == y).all() else x + y


def test_questions_draw_no_random_numbers_and_change_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are the generators of accelerators seeded, as `torch.manual_seed` does."""
    monkeypatch.setattr(torch, "manual_seed", None)
    x, before = torch.ones(WIDTH), torch.get_rng_state()
    same = trace(Compares(), (x, x.clone()), {}, name="test").answers
    assert [bool(answer.value.all()) for answer in same] == [True, True]
    assert x.all()
    x, y = (torch.empty(WIDTH, device="meta") for _ in range(2))
    [drawn] = trace(Compares(), (x, y), {}, name="test").answers
    assert (bool(drawn.value), drawn.data) == (False, "random data")
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_too_large_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_values, "MOST_ELEMENTS", 1)
    given = example(torch.tensor([True, True]))
    with pytest.raises(InputError, match="the module must be run to be captured"):
        trace(given.module, given.args, {}, name="test")
