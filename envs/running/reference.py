"""The same training without a plan: the user's own module in one process; and how far a run's results are from it.

A step whose plan divides the batch is divided here likewise, since batch norm sees only its part: by replicas first,
and then by micro-batches. Each replica has buffers of its own; those of the first one count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from envs.running.captured_program import CapturedProgram
from envs.running.model_data import Batch, batches, divided, seeded_example
from envs.running.training_job import Training
from graphs.capture.examples import Example
from graphs.foundation.errors import InputError

TOLERANCE = 1e-3
"""The largest relative difference that counts as rounding: ten times what was found in our tests. (Our choice.)"""
FLOOR = 0.01
"""Of the largest number of all tensors of a kind: to this, differences in tensors of smaller numbers are relative.

The gradient of a bias before batch norm, for one, is nothing but rounding."""
EPSILON = 1e-3  # of the largest gradient of the first step


@dataclass(frozen=True)
class Results:
    """What a training ends with."""

    losses: tuple[float, ...]  # (steps,)
    weights: Mapping[str, Tensor]  # those that are trained
    gradients: Mapping[str, Tensor]  # of the last step
    buffers: Mapping[str, Tensor]  # those that change


@dataclass(frozen=True)
class Difference:
    """The largest difference between two trainings in one kind of tensor."""

    what: str  # "losses", "gradients", "weights" or "buffers"
    largest: float
    relative: float  # the largest difference of a tensor over its largest number, of all tensors (see `FLOOR`)
    name: str  # of the tensor where it is largest; "" if there is no difference

    @property
    def is_small(self) -> bool:
        """Whether it is no more than rounding makes."""
        return self.relative <= TOLERANCE


def comparable(training: Training) -> Training:
    """The same training with an epsilon of Adam's that leaves results comparable.

    Adam divides a gradient by its own size. Where that is rounding, it makes whole steps of it, each time others. An
    epsilon of a thousandth of the largest gradient of the first step, which both trainings then take, prevents that.
    """
    gradients = unplaced(replace(training, steps=1)).gradients.values()
    largest = max((float(each.abs().max()) for each in gradients if each.numel()), default=0.0)
    return replace(training, epsilon=max(training.epsilon, EPSILON * largest))


def unplaced(training: Training, *, replicas: int = 1, micro_batches: int = 1, device: str = "cpu") -> Results:
    """Train the model itself, with PyTorch's Adam.

    Raises InputError for a model that draws random numbers, whose results no plan can repeat.
    """
    example = seeded_example(training.model, training.seed, training.samples)
    program = CapturedProgram.of(example)
    module = example.module.to(device)
    optimizer = training.adam.optimizer(list(module.parameters()))
    first = kept = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
    losses = []
    for batch in islice(batches(example, training.data, seed=training.seed), training.steps):
        optimizer.zero_grad()
        own = {leaf: tensor.to(device) for leaf, tensor in batch.items()}
        total = 0.0
        for replica in reversed(divided(own, replicas)):  # the first replica's buffers stay
            _restore(module, kept)
            for part in divided(replica, micro_batches):
                loss = _loss(example, program, part)
                loss = loss / (replicas * micro_batches) if program.returns_loss else loss
                loss.backward()  # type: ignore[no-untyped-call]
                total += float(loss.detach())
        kept = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
        losses.append(total)
        optimizer.step()
    weights = {name: weight for name, weight in module.named_parameters() if weight.grad is not None}
    gradients = {name: weight.grad for name, weight in weights.items() if weight.grad is not None}
    changed = {name: buffer for name, buffer in kept.items() if not torch.equal(buffer, first[name])}
    return Results(tuple(losses), weights, gradients, changed)


def differences(found: Sequence[Results], expected: Results) -> list[Difference]:
    """How far the results of processes are from those of the reference, kind by kind.

    Each process has the tensors that it holds, and losses that add up to the whole. What none has is infinitely far.
    """
    total = np.sum([each.losses for each in found], axis=0).tolist()
    losses = [{f"step {step}": torch.tensor(loss) for step, loss in enumerate(of)} for of in (total, expected.losses)]
    return [
        _difference("losses", losses[:1], losses[1]),
        _difference("gradients", [each.gradients for each in found], expected.gradients),
        _difference("weights", [each.weights for each in found], expected.weights),
        _difference("buffers", [each.buffers for each in found], expected.buffers),
    ]


def _difference(what: str, found: Sequence[Mapping[str, Tensor]], expected: Mapping[str, Tensor]) -> Difference:
    apart, relative, worst = 0.0, 0.0, ""
    floor = FLOOR * max(map(_size, expected.values()), default=0.0)
    for name, right in expected.items():
        largest = _apart([each[name] for each in found if name in each], right)
        apart = max(apart, largest)
        part = largest / max(_size(right), floor) if largest and (floor or _size(right)) else math.inf * bool(largest)
        if part > relative:
            relative, worst = part, name
    return Difference(what, apart, relative, worst)


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


def _loss(example: Example, program: CapturedProgram, batch: Batch) -> Tensor:
    """What the plan's step calls the loss."""
    args, kwargs = program.arguments(batch)
    before = _random_states()
    with example.importing():
        returned = example.module(*args, **kwargs)
    if any(not torch.equal(one, other) for one, other in zip(before, _random_states(), strict=True)):
        raise InputError(
            f"{example.name} draws random numbers as it runs, which no plan repeats, so that it cannot be compared "
            "with the model itself; return it without dropout (p=0), or in eval()"
        )
    return program.loss_from(returned)


def _random_states() -> Sequence[Tensor]:
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [])]


def _restore(module: torch.nn.Module, kept: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            buffer.copy_(kept[name])
