"""A plan run in one process, as in a user's own loop: what its steps take, and whether the first one is the model's."""

import gc
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import torch
from torch import nn

from envs.running.batches_as_planned import batches_as_planned
from envs.running.captured_program import CapturedProgram
from envs.running.clock import finish
from envs.running.measured_run import RunSteps
from envs.running.model_data import Batch, seeded_example
from envs.running.process_memory import Growth, MemoryGrowth
from envs.running.reference import Difference, differences, loss_of, optimizers, unplaced
from envs.running.training_job import Training
from envs.timelines.timeline import Timeline
from graphs.foundation.progress import progress

Place = Callable[[nn.Module], nn.Module]
"""Lets a module run by the plan: it may move and change it."""


def run_in_loop(
    training: Training, predicted: Timeline, place: Place, devices: Sequence[torch.device], *, check: bool = False
) -> RunSteps:
    """Train a module that a plan runs, on one device of PyTorch for each of the plan's; some of them may be the same.

    With `check` the first step is made by the module alone as well, on the first device, and compared. A batch comes
    from the processor's memory. Raises InputError for a model or batches that cannot be run.
    """
    program = CapturedProgram.of(seeded_example(training.model, training.seed, training.samples))
    program.check(predicted.problem.graph)
    given = batches_as_planned(program, training.data, seed=training.seed)
    steps = list(islice(given, training.steps))
    apart = _compared(training, program, place, devices[0], steps[0]) if check else ()
    gc.collect()
    module, adam = place(_module(training)), training.adam
    memory = [MemoryGrowth(device) for device in devices]
    seconds, losses, made = list[float](), list[float](), list[torch.optim.Optimizer]()
    for batch in progress(steps, f"running {predicted.problem.graph.name}", unit="step", leave=False):
        gc.collect()
        began = _now(devices)
        for weight in module.parameters():
            weight.grad = None
        loss = loss_of(program, module, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        made = made or optimizers([weight for weight in module.parameters() if weight.grad is not None], adam)
        for optimizer in made:
            optimizer.step()
        seconds.append(_now(devices) - began)
        losses.append(float(loss.detach()))
    times = Counter(devices)
    unknown = Growth(math.nan, math.nan)  # of each of several that one device stands for
    growth = tuple(unknown if times[on] > 1 else each.growth() for on, each in zip(devices, memory, strict=True))
    return RunSteps(
        predicted=predicted,
        seconds=np.array(seconds),
        losses=tuple(losses),
        growth=growth,
        differences=apart,
    )


def _compared(
    training: Training, program: CapturedProgram, place: Place, device: torch.device, batch: Batch
) -> tuple[Difference, ...]:
    """How far the first step is from that of the module alone."""
    there = {leaf: tensor.to(device) for leaf, tensor in batch.items()}
    alone = unplaced(program, _module(training).to(device), there, training.adam)
    found = unplaced(program, place(_module(training)), batch, replace(training.adam, eps=alone.epsilon))
    return differences([found.results], alone.results, alone.rounding)


def _module(training: Training) -> nn.Module:
    """The model with its first weights."""
    return seeded_example(training.model, training.seed, training.samples).module


def _now(devices: Sequence[torch.device]) -> float:
    """Seconds, once all devices have done what they were asked to."""
    for device in devices:
        finish(device)
    return time.perf_counter()
