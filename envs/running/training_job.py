"""The job of a run: in each process, train the model for some steps as the plan says, and keep what they took."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice

import torch
from safetensors.torch import load, save
from torch import Tensor, distributed

from envs.plans.plan import Plan
from envs.running.adam import Adam
from envs.running.batches_as_planned import batches_as_planned
from envs.running.captured_program import CapturedProgram
from envs.running.clock import now
from envs.running.measured_timeline import RecordedStep
from envs.running.model_data import seeded_example
from envs.running.process_memory import Growth, MemoryGrowth, free_bytes
from envs.running.processes import Process
from envs.running.progress import ACTIVITY
from envs.running.reference import Results, unplaced
from envs.running.running_step import RunningStep, StepRecord
from envs.running.same_draws import SameDraws
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
    """The loss of a step and tensors by name that a process holds after it, as plain data, which goes through a socket.

    Tensors are in the format of safetensors.
    """

    loss: float
    weights: bytes
    gradients: bytes
    buffers: bytes

    @classmethod
    def of(cls, results: Results) -> State:
        """What a process sends."""
        return cls(results.loss, *map(packed, (results.weights, results.gradients, results.buffers)))

    def results(self) -> Results:
        """What another process has sent."""
        return Results(self.loss, *map(load, (self.weights, self.gradients, self.buffers)))


@dataclass(frozen=True)
class Unplaced:
    """What the first step is without a plan, or why it was not made."""

    state: State | None
    epsilon: float = 0.0  # of Adam, with which a step by a plan is comparable
    drew: bool = False  # whether random numbers were drawn
    rounding: float = 0.0  # relative, of the least precise numbers
    needed_bytes: float = 0.0  # what it would have taken
    free_bytes: float = 0.0  # on the device


@dataclass(frozen=True)
class UnplacedJob:
    """The first step without a plan, in the first process and on its device; all others have nothing to say."""

    training: Training
    shares: tuple[int, ...]  # of its replicas
    micro_batches: int
    needed_bytes: float  # about what it takes, by the simulation of one device

    def __call__(self, process: Process) -> Unplaced | None:
        """Raises InputError for a model or batches that cannot be run."""
        ACTIVITY.note("the step of the unplaced model")
        program, training = _program(process, self.training), self.training
        free = free_bytes(process.device)
        too_large = Unplaced(None, needed_bytes=self.needed_bytes, free_bytes=free)
        if process.rank or self.needed_bytes > free:
            return None if process.rank else too_large
        batch = next(batches_as_planned(program, training.data, seed=training.seed))
        try:
            with torch.random.fork_rng():
                module = seeded_example(training.model, training.seed, training.samples).module.to(process.device)
                inputs = {leaf: tensor.to(process.device) for leaf, tensor in batch.items()}
                made = unplaced(
                    program, module, inputs, training.adam, shares=self.shares, micro_batches=self.micro_batches
                )
            return Unplaced(State.of(made.results), made.epsilon, made.drew, made.rounding)
        except torch.OutOfMemoryError:
            return too_large
        finally:
            if process.device.type != "cpu":
                torch.accelerator.empty_cache()  # NCCL and other processes on the card take of the same memory


@dataclass(frozen=True)
class TrainedSteps:
    """What a process did."""

    laid: LaidOut | None  # what its records are of; of the first process alone
    steps: list[RecordedStep]
    growth: Growth  # of memory, by steps
    state: State | None  # after the last step, if it is asked for


@dataclass(frozen=True)
class TrainingJob:
    """Train by a plan; `Workers` do it in every process.

    Where the state is kept, to be compared, each operation that draws random numbers draws the same.
    """

    training: Training
    problem: Problem
    plan: Plan
    way: StepOf
    keep_state: bool = False

    def __call__(self, process: Process) -> TrainedSteps:
        """Raises InputError for a model or a plan that cannot be run."""
        gc.collect()  # what the job before has left
        ACTIVITY.note("the preparation of its part of the step")
        program, data = _program(process, self.training), self.training.data
        program.check(self.problem.graph)
        step = self.way(program, self.problem, self.plan, process, self.training.adam)
        gc.collect()
        memory = MemoryGrowth(process.device)
        with SameDraws() if self.keep_state else nullcontext():
            steps = [
                _step(step, {leaf: tensor.to(process.device) for leaf, tensor in batch.items()}, process.device)
                for batch in islice(batches_as_planned(program, data, seed=self.training.seed), self.training.steps)
            ]
        state = None
        if self.keep_state:
            state = State.of(Results(steps[-1].loss, step.weights(), step.gradients(), step.buffers()))
        return TrainedSteps(step.laid if process.rank == 0 else None, steps, memory.growth(), state)


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as plain data."""
    return save({name: tensor.detach().to_dense().cpu().contiguous().clone() for name, tensor in tensors.items()})


def _step(step: RunningStep, inputs: Mapping[int, Tensor], device: torch.device) -> RecordedStep:
    """Run a step, which all processes begin together."""
    record = StepRecord()
    gc.collect()
    gc.disable()  # else it may come in between
    ACTIVITY.note("the others to begin a step", waits=True)
    distributed.barrier()
    ACTIVITY.note("a step")
    began = now(device)
    loss = step.run(inputs, record)
    ended = now(device)
    ACTIVITY.end_step(loss)
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
