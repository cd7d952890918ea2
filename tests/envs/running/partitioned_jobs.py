"""Some steps of a model, by a plan that divides its ops, and of the model itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_leaves

from envs.plan import Plan
from envs.running.adam import Adam
from envs.running.captured_program import CapturedProgram
from envs.running.partitioned_step import PartitionedStep
from envs.running.parts_of_dtensors import Collective
from envs.running.processes import Process
from envs.running.running_step import Record
from graphs.capture.examples import Example
from graphs.foundation.errors import InputError
from graphs.load import load_cluster
from graphs.problem import Problem
from tests.envs.placed_models.models import BATCH, MODELS

STEPS = 5
EPSILON = 1e-2  # of Adam: far larger than the rounding of gradients, by which it would divide where these are zero

Arrays = dict[str, NDArray[Any]]


@dataclass
class Trained:
    """What some steps of Adam have made, in one process."""

    losses: list[float]
    weights: Arrays
    gradients: Arrays  # of the last step
    buffers: Arrays
    collectives: list[Collective] = field(default_factory=list)
    held: int = 0  # bytes of weights that it stores
    record: Record | None = None


def example_of(name: str) -> Example:
    torch.manual_seed(3)
    model, inputs = MODELS[name]()
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    return Example(model, (), inputs(BATCH, torch.Generator().manual_seed(1)), name, BATCH)


def batch(name: str, step: int) -> dict[str, Tensor]:
    torch.manual_seed(3)
    _, inputs = MODELS[name]()
    return inputs(BATCH, torch.Generator().manual_seed(step))


@dataclass(frozen=True)
class Partitioned:
    """The steps of one process; what it refuses is text."""

    name: str
    cluster: str
    plan: Plan
    steps: int = STEPS

    def __call__(self, process: Process) -> Trained | str:
        program = CapturedProgram.of(example_of(self.name))
        problem = Problem(program.step, load_cluster(self.cluster))
        try:
            step = PartitionedStep(program, problem, self.plan, process.device, Adam(eps=EPSILON))
            record, losses = Record(), list[float]()
            for number in range(self.steps):
                inputs = dict(enumerate(tree_leaves(((), batch(self.name, number)))))
                losses.append(step.run(inputs, record if number == self.steps - 1 else None))
        except InputError as error:
            return str(error)
        tensors = step.weights(), step.gradients(), step.buffers()
        weights, gradients, buffers = ({name: t.numpy() for name, t in each.items()} for each in tensors)
        held = sum(weight.to_local().untyped_storage().nbytes() for weight in step._weights.values())
        return Trained(losses, weights, gradients, buffers, step.collectives, held, record)


def unplaced(name: str) -> Trained:
    """The same steps of the model itself."""
    program = CapturedProgram.of(example_of(name))
    model = program.example.module
    optimizer, losses = Adam(eps=EPSILON).optimizer(list(model.parameters())), list[float]()
    for number in range(STEPS):
        returned = model(**batch(name, number))
        outputs = tree_leaves(returned)
        loss = torch.stack([outputs[position].sum() for position in program.loss_outputs]).sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    weights = {name: weight.detach().numpy() for name, weight in model.named_parameters()}
    gradients = {name: weight.grad.numpy() for name, weight in model.named_parameters() if weight.grad is not None}
    return Trained(losses, weights, gradients, {name: each.numpy() for name, each in model.named_buffers()})
