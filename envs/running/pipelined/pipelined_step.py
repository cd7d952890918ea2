"""A step of a plan with stages and micro-batches, run by PyTorch's runtime of pipelines.

    replica 0    device 0: stage 0  --  device 2: stage 1
                     |                      |             gradients are added up over replicas after the last pass
    replica 1    device 1: stage 0  --  device 3: stage 1

Replicas divide the batch, and each divides its part into micro-batches. Its stages are a pipeline of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining._backward import stage_backward_weight

from envs.expansion.layout import Layout
from envs.pass_orders import Pass, PassKind
from envs.pipelines.grain.expand_stages import expand_stages
from envs.plans.plan import Plan
from envs.running.batches_as_planned import check_batch
from envs.running.captured_program import CapturedProgram
from envs.running.clock import Mark, mark
from envs.running.divided_batch import divided, parts_of_replica, program_of_part
from envs.running.pipelined.divided_updates import DividedUpdates
from envs.running.pipelined.pass_records import PassRecords
from envs.running.pipelined.schedule_rows import ScheduleRows
from envs.running.pipelined.shared_gradients import SharedGradients, group_of, together
from envs.running.pipelined.stage_modules import (
    StageModule,
    StageProgram,
    carried,
    examples,
    stage_programs,
    trained_weights,
)
from envs.running.pipelined.torch_schedules import schedule_of
from envs.running.plan_rules import check_pipeline
from envs.running.processes import Process
from envs.running.progress import ACTIVITY
from envs.running.running_step import StepRecord
from envs.simulation.simulator import LaidOut
from graphs.foundation.errors import InputError
from graphs.op_graph import Call, Ints, Phase
from graphs.problem import Problem

MadeOptimizer = Callable[[Sequence[Tensor]], torch.optim.Optimizer]
"""What makes the optimizer of some weights."""


def stages_of(
    program: CapturedProgram, problem: Problem, plan: Plan, kept: dict[object, object]
) -> tuple[CapturedProgram, list[StageProgram]]:
    """The model, captured with the inputs of a micro-batch, and what each stage of a plan runs of it.

    `kept` keeps the former for other plans. Raises InputError for a plan or a model that cannot be run so.
    """
    rows = check_pipeline(problem, plan)
    small = program_of_part(program, len(rows.devices[0]) * plan.schedule.micro_batches, kept)
    forward = np.flatnonzero(problem.graph.phase == Phase.FORWARD)
    stages = stage_programs(small, _stage_of_part(program, small, Layout(problem, plan).stage[forward]))
    small.check_parts([stage.part for stage in stages])
    return small, stages


class PipelinedStep:
    """What one process runs of it: the stages that its device has, of one replica."""

    def __init__(
        self, program: CapturedProgram, problem: Problem, plan: Plan, process: Process, optimizer: MadeOptimizer
    ) -> None:
        """All processes make theirs together. Raises InputError for a plan or a model that cannot be run so."""
        rows = check_pipeline(problem, plan)
        small, stages = stages_of(program, problem, plan, process.kept)
        expansion = expand_stages(problem, plan)
        self.laid = LaidOut(expansion.problem, expansion.placement, expansion.order, expansion)
        self._replicas, self._micro_batches = len(rows.devices[0]), plan.schedule.micro_batches
        self._samples, self._small = program.example.samples, small
        self._place = _place(rows, process.rank)
        hosted = () if self._place is None else rows.ranks[self._place[0]]
        pipelines = [tuple(replicas[replica] for replicas in rows.devices) for replica in range(self._replicas)]
        groups = [group_of(tuple(sorted(devices))) for devices in pipelines]
        trained = trained_weights(program, problem.graph)
        through = carried(small, trained)
        self._weights = _weights(small, [stages[number] for number in hosted], trained, process.device)
        scale = 1.0 / (self._replicas * self._micro_batches) if small.returns_loss else 1.0
        self._modules = {
            number: StageModule(
                small, stages[number], self._weights, process.device, through,
                loss_scale=scale, recompute=number in plan.schedule.recompute,
            ) for number in hosted
        }  # fmt: skip
        self._trained = {name: weight for name, weight in self._weights.items() if weight.requires_grad}
        self._shared = SharedGradients(_holders(stages, rows, trained), self._trained, plan.schedule.bucket_bytes)
        self._changed = {name: number for number in hosted for name in stages[number].part.updates}
        self._siblings = [group_of(tuple(sorted(devices))) for devices in rows.devices] if self._replicas > 1 else []
        self._rows, self._device = rows, process.device
        is_divided = plan.schedule.zero > 0 and self._replicas > 1
        self._updates = self._divided_updates(plan, process.rank) if is_divided else None
        updated = list(self._trained.values()) if self._updates is None else self._updates.own(process.rank)
        self._optimizer = optimizer(updated) if updated else None
        self._records = PassRecords(expansion, process.rank)
        self._stages: list[_TimedStage] = []
        if self._place is not None:
            devices, group = pipelines[self._place[1]], groups[self._place[1]]
            group_rank = tuple(sorted(devices).index(device) for device in devices)
            sent = [*(examples(stage.sent, through) for stage in stages[:-1]), (torch.zeros(()),)]  # the loss
            received = [examples(stage.received, through) for stage in stages]
            self._stages = [
                _TimedStage(
                    self._modules[number], number, len(stages), process.device,
                    input_args=received[number], output_args=sent[number], group=group,
                ) for number in hosted
            ]  # fmt: skip
            self._schedule = schedule_of(
                plan.schedule.order.name, rows, self._micro_batches, list(self._stages), group_rank
            )  # fmt: skip

    def run(self, inputs: Mapping[int, Tensor], record: StepRecord | None = None) -> float:
        """One step (`envs.running.running_step`)."""
        if self._place is None:
            return 0.0
        rank, replica = self._place
        if self._small.builder.program.answers:
            for part in divided(inputs, self._replicas * self._micro_batches, self._samples):
                check_batch(self._small, part, "a micro-batch")  # in all processes, so that none waits for another
        parts = parts_of_replica(inputs, self._samples, (1,) * self._replicas, replica, self._micro_batches)
        for stage, module in zip(self._stages, self._modules.values(), strict=True):
            module.begin_step(parts)
            stage.passes = None if record is None else []
        for weight in self._weights.values():
            weight.grad = None
        losses: list[Tensor] = []
        ACTIVITY.note("the messages that its first pass reads", waits=True, after=mark(self._device))
        self._schedule.step(target=torch.zeros(self._micro_batches), losses=losses, return_outputs=False)
        self._shared.add_up()
        began = mark(self._device)
        ACTIVITY.note("the update", after=began)
        if self._optimizer is not None:
            self._optimizer.step()
        if self._updates is not None:
            self._updates.gather()
        if record is not None:
            passes = [each for stage in self._stages for each in stage.passes or ()]
            record.spans += self._records.spans([*passes, (None, began, mark(self._device))], self._device)
        if self._siblings:
            self._take_buffers(rank)
        return float(sum(loss.detach() for loss in losses))

    def weights(self) -> Mapping[str, Tensor]:
        """The weights of this device's stages, by name."""
        return {name: weight for name, weight in self._trained.items() if weight.grad is not None}

    def gradients(self) -> Mapping[str, Tensor]:
        """Their gradients in the latest step."""
        return {name: weight.grad for name, weight in self._trained.items() if weight.grad is not None}

    def buffers(self) -> Mapping[str, Tensor]:
        """The buffers that these stages change."""
        return {name: self._modules[number].get_buffer(name) for name, number in self._changed.items()}

    def _divided_updates(self, plan: Plan, device: int) -> DividedUpdates | None:
        """Who updates which weights, of this device's; all processes make theirs together."""
        found, size = None, plan.schedule.shard_group or self._replicas
        for devices in self._rows.devices:
            for first in range(0, self._replicas, size):
                members = tuple(sorted(devices[first : first + size]))
                group = group_of(members)
                if device in members:
                    found = DividedUpdates(list(self._trained.values()), members, group, plan.schedule.bucket_bytes)
        return found

    def _take_buffers(self, rank: int) -> None:
        """Take the buffers of the first replica, as PyTorch's DistributedDataParallel does."""
        of_type: dict[torch.dtype, list[Tensor]] = {}
        for buffer in self.buffers().values():
            of_type.setdefault(buffer.dtype, []).append(buffer)
        for tensors in of_type.values():
            together(self._siblings[rank], tensors, source=self._rows.devices[rank][0])


class _TimedStage(PipelineStage):
    """A stage that tells its module which micro-batch is run, and notes when each pass ran."""

    passes: list[tuple[Pass, Mark, Mark]] | None = None

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        assert isinstance(self.submod, StageModule)
        self.submod.begin_pass(fwd_chunk_id)
        run = super().forward_one_chunk
        return self._noted(PassKind.FORWARD, fwd_chunk_id, lambda: run(fwd_chunk_id, *args, **kwargs))

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        kind = PassKind.BACKWARD if full_backward else PassKind.INPUT_GRADIENT
        run = super().backward_one_chunk
        self._noted(kind, bwd_chunk_id, lambda: run(bwd_chunk_id, loss, full_backward, last_backward))

    def backward_maybe_with_nosync(
        self, backward_type: str, bwd_kwargs: dict[str, Any], last_backward: bool = False
    ) -> tuple[tuple[Tensor | None, ...], list[dict[str, Any]] | None]:
        """As PyTorch's, which frees what autograd has saved for one weight, and may need it for another one.

        So it is where a recurrent net reads its weights in every step. It is freed with the pass instead.
        """
        if backward_type != "weight":
            return super().backward_maybe_with_nosync(backward_type, bwd_kwargs, last_backward)
        found = stage_backward_weight(self.submod.parameters(), bwd_kwargs["param_groups"], retain_graph=True)
        return found, None

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        run = super().backward_weight_one_chunk
        self._noted(PassKind.WEIGHT_GRADIENT, bwd_chunk_id, lambda: run(bwd_chunk_id, last_backward))

    def _noted(self, kind: PassKind, micro_batch: int, run: Callable[[], Any]) -> Any:
        each, start = Pass(self.stage_index, kind, micro_batch), mark(self.device)
        ACTIVITY.note(f"pass {each} of stage {each.stage}", after=start)
        result = run()
        end = mark(self.device)
        ACTIVITY.note(f"messages after pass {each} of stage {each.stage}", waits=True, after=end)
        if self.passes is not None:
            self.passes.append((each, start, end))
        return result


def _place(rows: ScheduleRows, device: int) -> tuple[int, int] | None:
    """The rank and the replica of a device, if it has any stage."""
    for rank, replicas in enumerate(rows.devices):
        if device in replicas:
            return rank, replicas.index(device)
    return None


def _stage_of_part(program: CapturedProgram, small: CapturedProgram, stage: Ints) -> Ints:
    """The stage of each forward op of a model that was captured with a part of its inputs, given those with all.

    With a single sample, or a single step, PyTorch may compute a call by other ops: these are in the call's last stage.
    Raises InputError for a call that is not made with all inputs.
    """
    ops = small.loss + 1
    if small.step.names[:ops] == program.step.names[: program.loss + 1]:
        return stage
    latest: dict[Call, int] = {}
    for call, number in zip(program.step.calls, stage.tolist(), strict=False):  # the graph has more ops
        if call is not None:
            latest[call] = max(latest.get(call, 0), number)
    found = [-1 if call is None else latest.get(call, -1) for call in small.step.calls[: small.loss]]
    edges = small.step.edges[small.step.edges[:, 1] < small.loss]
    for producer, consumer in edges[np.argsort(edges[:, 1], kind="stable")].tolist():
        found[consumer] = max(found[consumer], found[producer])
    if len(found) < small.loss or min(found) < 0:
        example = small.example
        raise InputError(
            f"{example.name}: the model makes other calls with {example.samples} samples than with "
            f"{program.example.samples}, so that the plan does not say where these are; divide the batch into fewer "
            "parts"
        )
    return np.array([*found, int(stage[-1])])


def _weights(
    program: CapturedProgram, stages: list[StageProgram], trained: frozenset[str], device: torch.device
) -> dict[str, nn.Parameter]:
    """The weights of some stages on a device, by name; those that are not trained need no gradients."""
    names = dict.fromkeys(name for stage in stages for name in stage.part.weights.values())
    found = {}
    for name in names:
        weight, is_trained = program.weights[name], name in trained
        as_it_is = weight.device == device and weight.requires_grad == is_trained
        found[name] = weight if as_it_is else nn.Parameter(weight.detach().to(device), is_trained)
    return found


def _holders(stages: list[StageProgram], rows: ScheduleRows, trained: frozenset[str]) -> dict[str, tuple[int, ...]]:
    """By trained weight the devices of all stages that use it, ascending."""
    found: dict[str, set[int]] = {}
    for replicas, hosted in zip(rows.devices, rows.ranks, strict=True):
        for number in hosted:
            for name in trained.intersection(stages[number].part.weights.values()):
                found.setdefault(name, set()).update(replicas)
    return {name: tuple(sorted(devices)) for name, devices in found.items()}
