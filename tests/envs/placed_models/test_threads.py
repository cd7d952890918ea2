"""Models that are run by plans in several threads at once, and what else these run meanwhile."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from envs.placed_models.parallel import run_by_plan
from envs.plans.plan import Plan
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.files.load import load_cluster
from graphs.problem import Problem
from tests.envs.placed_models.models import loss_of, random_run

SECONDS = 120.0  # after which a thread has stopped for good


def test_passes_of_several_threads_are_those_of_one() -> None:
    run, began = random_run("gpt", 0), threading.Barrier(2)

    def gradients(model: nn.Module, seed: int) -> list[Tensor]:
        return list(torch.autograd.grad(loss_of(model(**run.batch(seed=seed))), list(model.parameters())))

    def of_thread(thread: int) -> list[list[Tensor]]:
        began.wait(SECONDS)
        return [gradients(run.parallel, 10 * thread + step) for step in range(4)]

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(of_thread, range(2), timeout=SECONDS))
    expected = [[gradients(run.model, 10 * thread + step) for step in range(4)] for thread in range(2)]
    torch.testing.assert_close(found, expected)


class Waiting(nn.Module):
    """In its forward pass it waits for what another thread does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.is_within, self.is_over, self.came = threading.Event(), threading.Event(), True

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        self.is_within.set()
        self.came = self.is_over.wait(SECONDS)
        return y.tanh()


def test_what_another_thread_computes_again_meanwhile_is_not_run_by_the_plan() -> None:
    model, other = Waiting(), nn.Linear(4, 4)
    model.is_over.set()
    problem = Problem(training_step(capture(model, (torch.ones(2, 4),), name="waiting")), load_cluster("p100x2"))
    run_by_plan(model, problem, Plan.of([0] * len(problem.graph)), ["cpu", "cpu"])
    model.is_within.clear()
    model.is_over.clear()

    def checkpointed() -> None:
        model.is_within.wait(SECONDS)
        for use_reentrant in (False, True):
            x = torch.ones(2, 4, requires_grad=True)
            checkpoint(other, x, use_reentrant=use_reentrant).sum().backward()
        model.is_over.set()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(checkpointed)
        model(torch.ones(2, 4))
        assert model.came  # otherwise the other thread waits for this one
        done.result()
    torch.testing.assert_close(other.bias.grad, torch.full((4,), 4.0))
