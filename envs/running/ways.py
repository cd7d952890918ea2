"""Which way of running a plan suits what it decides; and what cannot be run, before anything is started."""

from __future__ import annotations

from envs.expansion.layout import Layout
from envs.plan import Plan
from envs.running.tensor_placements import TensorPlacements
from graphs.foundation.errors import InputError
from graphs.foundation.torch_names import RUN, check_names
from graphs.problem import Problem


def check_can_run(problem: Problem, plan: Plan) -> None:
    """Raise InputError for a plan that cannot be run, and for a version of PyTorch that lacks what is needed."""
    check_names(RUN)
    plan.check(problem)
    if not problem.graph.is_training:
        raise InputError(f"{problem.graph.name!r} is a forward pass, and what is run is a training step")
    if plan.split:
        TensorPlacements(problem, plan)


def parts_of_batch(problem: Problem, plan: Plan) -> tuple[int, int]:
    """Into how many parts replicas divide the batch, and micro-batches each of these.

    A plan that says by what each op is divided computes what the undivided model does.
    """
    if plan.split or plan.is_placement:
        return 1, 1
    return max(map(len, Layout(problem, plan).stage_devices)), plan.schedule.micro_batches
