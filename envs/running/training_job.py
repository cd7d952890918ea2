"""The job of a run: in each process, train the model for some steps as the plan says, and keep what they took."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice

import torch
from safetensors.torch import save
from torch import Tensor, distributed

from envs.plan import Plan
from envs.running.adam import Adam
from envs.running.captured_program import CapturedProgram
from envs.running.clock import now
from envs.running.measured_timeline import RecordedStep
from envs.running.model_data import batches, seeded_example
from envs.running.process_memory import MemoryGrowth
from envs.running.processes import Process
from envs.running.running_step import Record, RunningStep
from envs.simulation.simulator import LaidOut
from graphs.problem import Problem

StepOf = Callable[[CapturedProgram, Problem, Plan, Process, Adam], RunningStep]
"""A way of running a plan: the part of its step that a process runs."""


@dataclass(frozen=True)
class Training:
    """What is trained, and how: the same in every process, and without a plan."""

    model: str  # a family spec, or "path/to/file.py:callable"
    steps: int
    samples: int = 0  # of a step, if not the model's own
    seed: int = 0
    data: str = ""  # "path/to/file.py:callable", whose batches are the user's
    learning_rate: float = 1e-3  # of Adam, as what follows
    epsilon: float = 1e-8

    @property
    def adam(self) -> Adam:
        """The optimizer."""
        return Adam(self.learning_rate, eps=self.epsilon)


@dataclass(frozen=True)
class State:
    """Tensors by name that a process holds at the end."""

    weights: bytes  # safetensors, as all of these: plain data, which goes through a socket
    gradients: bytes  # of the last step
    buffers: bytes

    @classmethod
    def of(cls, step: RunningStep) -> State:
        """What a step's process holds now."""
        return cls(*map(packed, (step.weights(), step.gradients(), step.buffers())))


@dataclass(frozen=True)
class Trained:
    """What a process did."""

    laid: LaidOut | None  # what its records are of; of the first process alone
    steps: list[RecordedStep]
    growth_bytes: float  # the most memory that steps took beyond what was held before the first one; NaN if unknown
    state: State | None  # if it is asked for


@dataclass(frozen=True)
class TrainingJob:
    """Train by a plan; `Workers` do it in every process."""

    training: Training
    problem: Problem
    plan: Plan
    way: StepOf
    keep_state: bool = False

    def __call__(self, process: Process) -> Trained:
        """Raises InputError for a model or a plan that cannot be run."""
        program, data = _program(process, self.training), self.training.data
        program.check(self.problem.graph)
        step = self.way(program, self.problem, self.plan, process, self.training.adam)
        gc.collect()
        memory = MemoryGrowth(process.device)
        steps = [
            _step(step, {leaf: tensor.to(process.device) for leaf, tensor in batch.items()}, process.device)
            for batch in islice(batches(program.example, data, seed=self.training.seed), self.training.steps)
        ]
        state = State.of(step) if self.keep_state else None
        return Trained(step.laid if process.rank == 0 else None, steps, memory.bytes(), state)


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as plain data."""
    return save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})


def _step(step: RunningStep, inputs: Mapping[int, Tensor], device: torch.device) -> RecordedStep:
    """Run a step, which all processes begin together."""
    record = Record()
    gc.collect()
    gc.disable()  # else it may come in between
    distributed.barrier()
    began = now(device)
    loss = step.run(inputs, record)
    ended = now(device)
    gc.enable()
    return RecordedStep(began, ended, loss, record)


def _program(process: Process, training: Training) -> CapturedProgram:
    """The model with its first weights; it is traced once."""
    key = training.model, training.samples, training.seed
    if key not in process.kept:
        program = CapturedProgram.of(seeded_example(training.model, training.seed, training.samples))
        held = {name: tensor.detach().clone() for name, tensor in _held(program).items()}
        process.kept.clear()  # one model at a time
        process.kept[key] = program, held
        gc.collect()
        gc.freeze()  # what stays need not be looked through again
    program, held = process.kept[key]  # type: ignore[misc]  # as they were kept
    with torch.no_grad():
        for name, tensor in _held(program).items():
            tensor.copy_(held[name])
    return program


def _held(program: CapturedProgram) -> dict[str, Tensor]:
    return {**program.weights, **program.buffers}
