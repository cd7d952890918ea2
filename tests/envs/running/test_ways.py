"""Every kind of plan is run in the way that suits it, and computes what the model itself does."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Group

from envs.plans.plan import Plan
from envs.running.adam import Adam
from envs.running.captured_program import CapturedProgram
from envs.running.measured_run import run_plan
from envs.running.processes import Process, Workers
from envs.running.running_step import RunningStep
from envs.running.training_job import Training, UnplacedJob
from envs.running.ways import check_can_run, check_model, step_of
from evaluation.commands.load_placer import load_placer
from evaluation.commands.problems import problem_of
from evaluation.measuring.measured_table import measured_sentences, measured_table
from graphs.files.load import load_graph
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.contract.placer import as_result
from tests.evaluation.some_records import to_text

TRAINING = Training("transformer:layers=2,width=16,heads=2,sequence=8,batch=8,vocabulary=32", steps=3)


@pytest.fixture(scope="module")
def workers(processes: Callable[[int], Workers]) -> Workers:
    return processes(2)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return problem_of(TRAINING.model, "p100x2", groups=None, batch=8)


def plan_of(problem: Problem, placer: str) -> Plan:
    chosen = load_placer(placer)
    return as_result(chosen.place(problem, seed=0, budget=4), chosen.name, 0).plan


@pytest.mark.parametrize(
    "placer",
    [
        "metis", "data_parallel", "data_parallel:micro_batches=2", "gpipe:micro_batches=2",
        "gpipe:micro_batches=4,order=early_backward_a", "tensor_parallel",
    ],
)  # fmt: skip
def test_a_plan_of_each_kind_equals_the_model(placer: str, problem: Problem, workers: Workers) -> None:
    plan = plan_of(problem, placer)
    run = run_plan(workers, TRAINING, problem, plan, check=True, limit=120.0)
    assert run.is_equal, run.differences
    assert run.predicted.step_seconds > 0
    line = run.measured
    assert (line.busy_seconds > 0).all()
    assert (line.busy_seconds <= line.step_seconds + 1e-9).all()
    assert (line.finish <= line.step_seconds + 1e-9).all()
    assert "gpu:1" in line.draw()


def test_what_cannot_be_run_is_refused(problem: Problem) -> None:
    pipeline = plan_of(problem, "gpipe:micro_batches=2")
    early = replace(pipeline, schedule=replace(pipeline.schedule, update="micro_batch"))
    with pytest.raises(InputError, match="updates weights after each micro-batch"):
        check_can_run(problem, early)
    forward = replace(problem, graph=load_graph(TRAINING.model, training=False), op_seconds=None)
    with pytest.raises(InputError, match="is a forward pass, and what is run is a training step"):
        check_can_run(forward, Plan.of(np.zeros(len(forward.graph), np.int64)))


DROPPING = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)
    def forward(self, x, y):
        h = F.dropout(self.first(x).relu(), 0.3)
        return F.cross_entropy(self.head(F.dropout(self.second(h).tanh(), 0.5) + torch.rand_like(h)), y)

def model():
    return Net(), (torch.zeros(16, 8), torch.arange(16) % 4)
"""


def test_a_step_that_draws_random_numbers_is_compared_unless_its_ops_are_divided(
    tmp_path: Path, workers: Workers
) -> None:
    (tmp_path / "net.py").write_text(DROPPING)
    training = Training(f"{tmp_path}/net.py:model", steps=1)
    problem = problem_of(training.model, "p100x2", groups=None)
    for placer in ("round_robin", "data_parallel:micro_batches=2", "gpipe:micro_batches=2"):
        run = run_plan(workers, training, problem, plan_of(problem, placer), check=True, limit=120.0)
        assert [each.what for each in run.differences] == ["loss", "gradients", "weights", "buffers"]
        assert run.is_equal, run.differences
        assert not run.not_compared
    run = run_plan(workers, training, problem, plan_of(problem, "tensor_parallel"), check=True, limit=120.0)
    assert run.not_compared.startswith("it draws random numbers, such as those of dropout, which divided ops draw")
    assert not run.differences


def test_a_wrong_step_is_told_from_the_models(problem: Problem, workers: Workers) -> None:
    run = run_plan(workers, TRAINING, problem, plan_of(problem, "metis"), check=True, limit=120.0, way=twice_as_fast)
    loss, gradients, weights, _ = run.differences
    assert loss.is_small
    assert gradients.is_small
    assert weights.relative > 1e-2
    assert not run.is_equal


def twice_as_fast(program: CapturedProgram, problem: Problem, plan: Plan, process: Process, adam: Adam) -> RunningStep:
    return step_of(program, problem, plan, process, replace(adam, rate=2 * adam.rate))


class WithoutRoom(Workers):
    """Processes on devices whose memory is taken."""

    def run(self, job: Any, *, limit: float = 0.0, tell: Any = None) -> Any:
        if isinstance(job, UnplacedJob):
            return super().run(replace(job, needed_bytes=1e30), limit=limit, tell=tell)
        return super().run(job, limit=limit, tell=tell)


def test_without_room_for_the_model_a_plan_is_run_and_said_not_to_be_compared(
    problem: Problem, workers: Workers
) -> None:
    without = WithoutRoom(workers.devices)
    without.__dict__ = workers.__dict__  # the same processes
    run = run_plan(without, TRAINING, problem, plan_of(problem, "metis"), check=True, limit=120.0)
    assert len(run.losses) == TRAINING.steps
    assert not run.differences
    sentences = list(measured_sentences(run, workers.devices, 2))
    assert f"in the last of {TRAINING.steps} steps" in sentences[0]
    assert "ratio" not in to_text(Group(*measured_table(run, workers.devices, 2))), "CPUs in place of GPUs"
    gpus = problem.cluster.name
    assert sentences[0].endswith(f" predicted on {gpus}: it ran on cpu instead, which says nothing of the prediction.")
    [said] = [each for each in sentences if "compared" in each]
    about = r"the unplaced model takes about [\d.]+ GiB on cpu, where [\d.]+ are free"
    assert re.fullmatch(rf"It was NOT compared with the unplaced model: {about}\.", said)


BREAKING = """
import torch
from torch import nn
from torch.autograd import Function
from torch.nn import functional as F

class Steep(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x * 4) / 4
    @staticmethod
    def backward(ctx, gradient):
        return gradient

class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.first, self.head, self.function = nn.Linear(8, 16), nn.Linear(16, 4), function
        self.bag = nn.EmbeddingBag(8, 8, mode="sum")
    def forward(self, x, *offsets):
        return self.head(self.function(self.first(self.bag(x, *offsets) if offsets else x))).square().mean()

def rounded():
    return Net(Steep.apply), (torch.zeros(16, 8),)

def clipped():
    net = Net(torch.tanh)
    net.first.weight.register_hook(lambda gradient: gradient.clamp(-1, 1))
    return net, (torch.zeros(16, 8),)

def halved(x):
    x.register_hook(lambda gradient: gradient / 2)
    return x

def hooked():
    return Net(halved), (torch.zeros(16, 8),)

def fixed():
    return Net(lambda x: x.view(16, 2, 8).flatten(1)), (torch.zeros(16, 8),)

def bags(rows=8):
    return Net(torch.tanh), (torch.arange(rows) % 4, torch.arange(8))

def normed():
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), (torch.zeros(2, 8),)
"""


@pytest.mark.parametrize(
    ("model", "placer", "sentence"),
    [
        ("rounded", "round_robin", r"rounded: Steep at .*net.py:21 has a backward pass of its own, and the plan runs"),
        ("clipped", "data_parallel", r"clipped: the gradient of 'first.weight' has a hook, which is not captured"),
        ("hooked", "round_robin", r"hooked: a hook on gradients at .*net.py:32 is not captured, and op"),
        ("fixed", "data_parallel", r"fixed: .*net.py:39: .* with 8 of its 16 samples, .*: let its code take"),
        ("bags", "data_parallel", r"bags: the offsets of the EmbeddingBag 'bag' are an input, and number the rows"),
        ("bags", "gpipe:micro_batches=2", r"bags: the offsets of the EmbeddingBag 'bag' are an input, and number the"),
        ("bags:rows=20", "data_parallel", r"rows=20: the offsets of the EmbeddingBag 'bag' are an input, and number"),
        ("bags:rows=20", "gpipe:micro_batches=2", r"rows=20: the offsets of the EmbeddingBag 'bag' are an input, and"),
        ("normed", "data_parallel", r"more than 1 value per channel .* with 1 of its 2 samples, .*: take a plan of"),
        ("normed", "gpipe:micro_batches=2", r"in its submodule '1', a BatchNorm1d.*, so that each part has more"),
        ("bags", "tensor_parallel", r"bags: DTensor cannot run this plan: .*_embedding_bag"),
    ],
)
def test_a_model_that_a_plan_cannot_run_is_refused_without_processes(
    model: str, placer: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(BREAKING)
    training = Training(f"{tmp_path}/net.py:{model}", steps=1)
    problem = problem_of(training.model, "p100x2", groups=None)
    with pytest.raises(InputError, match=sentence):
        check_model(training, problem, plan_of(problem, placer))


@pytest.mark.parametrize("placer", ["metis", "data_parallel", "gpipe:micro_batches=2", "tensor_parallel", "fsdp"])
def test_a_model_that_a_plan_can_run_is_not_refused(placer: str, problem: Problem) -> None:
    check_model(TRAINING, problem, plan_of(problem, placer))
