"""Random small modules that stop gradients at random: what is trained and what it costs are as in a real step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from tests.drawn import examples
from tests.graphs.test_gradient_stops import real_step, trained

WIDTH, LAYERS = 4, 3
KINDS = ("linear", "linear", "linear", "add", "mul", "tanh", "detach", "data", "no_grad", "checkpoint", "reentrant")
Step = tuple[str, int, int]


class Random(nn.Module):
    """Computes one value after another, of earlier ones, and returns those that nothing is made of, and another one."""

    def __init__(self, steps: list[Step], frozen: list[int], other: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))
        self.steps, self.other = steps, other
        for number in frozen:
            self.layers[number].requires_grad_(requires_grad=False)

    def forward(self, x: Tensor) -> list[Tensor]:
        values, read = [x], {0}
        for kind, of, other in self.steps:
            read |= {of % len(values), other % len(values)} if kind in ("add", "mul") else {of % len(values)}
            values.append(self.value(values, kind, of, other))
        returned = {number for number in range(len(values)) if number not in read} | {self.other % len(values)}
        return [values[number].clone() for number in sorted(returned)]

    def value(self, values: list[Tensor], kind: str, of: int, other: int) -> Tensor:
        given, second, layer = values[of % len(values)], values[other % len(values)], self.layers[other % LAYERS]
        if kind == "no_grad":
            with torch.no_grad():
                return self.value(values, "linear", of, other)
        if kind in ("checkpoint", "reentrant"):
            part = nn.Sequential(layer, nn.Tanh(), layer)
            made: Tensor = checkpoint(part, given, use_reentrant=kind == "reentrant")
            return made
        if kind in ("add", "mul"):
            return given + second if kind == "add" else given * second
        simple: dict[str, Callable[[Tensor], Tensor]] = {
            "linear": layer, "tanh": torch.tanh, "detach": Tensor.detach, "data": lambda value: value.data,
        }  # fmt: skip
        return simple[kind](given)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")  # of a reentrant checkpoint
@settings(max_examples=examples(40, 9), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8),
    st.lists(st.integers(0, LAYERS - 1), max_size=2),
    st.integers(0, 9),
)
def test_what_is_trained_and_what_it_costs(steps: list[Step], frozen: list[int], other: int) -> None:
    def made() -> tuple[nn.Module, tuple[Tensor, ...]]:
        with torch.device("meta"):
            return Random(steps, frozen, other), (torch.zeros(2, WIDTH),)

    module, args = made()
    assume(any(output.requires_grad for output in module(*args)))
    names, flops = real_step(*made())
    assume(names)  # a reentrant checkpoint may give its input alone a gradient
    step = training_step(capture(*made(), name="test"))
    assert trained(step) == names
    assert step.flops.sum() == flops
