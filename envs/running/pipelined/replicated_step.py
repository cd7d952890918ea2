"""A step of a plan with one stage on several devices: the user's module under DistributedDataParallel.

Each replica runs its part of the batch, in micro-batches if there are several, and PyTorch adds up gradients while the
last backward pass runs, bucket by bucket.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel

from envs.expansion.expanded import Expansion
from envs.expansion.layout import Layout
from envs.pass_orders import Pass, PassKind
from envs.plans.plan import Plan
from envs.running.captured_program import CapturedProgram
from envs.running.clock import Mark, mark
from envs.running.divided_batch import check_divisible, parts_of_replica
from envs.running.pipelined.pass_records import PassRecords
from envs.running.pipelined.pipelined_step import MadeOptimizer
from envs.running.pipelined.shared_gradients import group_of
from envs.running.pipelined.stage_modules import trained_weights
from envs.running.plan_rules import check_pipeline
from envs.running.processes import Process
from envs.running.progress import ACTIVITY
from envs.running.running_step import StepRecord
from envs.simulation.simulator import LaidOut
from graphs.problem import Problem

_MIB = 2**20


def shares_of_replicas(problem: Problem, plan: Plan) -> tuple[int, ...]:
    """(devices,) the parts of the batch that replicas of such a plan take, in the order of their devices."""
    devices = Layout(problem, plan).stage_devices[0]
    shares = plan.schedule.shares[0] if plan.schedule.shares else (1,) * len(devices)
    return tuple(share for _, share in sorted(zip(devices, shares, strict=True)))


class ReplicatedStep:
    """What one process runs of it: a replica."""

    def __init__(
        self, program: CapturedProgram, problem: Problem, plan: Plan, process: Process, optimizer: MadeOptimizer
    ) -> None:
        """All processes make theirs together. Raises InputError for a plan that cannot be run."""
        devices = self._joined(problem, plan, process.device)  # all processes take part
        check_divisible(program)
        self.laid = LaidOut.of(problem, plan)
        assert self.laid.expansion is not None  # it has replicas
        devices = tuple(sorted(devices))
        self._shares, self._micro_batches = shares_of_replicas(problem, plan), plan.schedule.micro_batches
        self._replica = devices.index(process.rank) if process.rank in devices else -1
        self._program, self._device = program, process.device
        if self._replica < 0:
            return
        self._records = self._records_of(self.laid.expansion, process.rank)
        module = deepcopy(program.example.module).to(process.device)  # hooks of replicas stay on their module
        module.register_forward_pre_hook(self._note_forward, prepend=True)
        self._before = self._awaited(module)
        read = set(program.step.weight_names)  # all others have no gradient, for which PyTorch would wait
        names = trained_weights(program, problem.graph) & read
        for name, weight in module.named_parameters():
            weight.requires_grad_(name in names)
        self._module = self._wrapped(module, plan)
        self._optimizer = optimizer([weight for weight in module.parameters() if weight.requires_grad])

    def run(self, inputs: Mapping[int, Tensor], record: StepRecord | None = None) -> float:
        """One step (`envs.running.running_step`)."""
        if self._replica < 0:
            return 0.0
        samples = self._program.example.samples
        parts = parts_of_replica(inputs, samples, self._shares, self._replica, self._micro_batches)
        self._optimizer.zero_grad()
        losses, passes = list[Tensor](), list[tuple[Pass | None, Mark, Mark]]()
        for number, part in enumerate(parts):
            is_last = number + 1 == len(parts)
            with self._adding_up(is_last=is_last):
                began = mark(self._device)
                if self._before:
                    ACTIVITY.note(self._before, waits=True, after=began)
                loss = self._loss(part)
                middle = mark(self._device)
                ACTIVITY.note(f"the backward pass of micro-batch {number}", after=middle)
                scaled = loss * len(self._shares)  # gradients are averaged over replicas
                if is_last:
                    scaled.register_hook(self._note_sums)  # type: ignore[no-untyped-call]
                torch.autograd.backward(scaled)
                ended = mark(self._device)
            losses.append(loss.detach())
            passes.append((Pass(0, PassKind.FORWARD, number), began, middle))
            passes.append((Pass(0, PassKind.BACKWARD, number), middle, ended))
        began = mark(self._device)
        ACTIVITY.note("the update", after=began)
        self._optimizer.step()
        if record is not None:
            record.spans += self._records.spans([*passes, (None, began, mark(self._device))], self._device)
        return sum(map(float, losses))

    # ---- how replicas are joined ---------------------------------------------------------------------------

    def _joined(self, problem: Problem, plan: Plan, device: torch.device) -> tuple[int, ...]:  # noqa: ARG002 - others need it
        """The devices of the plan, whose processes can then add up gradients."""
        (devices,) = check_pipeline(problem, plan).devices
        self._group = group_of(tuple(sorted(devices)))
        return devices

    def _awaited(self, module: nn.Module) -> str:
        """What a forward pass waits for before it begins, or nothing."""
        return "the broadcast of the first replica's buffers" if any(True for _ in module.buffers()) else ""

    def _records_of(self, expansion: Expansion, rank: int) -> PassRecords:
        return PassRecords(expansion, rank)

    def _wrapped(self, module: nn.Module, plan: Plan) -> nn.Module:
        """The module, whose gradients are added up over replicas."""
        return DistributedDataParallel(
            module,
            device_ids=None if self._device.type == "cpu" else [self._device],
            process_group=self._group,
            bucket_cap_mb=plan.schedule.bucket_bytes / _MIB,
        )

    def _adding_up(self, *, is_last: bool) -> AbstractContextManager[None]:
        """The context in which a micro-batch is run, of which gradients may be added up over replicas."""
        assert isinstance(self._module, DistributedDataParallel)
        return nullcontext() if is_last else self._module.no_sync()

    # ---- what it ends with ---------------------------------------------------------------------------------

    def weights(self) -> Mapping[str, Tensor]:
        """All that have a gradient, by name."""
        return {name: weight for name, weight in self._own().named_parameters() if weight.grad is not None}

    def gradients(self) -> Mapping[str, Tensor]:
        """Their gradients in the latest step, added up."""
        return {name: weight.grad for name, weight in self.weights().items() if weight.grad is not None}

    def buffers(self) -> Mapping[str, Tensor]:
        """Those of the first replica, which all take before their next step."""
        return dict(self._own().named_buffers()) if self._replica == 0 else {}

    def _note_forward(self, *_: object) -> None:
        """Buffers are there."""
        ACTIVITY.note("a forward pass", after=mark(self._device))

    def _note_sums(self, _: Tensor) -> None:
        """As a backward pass begins: it is noted when all gradients are computed, before PyTorch waits for their sums.

        What is queued is called at the end of the pass, in order, and PyTorch queues its waiting with the last bucket.
        """
        what = "the all-reduces of gradients"
        Variable._execution_engine.queue_callback(lambda: ACTIVITY.note(what, waits=True, after=mark(self._device)))

    def _own(self) -> nn.Module:
        if self._replica < 0:
            return nn.Module()
        assert isinstance(self._module, DistributedDataParallel)
        module: nn.Module = self._module.module
        return module

    def _loss(self, inputs: Mapping[int, Tensor]) -> Tensor:
        """Of a micro-batch, as far as it counts in the step."""
        args, kwargs = self._program.arguments(inputs)
        with self._program.example.importing():
            loss = self._program.loss_from(self._module(*args, **kwargs))
        parts = sum(self._shares) * self._micro_batches / self._shares[self._replica]
        return loss / parts if self._program.returns_loss else loss
