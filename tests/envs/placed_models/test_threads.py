"""Models that are run by plans in several threads at once, and what else these run meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.utils import checkpoint as of_torch
from torch.utils.checkpoint import checkpoint

from envs.placed_models.call_placement import on_calls
from envs.placed_models.parallel import run_by_plan
from envs.placed_models.recomputation import Resume, drawing_by_others, remembered_regions
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


class Penalised(nn.Module):
    """Its forward pass may wait for gradients of a region, which another thread computes, as that of a GPU does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.region, self.last = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 4)
        self.waits, self.use_reentrant = False, False

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if self.waits:
            h = h.detach().requires_grad_()
            y = checkpoint(self.region, h, use_reentrant=self.use_reentrant)
            ThreadPoolExecutor(1).submit(y.square().sum().backward).result(SECONDS)
            h = y.detach() + h.grad
        else:
            h = self.region(h)
        out: Tensor = self.last(h)
        return out


@pytest.mark.filterwarnings("ignore::envs.placed_models.parallel.UnknownCallWarning")  # of what is captured otherwise
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_forward_pass_may_wait_for_another_thread_that_computes_again(use_reentrant: bool) -> None:
    torch.manual_seed(0)
    model, x = Penalised(), torch.randn(2, 4)
    problem = Problem(training_step(capture(model, (x,), name="penalised")), load_cluster("p100x2"))
    problem, plan, _ = on_calls(problem, Plan.of(problem.graph.units % 2), model)
    model.waits, model.use_reentrant = True, use_reentrant
    parallel = run_by_plan(deepcopy(model), problem, plan, ["cpu", "cpu"])
    for _ in range(2):
        torch.testing.assert_close(parallel(x), model(x))
    for one, other in zip(parallel.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_regions_ask_the_passes_of_their_own_thread_whichever_ends_first() -> None:
    own, began, ended, asked = of_torch.CheckpointFunction, threading.Event(), threading.Event(), list[str]()

    def resume(thread: str) -> Callable[[], Resume]:
        return lambda: asked.append(thread) or nullcontext  # type: ignore[func-returns-value]

    def other() -> None:
        began.wait(SECONDS)
        with remembered_regions(resume("other"), []):
            ended.set()
            is_over.wait(SECONDS)
            checkpoint(torch.exp, torch.ones(2, requires_grad=True), use_reentrant=True)

    is_over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(other)
        with remembered_regions(resume("this"), []):
            began.set()
            ended.wait(SECONDS)
            checkpoint(torch.exp, torch.ones(2, requires_grad=True), use_reentrant=False)
        checkpoint(torch.exp, torch.ones(2, requires_grad=True), use_reentrant=False)  # outside of a pass
        is_over.set()
        done.result(SECONDS)
    assert asked == ["this", "other"]
    assert of_torch.CheckpointFunction is own


def test_threads_that_compute_again_draw_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a device whose generator is one of the processor's; one waits for the other while its region is run."""
    card, own = torch.device("xpu", 0), torch.Generator().manual_seed(1)
    monkeypatch.setattr(torch.xpu, "get_rng_state", lambda device: own.get_state())
    monkeypatch.setattr(torch.xpu, "set_rng_state", lambda state, device: own.set_state(state))
    pool = ThreadPoolExecutor(1)
    drawn: dict[str, list[Tensor]] = {"waits": [], "does not": []}

    def region(name: str, x: Tensor) -> Tensor:
        drawn[name].append(torch.rand(2, generator=own))
        if name == "waits" and len(drawn[name]) == 3:
            with drawing_by_others():
                pool.submit(losses["does not"].backward).result(SECONDS)
        drawn[name].append(torch.rand(2, generator=own))
        return (x * drawn[name][-1]).exp()

    with remembered_regions(lambda: nullcontext, [card]):
        losses = {name: checkpoint(region, name, torch.ones(2, requires_grad=True), use_reentrant=False).sum()
                  for name in drawn}  # fmt: skip
        losses["waits"].backward()
    for numbers in drawn.values():
        assert len(numbers) == 4
        assert torch.equal(torch.stack(numbers[:2]), torch.stack(numbers[2:]))
