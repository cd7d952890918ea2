"""Dry steps: what DTensor refuses is found in one process, by a step on tensors without data that sends nothing."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, distributed
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from envs.plans.plan import Plan
from envs.running.adam import Adam
from envs.running.captured_program import CapturedProgram
from envs.running.partitioned.partitioned_step import PartitionedStep
from graphs.problem import Problem


def check_partitioned(program: CapturedProgram, problem: Problem, plan: Plan, inputs: Mapping[int, Tensor]) -> None:
    """Raise InputError if DTensor cannot run a plan's step; the model and its inputs have data.

    Nothing is found in a process that has joined others already.
    """
    if distributed.is_initialized():
        return
    with _alone(len(problem.cluster)):
        step = PartitionedStep(program, problem, plan, torch.device("cpu"), Adam())
        step.check_passes(inputs, FakeTensorMode(allow_non_fake_inputs=True))


@contextmanager
def _alone(processes: int) -> Iterator[None]:
    """Inside, this process has rank 0 of a process group without other processes."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=processes)
    try:
        yield
    finally:
        distributed.destroy_process_group()
