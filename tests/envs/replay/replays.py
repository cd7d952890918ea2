"""Small models whose training steps are replayed by random plans, on one device that stands for several."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from envs.placed_models.call_placement import CallPlacement, on_calls
from envs.placed_models.parallel import run_by_plan
from envs.plans.plan import Plan
from envs.replay.replayed_forward import ReplayedForward
from envs.running.captured_program import CapturedProgram
from envs.simulation.simulator import LaidOut
from graphs.capture.examples import Example
from graphs.files.load import load_cluster
from graphs.problem import Problem
from graphs.runtime import runtime_of
from tests.envs.running.trained_models import batch_of, called, example_of, program_of

DEVICES = 3


@dataclass(frozen=True, eq=False)
class Replayed:
    """A model, and a copy of it whose steps are replayed."""

    example: Example  # of the model as it is
    program: CapturedProgram
    placed: nn.Module
    laid: LaidOut
    homes: dict[str, int]  # the place of each weight

    def loss(self, module: nn.Module, step: int) -> Tensor:
        """Of one of the two, for the batch of a step."""
        returned = called(self.example, module, batch_of(self.example, step))
        return torch.stack([returned[position].sum() for position in self.program.loss_outputs]).sum()


def replayed(name: str, seed: int) -> Replayed:
    """By a random placement, in the simulator's order or a random one."""
    example, program = example_of(name), program_of(name)
    problem = Problem(program.step, load_cluster(f"p100x{DEVICES}"), runtime=runtime_of("replay"))
    random = np.random.default_rng(seed)
    order = random.random(len(problem.graph)) if seed % 2 else ""
    plan = Plan.of_units(problem, random.integers(0, DEVICES, problem.graph.num_units), order=order)
    model, laid = deepcopy(example.module), LaidOut.of(problem, plan)
    made = ReplayedForward(Example(model, example.args, example.kwargs, name), laid)
    in_loop, rounded, _ = on_calls(
        Problem(program.step, problem.cluster, runtime=runtime_of("parallelize:copies=side")), plan, model
    )
    placed = run_by_plan(model, in_loop, rounded, ["cpu"] * DEVICES, replayed=made)
    return Replayed(example, program, placed, laid, dict(CallPlacement.of(in_loop.graph, rounded).homes))
