"""PartitionedStep: a plan that divides ops, run by DTensor.

Each process holds the parts of the weights that the plan's updates store there, and its part of the batch. The user's
own forward pass then runs on DTensors, which find out by the rules of each operation how its output is divided, and
move what they need. So weights, gradients, optimizer state, inputs and what modules return are where the plan says;
other tensors are where DTensor takes them, and so `collectives` need not be the plan's.

DTensor computes what the undivided model does: batch normalisation is over the whole batch, where replicas of a plan
normalise their own part.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.distributed.tensor.experimental import implicit_replication

from envs.plans.plan import Plan
from envs.running.adam import Adam
from envs.running.attention import attention_kernels
from envs.running.captured_program import CapturedProgram
from envs.running.clock import mark, read
from envs.running.mean_losses import MeanLosses
from envs.running.partitioned.module_outputs import ModuleOutputs
from envs.running.partitioned.parts_of_dtensors import DTensorCollective, OnParts
from envs.running.partitioned.tensor_placements import Placements, TensorPlacements
from envs.running.phase_times import PHASES, by_phase
from envs.running.running_step import Span, StepRecord
from envs.simulation.simulator import LaidOut
from graphs.capture.nested import tensors_in
from graphs.foundation.errors import InputError, reason
from graphs.problem import Problem

_ASKS_FOR_DATA = (DataDependentOutputException, DynamicOutputShapeException)  # of a step on tensors without


class PartitionedStep:
    """One process of a step whose ops are divided over a mesh; its rank is the number of its device."""

    def __init__(
        self, program: CapturedProgram, problem: Problem, plan: Plan, device: torch.device, adam: Adam
    ) -> None:
        """To be made by all processes of the group, each with its device.

        Raises InputError for a plan that DTensor cannot say (`TensorPlacements`), or a problem of another model.
        """
        program.check(problem.graph)
        said = TensorPlacements(problem, plan)
        self.program, self.device = program, device
        self.collectives: list[DTensorCollective] = []
        """What this process took part in, in the latest step."""
        self._said, self._mesh = said, DeviceMesh(self.device.type, torch.tensor(said.devices).reshape(said.mesh))
        self._whole: Placements = (Replicate(),) * len(said.mesh)
        self._mine = self._mesh.get_coordinate() is not None
        self._outputs = ModuleOutputs(said)
        self._inputs = _by_leaf(program, said.inputs)
        self._buffers = {name: self._put(buffer, self._whole) for name, buffer in program.buffers.items()}
        self._weights = {name: self._put(weight, self._stored(name)) for name, weight in program.weights.items()}
        self._parts = {name: weight.to_local() for name, weight in self._weights.items()} if self._mine else {}
        for name, weight in self._weights.items():
            weight.requires_grad_(program.weights[name].requires_grad)
        self._gradients: dict[str, DTensor] = {}
        self._optimizer = adam.optimizer(list(self._parts.values())) if self._mine else None

    @cached_property
    def laid(self) -> LaidOut:
        """Each device's forward pass, backward pass and update, as one op each."""
        return by_phase(self._said.problem, self._said.plan)

    # ---- a step ------------------------------------------------------------------------------------------

    def run(self, inputs: Mapping[int, Tensor], record: StepRecord | None = None) -> float:
        """One step; all processes are given the whole batch, of which each takes its part.

        The loss is returned by the first process of the mesh, 0 by all others. Raises InputError for an operation that
        DTensor cannot run on what it would be given.
        """
        if self._optimizer is None:
            return 0.0
        marks, parts = [mark(self.device)], OnParts()
        with self._running(parts):
            loss = self._loss(inputs, lambda: marks.append(mark(self.device)))
            self._add_up()
            marks.append(mark(self.device))
            self._optimizer.step()
            marks.append(mark(self.device))
            value = float(loss.full_tensor())
        self.collectives = parts.collectives
        if record is not None:
            first = len(PHASES) * sorted(self._said.devices).index(self._mesh.get_rank())
            phases = [(first + k, marks[k], marks[k + 1]) for k in range(len(PHASES))]
            record.spans += [Span(*each) for each in read(phases, self.device)]
        return value if self._is_first else 0.0

    def check_passes(self, inputs: Mapping[int, Tensor], mode: FakeTensorMode) -> None:
        """Run both passes in a mode without data, as far as they ask for none; the step cannot be run after that.

        Raises InputError for an operation that DTensor cannot run on what it would be given.
        """
        for held in (self._weights, self._buffers):
            held.update({name: mode.from_tensor(tensor) for name, tensor in held.items()})  # type: ignore[misc]
        given = {leaf: mode.from_tensor(tensor) for leaf, tensor in inputs.items()}
        with mode, suppress(*_ASKS_FOR_DATA), self._running(OnParts()):
            self._loss(given, lambda: None)
            self._add_up()

    @contextmanager
    def _running(self, parts: OnParts) -> Iterator[None]:
        """Inside, the model runs on DTensors. What these cannot run is raised as an InputError."""
        attention = attention_kernels(self.program.builder, self.device)
        with (
            implicit_replication(),
            attention,
            parts,
            MeanLosses(),
            self._outputs.redistributed(self.program.example.module),
        ):
            try:
                yield
            except (InputError, *_ASKS_FOR_DATA):
                raise
            except Exception as error:  # whatever DTensor raises of what the model runs without it
                if isinstance(error.__cause__, _ASKS_FOR_DATA):  # DTensor's own, as it plans between meshes' axes
                    raise error.__cause__ from None
                name = self.program.example.name
                raise InputError(f"{name}: DTensor cannot run this plan: {reason(error)}") from error

    def _loss(self, inputs: Mapping[int, Tensor], between: Callable[[], None]) -> DTensor:
        """The loss, whose backward pass has run; `between` is called before that."""
        example, program = self.program.example, self.program
        whole = dict(enumerate(tensors_in((example.args, example.kwargs)))) | dict(inputs)
        first = {leaf: program.repeated.get(leaf, leaf) for leaf in whole}
        given = {leaf: self._put(whole[own], self._inputs.get(own, self._whole)) for leaf, own in first.items()}
        for leaf, own in first.items():
            given[leaf].requires_grad_(whole[own].requires_grad)
        args, kwargs = program.arguments(given)
        read = self._said.read
        tensors: dict[str, Tensor] = {
            name: weight.redistribute(placements=read.get(name, weight.placements))
            for name, weight in self._weights.items()
        }
        tensors.update(self._buffers)
        named = {f"model.{name}": tensor for name, tensor in tensors.items()}
        step = _Step(example.module, program.loss_from, between)
        total = torch.func.functional_call(step, named, args, kwargs)
        changed = {name: named[f"model.{name}"] for name in self._buffers}  # or assigned to
        self._buffers = {name: each for name, each in changed.items() if isinstance(each, DTensor)}
        assert isinstance(total, DTensor)
        return total

    def _add_up(self) -> None:
        """Gradients as weights are stored: sums over the devices that have made parts of them."""
        for name, weight in self._weights.items():
            gradient, weight.grad = weight.grad, None
            if isinstance(gradient, DTensor):
                self._gradients[name] = gradient.redistribute(placements=self._stored(name))
                self._parts[name].grad = self._gradients[name].to_local()

    # ---- tensors -----------------------------------------------------------------------------------------

    def weights(self) -> Mapping[str, Tensor]:
        """All weights, whole, in the first process of the mesh; to be called by all, as what follows."""
        return self._full(self._weights)

    def gradients(self) -> Mapping[str, Tensor]:
        """The gradients of these in the latest step."""
        return self._full(self._gradients)

    def buffers(self) -> Mapping[str, Tensor]:
        """The buffers that a step changes."""
        changed = self.program.builder.program.changed or {}
        return self._full({name: buffer for name, buffer in self._buffers.items() if name in changed})

    @property
    def _is_first(self) -> bool:
        return self._mesh.get_rank() == self._said.devices[0]

    def _full(self, tensors: Mapping[str, DTensor]) -> dict[str, Tensor]:
        if not self._mine:
            return {}
        with torch.no_grad():
            whole = {name: each.full_tensor() for name, each in tensors.items()}
        return whole if self._is_first else {}

    def _stored(self, name: str) -> Placements:
        return self._said.stored.get(name, self._whole)

    def _put(self, tensor: Tensor, placements: Placements) -> DTensor:
        """What this process has of a tensor that all have: nothing is sent."""
        whole = tensor.detach().to(self.device)
        put = distribute_tensor(whole, self._mesh, placements, src_data_rank=None)
        own = put.to_local().clone(memory_format=torch.contiguous_format)  # it may be in the memory of the whole
        return DTensor.from_local(own, self._mesh, placements, shape=put.shape, stride=put.stride())


class _Step(nn.Module):
    """Runs both passes of a model: in the backward pass, checkpoints read its weights again."""

    def __init__(self, model: nn.Module, loss_from: Callable[[object], Tensor], between: Callable[[], None]) -> None:
        super().__init__()
        self.model, self._loss_from, self._between = model, loss_from, between

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        loss = self._loss_from(self.model(*args, **kwargs))
        self._between()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss


def _by_leaf(program: CapturedProgram, placements: Mapping[int, Placements]) -> dict[int, Placements]:
    """The placements of inputs by their leaf in the model's arguments, in place of their number in signatures."""
    first, numbers = -1 - len(program.step.weights), program.builder.signer.inputs
    found: dict[int, Placements] = {}
    for part in program.parts:
        for node, leaf in part.inputs.items():
            if node in numbers and first - numbers[node] in placements:
                found[leaf] = placements[first - numbers[node]]
    return found
