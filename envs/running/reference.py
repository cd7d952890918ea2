"""The same training without a plan: the user's own module in one process; and how far a run's results are from it.

A step whose plan divides the batch is divided here likewise, since batch norm sees only its part: by replicas first,
and then by micro-batches. Each replica has buffers of its own; those of the first one count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from envs.running.adam import Adam
from envs.running.captured_program import CapturedProgram
from envs.running.model_data import Batch, batches, divided, seeded_example
from envs.running.training_job import Training
from graphs.capture.examples import Example
from graphs.foundation.errors import InputError

TOLERANCE = 1e-3
"""How far losses, gradients and buffers may be from the reference's, relative to the largest of their tensor: about ten
times what the rounding of float32 came to in our tests. (Weights may differ more: see `Difference`.)"""


@dataclass(frozen=True)
class Results:
    """What a training ends with."""

    losses: tuple[float, ...]  # (steps,)
    weights: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor]  # of the last step
    buffers: Mapping[str, Tensor]


@dataclass(frozen=True)
class Difference:
    """The largest difference between two trainings in one kind of tensor.

    Of weights it may be large where Adam divides a gradient that is rounding noise by itself: up to twice the learning
    rate in each step. That decides nothing, and is shown.
    """

    what: str  # "losses", "gradients", "weights" or "buffers"
    largest: float
    relative: float  # the largest difference of a tensor over its largest number, of all tensors
    name: str  # the tensor with the largest relative difference; "" if there is no difference
    decides: bool  # whether results are equal only if it is small

    @property
    def is_small(self) -> bool:
        """Whether it is no more than rounding makes."""
        return self.relative <= TOLERANCE


def unplaced(training: Training, *, replicas: int = 1, micro_batches: int = 1, device: str = "cpu") -> Results:
    """Train the model itself, with PyTorch's Adam.

    Raises InputError for a model that draws random numbers, whose results no plan can repeat.
    """
    example = seeded_example(training.model, training.seed, training.samples)
    program = CapturedProgram.of(example)
    module = example.module.to(device)
    optimizer = Adam(training.learning_rate).optimizer(list(module.parameters()))
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
        _difference("losses", losses[:1], losses[1], decides=True),
        _difference("gradients", [each.gradients for each in found], expected.gradients, decides=True),
        _difference("weights", [each.weights for each in found], expected.weights, decides=False),
        _difference("buffers", [each.buffers for each in found], expected.buffers, decides=True),
    ]


def _difference(
    what: str, found: Sequence[Mapping[str, Tensor]], expected: Mapping[str, Tensor], *, decides: bool
) -> Difference:
    apart, relative, worst = 0.0, 0.0, ""
    for name, right in expected.items():
        largest, part = _apart([each[name] for each in found if name in each], right)
        apart = max(apart, largest)
        if part > relative:
            relative, worst = part, name
    return Difference(what, apart, relative, worst, decides)


def _apart(found: Sequence[Tensor], expected: Tensor) -> tuple[float, float]:
    """The largest difference of any of several tensors, and that over the largest number that is expected."""
    right = expected.detach().cpu().double()
    if not found:
        return math.inf, math.inf
    if not right.numel():
        return 0.0, 0.0
    largest = max(float((each.detach().cpu().double() - right).abs().max()) for each in found)
    largest = math.inf if math.isnan(largest) else largest
    return largest, (largest / scale if (scale := float(right.abs().max())) else math.inf if largest else 0.0)


def _loss(example: Example, program: CapturedProgram, batch: Batch) -> Tensor:
    """What the plan's step calls the loss: the sum of all elements of those outputs that depend on a weight."""
    leaves, tree = tree_flatten((example.args, example.kwargs))
    args, kwargs = tree_unflatten([batch.get(leaf, value) for leaf, value in enumerate(leaves)], tree)
    before = _random_states()
    with example.importing():
        outputs = [leaf for leaf in tree_leaves(example.module(*args, **kwargs)) if isinstance(leaf, Tensor)]
    if any(not torch.equal(one, other) for one, other in zip(before, _random_states(), strict=True)):
        raise InputError(
            f"{example.name} draws random numbers as it runs, which no plan repeats, so that it cannot be compared "
            "with the model itself; return it without dropout (p=0), or in eval()"
        )
    loss = torch.zeros(())
    for number, position in enumerate(program.loss_outputs):
        total = outputs[position].sum()
        loss = total if number == 0 else loss + total.to(loss.device)
    return loss


def _random_states() -> Sequence[Tensor]:
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [])]


def _restore(module: torch.nn.Module, kept: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            buffer.copy_(kept[name])
