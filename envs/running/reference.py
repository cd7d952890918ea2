"""The same first step without a plan: the user's own module in one process; and how far a plan's results are from it.

A step whose plan divides the batch is divided here likewise, since batch norm sees only its part: by replicas first,
and then by micro-batches. Each replica has buffers of its own; those of the first one count.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from envs.running.adam import Adam
from envs.running.captured_program import CapturedProgram
from envs.running.divided_batch import parts_of_replica
from envs.running.model_data import Batch
from envs.running.same_draws import SameDraws

TOLERANCE = 1e-3
"""The largest relative difference that counts as rounding: ten times what was found in our tests. (Our choice.)"""
ROUNDINGS = 8.0
"""Roundings of a number of lower precision, such as bfloat16, that are tolerated, if that is more. (Our choice.)"""
FLOOR = 0.01
"""Of the largest number of all tensors of a kind: to this, differences in tensors of smaller numbers are relative.

The gradient of a bias before batch norm, for one, is nothing but rounding."""
EPSILON = 1e-3  # of the largest gradient


@dataclass(frozen=True)
class Results:
    """What a first step ends with."""

    loss: float
    weights: Mapping[str, Tensor]  # those that are trained
    gradients: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]  # those that change


@dataclass(frozen=True)
class Reference:
    """A first step without a plan."""

    results: Results
    epsilon: float  # that of Adam with which results are comparable
    drew: bool  # whether random numbers were drawn, the same ones by each operation
    rounding: float  # relative, of the least precise floating-point numbers that an operation made


@dataclass(frozen=True)
class Difference:
    """The largest difference between two steps in one kind of tensor."""

    what: str  # "loss", "gradients", "weights" or "buffers"
    largest: float
    relative: float  # the largest difference of a tensor over its largest number, of all tensors (see `FLOOR`)
    name: str  # of the tensor where it is largest; "" if there is no difference
    tolerance: float = TOLERANCE  # the largest relative difference that counts as rounding

    @property
    def is_small(self) -> bool:
        """Whether it is no more than rounding makes."""
        return self.relative <= self.tolerance


def unplaced(
    program: CapturedProgram,
    module: nn.Module,
    batch: Batch,
    adam: Adam,
    *,
    shares: Sequence[int] = (1,),
    micro_batches: int = 1,
) -> Reference:
    """One step of the module itself, which is changed, with PyTorch's Adam; the program says what its loss is.

    Adam divides a gradient by its own size. Where that is rounding, it makes a whole step of it, each time another
    one. An epsilon of a thousandth of the largest gradient, which both steps then take, prevents that.
    """
    first = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
    total = 0.0
    with SameDraws() as draws:
        for replica in reversed(range(len(shares))):  # the first one's buffers stay
            _restore(module, first)
            for inputs in parts_of_replica(batch, program.example.samples, shares, replica, micro_batches):
                loss = loss_of(program, module, inputs)
                parts = sum(shares) * micro_batches / shares[replica]
                loss = loss / parts if program.returns_loss else loss
                loss.backward()  # type: ignore[no-untyped-call]
                total += float(loss.detach())
    weights = {name: weight for name, weight in module.named_parameters() if weight.grad is not None}
    gradients = {name: weight.grad.to_dense() for name, weight in weights.items() if weight.grad is not None}
    largest = max(map(_size, gradients.values()), default=0.0)
    adam = Adam(adam.rate, adam.betas, max(adam.eps, EPSILON * largest))
    for optimizer in optimizers(list(weights.values()), adam):
        optimizer.step()
    changed = {name: each for name, each in module.named_buffers() if not torch.equal(each, first[name])}
    return Reference(Results(total, weights, gradients, changed), adam.eps, draws.drew, draws.rounding)


def differences(found: Sequence[Results], expected: Results, rounding: float = 0.0) -> tuple[Difference, ...]:
    """How far the results of processes are from those of the reference, kind by kind; `rounding` is the reference's.

    Each process has the tensors that it holds, and losses that add up to the whole. What none has is infinitely far;
    a gradient that the reference does not have is 0 there.
    """
    losses = [
        {"the first step": torch.tensor(loss, dtype=torch.float64)}
        for loss in (sum(each.loss for each in found), expected.loss)
    ]
    none = {name: torch.zeros_like(gradient) for each in found for name, gradient in each.gradients.items()}
    tolerance = max(TOLERANCE, ROUNDINGS * rounding)
    return (
        _difference("loss", losses[:1], losses[1], tolerance),
        _difference("gradients", [each.gradients for each in found], none | dict(expected.gradients), tolerance),
        _difference("weights", [each.weights for each in found], expected.weights, tolerance),
        _difference("buffers", [each.buffers for each in found], expected.buffers, tolerance),
    )


def _difference(
    what: str, found: Sequence[Mapping[str, Tensor]], expected: Mapping[str, Tensor], tolerance: float
) -> Difference:
    apart, relative, worst = 0.0, 0.0, ""
    floor = FLOOR * max(map(_size, expected.values()), default=0.0)
    for name, right in expected.items():
        largest = _apart([each[name] for each in found if name in each], right)
        apart = max(apart, largest)
        part = largest / max(_size(right), floor) if largest and (floor or _size(right)) else math.inf * bool(largest)
        if part > relative:
            relative, worst = part, name
    return Difference(what, apart, relative, worst, tolerance)


def _apart(found: Sequence[Tensor], expected: Tensor) -> float:
    """The largest difference of any of several tensors from the one that is expected."""
    if not found:
        return math.inf
    right = expected.detach().cpu().double()
    largest = max(_size(each.detach().cpu().double() - right) for each in found)
    return math.inf if math.isnan(largest) else largest


def _size(tensor: Tensor) -> float:
    """The largest number in a tensor, without its sign."""
    return float(tensor.detach().abs().max()) if tensor.numel() else 0.0


def loss_of(program: CapturedProgram, module: nn.Module, batch: Batch) -> Tensor:
    """What the plan's step calls the loss."""
    args, kwargs = program.arguments(batch)
    with program.example.importing():
        return program.loss_from(module(*args, **kwargs))


def optimizers(weights: Sequence[Tensor], adam: Adam) -> list[torch.optim.Optimizer]:
    """PyTorch's own of weights that have gradients: Adam and, of those with sparse ones, its kin."""
    sparse = [weight for weight in weights if weight.grad is not None and weight.grad.is_sparse]
    dense = [weight for weight in weights if weight.grad is not None and not weight.grad.is_sparse]
    found = [adam.optimizer(dense)] if dense else []
    if sparse:
        found.append(torch.optim.SparseAdam(sparse, lr=adam.rate, betas=adam.betas, eps=adam.eps))
    return found


def _restore(module: nn.Module, kept: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            buffer.copy_(kept[name])
