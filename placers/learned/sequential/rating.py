"""How a network rates the rows of a trace: the decoder's last layers, differentiable, a block of rows at a time.

An update rates 10^5 rows, several times. As one expression each layer moves all of them through memory, forwards and
backwards; a block of them stays in a core's cache from the first layer to the last. What the rows come to is chosen
from, decision by decision, without padding: decisions have from 2 devices to as many as their problem has.

    rows        [ device 0 | 1 | 3 ] [ 0 | 2 ] [ 0 | 1 | 2 | 3 ]
    decisions     0                    1         2                  starts 0 3 5 9
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from envs.simulation.compiled import compiled
from graphs.op_graph import Ints
from placers.learned.sequential.state import IMPOSSIBLE, Singles
from placers.learned.sequential.trace import OPEN, Trace

BLOCK = 2048  # rows at a time: half a megabyte of the widest layer


class RatingWeights(NamedTuple):
    """Those of `ScoreLayers`, as PyTorch's layers have them."""

    first: Tensor  # (hidden, features)
    second: Tensor  # (narrow, hidden)
    bias: Tensor  # (narrow,)
    out: Tensor  # (narrow,)
    skip: Tensor  # (features,)


def rated(states: Tensor, trace: Trace, devices: Tensor, weights: RatingWeights) -> tuple[Tensor, Tensor]:
    """Log-probability of devices, (problems, samples, units), and the samples' mean entropy in nats, (problems, units).

    `states` is (problems * units, hidden). IMPOSSIBLE is the log-probability of what may not be chosen.
    """
    logits = rated_rows(states, trace.features, trace.states, weights)
    decided = devices.flatten()[trace.decisions].numpy()
    chosen, entropy = rated_choices(logits, trace.starts.numpy(), trace.devices.numpy(), decided)
    no_choice = torch.where((trace.only == OPEN) | (trace.only == devices), 0.0, IMPOSSIBLE)
    log_probability = no_choice.flatten().index_add(0, trace.decisions, chosen).view_as(devices)
    nothing = torch.zeros(devices.numel())
    return log_probability, nothing.index_add(0, trace.decisions, entropy).view_as(devices).mean(1)


def rated_rows(states: Tensor, features: Tensor, of_row: Tensor, weights: RatingWeights) -> Tensor:
    """(rows,) skip @ x + out @ relu(second @ relu(state + first @ x) + bias), differentiable once.

    - `states`: (units, hidden), and `of_row`, (rows,), each row's among them.
    - `features`: (rows, features), without a gradient.
    """
    rated: Tensor = _RatedRows.apply(states, features, of_row, *weights)  # type: ignore[no-untyped-call]
    return rated


class _RatedRows(torch.autograd.Function):
    """What is kept for the gradient are the two hidden layers."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, features: Tensor, of_row: Tensor, *weights: Tensor) -> Tensor:
        """The scores."""
        first, second, bias, out, skip = weights
        rows = len(features)
        hidden, narrow = states.new_empty(rows, len(first)), states.new_empty(rows, len(second))
        rated = features @ skip
        for start in range(0, rows, BLOCK):
            some = slice(start, start + BLOCK)
            h, n = hidden[some], narrow[some]
            _take_rows(states.detach().numpy(), of_row[some].numpy(), h.numpy())
            h.addmm_(features[some], first.T).relu_()
            torch.addmm(bias, h, second.T, out=n).relu_()
            rated[some].addmv_(n, out)
        ctx.save_for_backward(states, features, of_row, hidden, narrow, *weights)
        return rated

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Through what is above 0 of each hidden layer."""
        (gradient,) = gradients
        states, features, of_row, hidden, narrow, first, second, bias, out, _ = ctx.saved_tensors
        of_states, of_first = torch.zeros_like(states), first.new_zeros(first.shape[::-1])
        of_second, of_bias, of_out = torch.zeros_like(second), torch.zeros_like(bias), torch.zeros_like(out)
        for start in range(0, len(features), BLOCK):
            some = slice(start, start + BLOCK)
            h, n, g = hidden[some], narrow[some], gradient[some]
            of_out.addmv_(n.T, g)
            of_n = torch.outer(g, out).mul_(n.sign())
            of_bias += of_n.sum(0)
            of_second.addmm_(of_n.T, h)
            of_h = (of_n @ second).mul_(h.sign())
            of_first.addmm_(features[some].T, of_h)
            _add_rows(of_h.numpy(), of_row[some].numpy(), of_states.numpy())
        return of_states, None, None, of_first.T, of_second, of_bias, of_out, gradient @ features


@compiled
def _take_rows(table: Singles, rows: Ints, taken: Singles) -> None:
    """Copy some rows of a table, (units, width), to (rows, width)."""
    for row in range(len(rows)):
        for i in range(table.shape[1]):
            taken[row, i] = table[rows[row], i]


@compiled
def _add_rows(rows: Singles, to: Ints, sums: Singles) -> None:
    """Add each of (rows, width) to one of (sums, width)."""
    for row in range(len(rows)):
        for i in range(rows.shape[1]):
            sums[to[row], i] += rows[row, i]


def rated_choices(rated: Tensor, starts: Ints, devices: Ints, chosen: Ints) -> tuple[Tensor, Tensor]:
    """(decisions,) log-probability of the device that each decision chooses, and its entropy in nats.

    Differentiable once. What may not be chosen has a log-probability of IMPOSSIBLE, a constant.

    - `rated`: (rows,) logits; the rows of a decision are those from starts[decision] to starts[decision + 1].
    - `devices`: (rows,) that of each; and `chosen`, (decisions,).
    """
    found: tuple[Tensor, Tensor] = _RatedChoices.apply(rated, starts, devices, chosen)  # type: ignore[no-untyped-call]
    return found


class _RatedChoices(torch.autograd.Function):
    """The logarithm of a softmax, and its entropy."""

    @staticmethod
    def forward(ctx: Any, rated: Tensor, starts: Ints, devices: Ints, chosen: Ints) -> tuple[Tensor, Tensor]:
        """Both."""
        table, probability = np.empty(len(rated), np.float32), np.empty(len(rated), np.float32)
        log_probability, entropy = np.full(len(chosen), IMPOSSIBLE, np.float32), np.empty(len(chosen), np.float32)
        _rate(rated.detach().numpy(), starts, devices, chosen, table, probability, log_probability, entropy)
        ctx.kept = starts, devices, chosen, table, probability, entropy
        return torch.from_numpy(log_probability), torch.from_numpy(entropy)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """With p the probability of a row: of a chosen one 1 - p, of the others -p, of entropy -p (log p + entropy)."""
        of_chosen, of_entropy = (each.contiguous().numpy() for each in gradients)
        starts, devices, chosen, table, probability, entropy = ctx.kept
        gradient = np.empty_like(table)
        _rate_gradient(starts, devices, chosen, table, probability, entropy, of_chosen, of_entropy, gradient)
        return torch.from_numpy(gradient), None, None, None


@compiled
def _rate(
    rated: Singles, starts: Ints, devices: Ints, chosen: Ints, table: Singles, probability: Singles,
    log_probability: Singles, entropy: Singles,
) -> None:  # fmt: skip
    """Write logarithms of probabilities to `table` and probabilities, (rows,) both, and what is asked for."""
    for decision in range(len(chosen)):
        first, last = starts[decision], starts[decision + 1]
        most, total, spread = rated[first], np.float32(0.0), np.float32(0.0)
        for row in range(first, last):
            most = max(most, rated[row])
        for row in range(first, last):
            table[row] = rated[row] - most
            probability[row] = np.exp(table[row])
            total += probability[row]
        of_total = np.log(total)
        for row in range(first, last):
            table[row] -= of_total
            probability[row] /= total
            spread -= probability[row] * table[row]
            if devices[row] == chosen[decision]:
                log_probability[decision] = table[row]
        entropy[decision] = spread


@compiled
def _rate_gradient(
    starts: Ints, devices: Ints, chosen: Ints, table: Singles, probability: Singles, entropy: Singles,
    of_chosen: Singles, of_entropy: Singles, gradient: Singles,
) -> None:  # fmt: skip
    """Write the gradient of the logits, (rows,)."""
    for decision in range(len(chosen)):
        own = np.float32(0.0)
        for row in range(starts[decision], starts[decision + 1]):
            if devices[row] == chosen[decision]:
                own = of_chosen[decision]
        for row in range(starts[decision], starts[decision + 1]):
            spread = of_entropy[decision] * (table[row] + entropy[decision])
            gradient[row] = -probability[row] * (own + spread)
            if devices[row] == chosen[decision]:
                gradient[row] += own
