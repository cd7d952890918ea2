"""Some steps of a model, by a plan that divides its ops, and of the model itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn import functional
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from envs.plans.plan import Plan
from envs.running.adam import Adam
from envs.running.captured_program import CapturedProgram
from envs.running.mean_losses import MeanLosses
from envs.running.partitioned.partitioned_step import PartitionedStep
from envs.running.partitioned.parts_of_dtensors import DTensorCollective
from envs.running.processes import Process
from envs.running.running_step import StepRecord
from graphs.capture.examples import Example
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from tests.envs.placed_models.models import BATCH, LENGTH, MLP, MODELS, Made
from tests.placers.mixtures import SEQUENCE, WIDTH, Model
from tests.placers.splits.test_column_row import Attention

STEPS = 3
EPSILON = 1e-2  # of Adam: far larger than the rounding of gradients, by which it would divide where these are zero

Arrays = dict[str, NDArray[Any]]


@dataclass
class Trained:
    """What some steps of Adam have made, in one process."""

    losses: list[float]
    weights: Arrays
    gradients: Arrays  # of the last step
    buffers: Arrays
    collectives: list[DTensorCollective] = field(default_factory=list)
    held: int = 0  # bytes of weights that it stores
    record: StepRecord | None = None


class Checkpointed(MLP):
    """Keeps what its layers read, and computes the rest again in the backward pass."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(super().forward, x, use_reentrant=False)
        return y


def made(name: str) -> Made:
    if name == "checkpointed":
        return Checkpointed(), MODELS["mlp"]()[1]
    if name == "cached":
        return Attention(caches=True), lambda batch, random: {"x": torch.randn(batch, LENGTH, 16, generator=random)}
    if name == "mixture":
        return Model(), lambda batch, random: {
            each: torch.randn(batch, SEQUENCE, WIDTH, generator=random) for each in ("x", "wanted")
        }
    return MODELS[name]()


def example_of(name: str) -> Example:
    torch.manual_seed(3)
    model, inputs = made(name)
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    return Example(model, (), inputs(BATCH, torch.Generator().manual_seed(1)), name, BATCH)


def batch(name: str, step: int) -> dict[str, Tensor]:
    torch.manual_seed(3)
    _, inputs = made(name)
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
            record, losses = StepRecord(), list[float]()
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


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": functional.mse_loss,
    "smooth": lambda x, y: functional.smooth_l1_loss(x, y, beta=0.5),
    "huber": lambda x, y: functional.huber_loss(x, y, "mean", 0.3),
    "entropy": lambda x, y: functional.binary_cross_entropy(x.sigmoid(), y, weight=y + 1),
    "margin": lambda x, y: functional.soft_margin_loss(x, y.round() * 2 - 1),
    "sum": lambda x, y: functional.mse_loss(x, y, reduction="sum"),
    "absolute": functional.l1_loss,
}


def losses(process: Process) -> dict[str, tuple[Arrays, Arrays]]:
    """Of each loss of rows that are divided over all processes its value and gradient, and those of whole rows."""
    torch.manual_seed(0)
    whole, wanted = torch.randn(8, 3), torch.rand(8, 3)
    mesh = DeviceMesh(process.device.type, torch.arange(process.size))
    found: dict[str, tuple[Arrays, Arrays]] = {}
    for name, function in LOSSES.items():
        x, own = whole.clone().requires_grad_(), distribute_tensor(whole, mesh, [Shard(0)]).requires_grad_()
        function(x, wanted).backward()  # type: ignore[no-untyped-call]
        with MeanLosses():
            loss = function(own, distribute_tensor(wanted, mesh, [Shard(0)]))
        loss.backward()  # type: ignore[no-untyped-call]
        assert isinstance(own.grad, DTensor)
        assert isinstance(loss, DTensor)
        assert x.grad is not None
        ours = {"loss": loss.full_tensor().detach().numpy(), "gradient": own.grad.full_tensor().numpy()}
        found[name] = ours, {"loss": function(x, wanted).detach().numpy(), "gradient": x.grad.numpy()}
    return found
