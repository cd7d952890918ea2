"""Pipelines of small models: plans, the job that trains by them in processes, and the same training without."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from envs.pass_orders import Ranks
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY, Schedule, Zero
from envs.running.captured_program import CapturedProgram
from envs.running.pipelined.pipelined_step import PipelinedStep
from envs.running.pipelined.replicated_step import ReplicatedStep
from envs.running.plan_rules import is_replicated, is_sharded
from envs.running.processes import Process
from envs.running.running_step import RunningStep, Span, StepRecord
from envs.running.sharded.sharded_step import ShardedStep
from graphs.capture.examples import Example
from graphs.families.gnmt import Translator
from graphs.files.load import load_cluster
from graphs.problem import Problem
from graphs.transforms.freezing import freeze_layers
from tests.envs.placed_models.models import MODELS as COMMON
from tests.envs.placed_models.models import WIDTH, WORDS, Made
from tests.envs.running.trained_models import STOPPED, stopped
from tests.graphs.gradient_stops import OWN
from tests.graphs.masked import Masked

NAMES = (*STOPPED, *(f"own: {name}" for name in OWN))  # of models of rows
SAMPLES, STEPS, RATE, PROCESSES = 8, 3, 1e-3, 4
Arrays = dict[str, np.ndarray]


def translator() -> Made:
    """A recurrent net with attention, whose weights each time step reads."""
    torch.manual_seed(0)

    def sentences(batch: int, random: torch.Generator) -> dict[str, Tensor]:
        source, target = torch.randint(0, WORDS, (2, batch, 3), generator=random)
        return {"source": source, "target": target}

    return Translator(1, WIDTH, WORDS), sentences


def attention() -> Made:
    """An encoder, which PyTorch computes by other ops for one sentence."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, WIDTH, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), layer, nn.Linear(WIDTH, WORDS))
    return model, lambda batch, random: {"input": torch.randint(0, WORDS, (batch, 3), generator=random)}


def masked() -> Made:
    """A model that asks whether a mask leaves anything out, as it does in the last sample alone."""
    return Masked(), lambda batch, random: {"x": torch.randn(batch, 4), "mask": torch.arange(batch) < batch - 1}


def in_rows(name: str) -> Made:
    """A model that stops gradients, or calls custom functions."""
    example = stopped(name)
    [x] = example.args
    assert isinstance(x, Tensor)
    width = x.shape[1]
    return example.module, lambda batch, random: {"x": torch.randn(batch, width, generator=random)}


MODELS: dict[str, Callable[[], Made]] = {
    **COMMON, "translator": translator, "attention": attention, "masked": masked,
    **{name: partial(in_rows, name) for name in NAMES},
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A model, and a plan of it. Each rank is one device, or as many as there are replicas."""

    model: str
    ranks: Ranks
    order: str = AS_READY.name
    micro_batches: int = 4
    replicas: int = 1
    recompute: tuple[int, ...] = ()
    shares: tuple[tuple[int, ...], ...] = ()
    as_pipeline: bool = False  # of one stage, not as replicas of the module
    frozen: int = 0  # first layers
    zero: Zero = 0
    shard_group: int = 0
    offload: bool = False  # to device 0, which is a CPU then
    devices: tuple[int, ...] = ()  # in the order of ranks, replica by replica; 0, 1, 2, ... unless given

    @property
    def stages(self) -> int:
        return sum(map(len, self.ranks))

    def program(self) -> CapturedProgram:
        """The model with its first weights; it is traced once."""
        program, first = _traced(self.model)
        program.example.module.load_state_dict(first)
        program.example.module.zero_grad()
        return program

    def problem(self, program: CapturedProgram) -> Problem:
        return Problem(
            freeze_layers(program.step, self.frozen),
            load_cluster(f"cpu_gpu:gpus={PROCESSES - 1}" if self.offload else f"p100x{PROCESSES}"),
        )

    def plan(self, problem: Problem) -> Plan:
        """As many units in each stage, in the order of their first ops."""
        graph, numbers = problem.graph, self.devices or range(len(self.ranks) * self.replicas)
        stage = (graph.units * self.stages // graph.num_units).tolist()
        rank_of = {number: rank for rank, stages in enumerate(self.ranks) for number in stages}
        of_rank = [tuple(numbers[rank * self.replicas :][: self.replicas]) for rank in range(len(self.ranks))]
        schedule = Schedule(
            self.micro_batches, tuple(stage), self.order, self.recompute, "block" if self.zero else "late",
            shares=self.shares, zero=self.zero, shard_group=self.shard_group, offload=self.offload,
        )  # fmt: skip
        return Plan(tuple(of_rank[rank_of[number]] for number in stage), schedule=schedule)

    def batches(self, program: CapturedProgram) -> list[dict[int, Tensor]]:
        """The inputs of each step by leaf."""
        inputs = MODELS[self.model]()[1]
        random = torch.Generator().manual_seed(2)
        return [dict(enumerate(tree_leaves(inputs(SAMPLES, random)))) for _ in range(STEPS)]


@cache
def _traced(model: str) -> tuple[CapturedProgram, dict[str, Tensor]]:
    torch.manual_seed(1)
    module, inputs = MODELS[model]()
    for each in module.modules():
        if isinstance(each, nn.Dropout):
            each.p = 0.0  # random numbers would be others in each process
    drawn = inputs(SAMPLES, torch.Generator().manual_seed(1))
    program = CapturedProgram.of(Example(module, (), drawn, model, SAMPLES))
    return program, {name: tensor.clone() for name, tensor in module.state_dict().items()}


def adam(weights: Sequence[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.Adam(weights, lr=RATE)


@dataclass
class Result:
    """What a training ends with, or a process of it."""

    losses: list[float] = field(default_factory=list)
    weights: Arrays = field(default_factory=dict)
    gradients: Arrays = field(default_factory=dict)
    buffers: Arrays = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)  # of the last step


@dataclass(frozen=True)
class Trainings:
    """Train by one plan after another; the inputs of every step are new."""

    cases: tuple[Case, ...]

    def __call__(self, process: Process) -> list[Result]:
        return [self._trained(case, process) for case in self.cases]

    def _trained(self, case: Case, process: Process) -> Result:
        program = case.program()
        problem = case.problem(program)
        plan, record = case.plan(problem), StepRecord()
        made: type[ReplicatedStep | PipelinedStep] = (
            ShardedStep if is_sharded(problem, plan) and not case.as_pipeline else PipelinedStep
        )
        if is_replicated(problem, plan) and not case.as_pipeline:
            made = ReplicatedStep
        step: RunningStep = made(program, problem, plan, process, adam)
        batches = case.batches(program)
        losses = [step.run(inputs) for inputs in batches[:-1]] + [step.run(batches[-1], record)]
        weights, gradients, buffers = map(arrays, (step.weights(), step.gradients(), step.buffers()))
        return Result(losses, weights, gradients, buffers, list(record.spans))


def unplaced(case: Case) -> Result:
    """The model itself, trained on the same parts of the same inputs."""
    program = case.program()
    module, graph = program.example.module, case.problem(program).graph
    frozen = {graph.weight_names[number] for number in np.flatnonzero(graph.frozen)}
    trained = {name: weight for name, weight in module.named_parameters() if name not in frozen}
    optimizer = adam(list(trained.values()))
    result, parts = Result(), case.replicas * case.micro_batches
    for inputs in case.batches(program):
        optimizer.zero_grad()
        losses = [_loss(module, program, inputs, part, parts) for part in range(parts // case.replicas)]
        buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        losses += [_loss(module, program, inputs, part, parts) for part in range(parts // case.replicas, parts)]
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])  # of the first replica
        result.losses.append(sum(losses))
        optimizer.step()
    gradients = {name: weight.grad for name, weight in trained.items() if weight.grad is not None}
    result.weights, result.gradients = arrays({name: trained[name] for name in gradients}), arrays(gradients)
    result.buffers = arrays(dict(module.named_buffers()))
    return result


def _loss(module: nn.Module, program: CapturedProgram, inputs: Mapping[int, Tensor], part: int, parts: int) -> float:
    size = SAMPLES // parts
    names = program.example.kwargs
    cut = {name: inputs[leaf][part * size : (part + 1) * size] for leaf, name in enumerate(names)}
    outputs = tree_leaves(module(**cut))
    summed = [outputs[position] for position in program.loss_outputs]
    loss = torch.stack([output.sum() for output in summed]).sum() / (parts if program.returns_loss else 1)
    loss.backward()  # type: ignore[no-untyped-call]
    return float(loss.detach())


def arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    return {name: tensor.detach().numpy().copy() for name, tensor in tensors.items()}
