"""The oracle of memory against steps whose storages can be counted by hand."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphs.capture.examples import Example
from tests.oracle.fake_step import held_by_step

WIDTH, BATCH, LAYERS = 64, 8, 3
WEIGHTS, ROWS = LAYERS * WIDTH * WIDTH * 4, BATCH * WIDTH * 4
LOSS = 2 * 4  # and its gradient, 1


def linear() -> Example:
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
        return Example(model, (torch.zeros(BATCH, WIDTH),), {}, "linear", BATCH)


def test_weights_inputs_and_state_are_held_for_the_whole_step() -> None:
    counters = LAYERS * 4  # fused Adam counts the steps of each weight, in a number
    assert held_by_step(linear(), "sgd").static == WEIGHTS + ROWS
    assert held_by_step(linear(), "adam").static == 3 * WEIGHTS + ROWS + counters
    assert held_by_step(linear(), None).static == WEIGHTS + ROWS


def test_a_gradient_is_held_from_its_backward_op_on() -> None:
    held = held_by_step(linear(), "sgd")
    # gradients of all weights, and when the first layer's is made the gradient of its output
    assert held.peak == held.static + WEIGHTS + ROWS + LOSS


def test_gradients_are_added_up_in_place() -> None:
    held = held_by_step(linear(), "sgd", micro_batches=3)
    # that of the last layer's weight exists twice until it is added; then there are the gradients of its output and of
    # its input, and what the layers have read
    assert held.peak == held.static + WEIGHTS + WEIGHTS // LAYERS + (2 + LAYERS - 1) * ROWS + LOSS


def test_a_forward_pass_holds_what_the_next_layer_reads() -> None:
    held = held_by_step(linear(), None)
    assert held.peak == held.static + 2 * ROWS


class Rows(nn.Module):
    """A sum of rows of what a bias is added to, each row for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(WIDTH, device="meta"))

    def forward(self, x: Tensor) -> Tensor:
        h = x + self.bias
        return torch.stack([row.sum() for row in (h[0], h[1], h[2], h[3])]).sum()


def test_gradients_of_slices_are_added_up_in_place() -> None:
    held = held_by_step(Example(Rows(), (torch.zeros(BATCH, WIDTH, device="meta"),), {}, "rows", BATCH), "sgd")
    # the sum of the gradients so far and the next one, each as large as what was sliced, and single numbers
    assert 0 < held.peak - held.static - 2 * ROWS < 64
