"""Training steps as people write them, run by plans of each kind: as the model itself, or refused before they start."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from envs.plans.plan import Plan
from envs.running.captured_program import CapturedProgram
from envs.running.measured_run import run_plan
from envs.running.model_data import batches, seeded_example
from envs.running.processes import Workers
from envs.running.training_job import Training
from envs.running.ways import check_model
from evaluation.commands.load_placer import load_placer
from evaluation.commands.problems import problem_of
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.contract.placer import as_result
from tests.graphs.zoo import ZOO

FAST = {("gradient reversal", "gpipe:micro_batches=2")}
WHOLE = ("round_robin", "random", "tensor_parallel")  # kinds of plans that run the whole batch at once
DIVIDED = ("gpipe:micro_batches=2", "gpipe:micro_batches=2,order=early_backward_a", "data_parallel")
RUNS = [
    pytest.param(name, placer, marks=[] if (name, placer) in FAST else [pytest.mark.slow])
    for name in ZOO
    for placer in (*WHOLE, *DIVIDED)
]
# What says that a script cannot be run by a plan, as it stands.
REFUSED = (
    "is changed by its forward pass",
    "sizes or control flow depend on data",
    "has a backward pass of its own",
    "DTensor cannot run",
    "which is dimension",
    "changes a tensor in place where",
    "it is not known how many samples",
    "the offsets of the EmbeddingBag",
)
ASKS = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16)), nn.Linear(16, 4)

    def forward(self, x):
        return self.last(checkpoint(self.first, x, use_reentrant=True)).square().mean()

def model():
    return Net(), (torch.randn(8, 16, requires_grad=True),)
"""
DRAWS = {
    "LoRA Llama",
    "frozen ViT",
    "last layer of BERT",
    "checkpoints of Hugging Face",
    "Gumbel, hard",
    "MobileNetV3",
    "GCN",
}  # numbers that are others in each process


def losses_of(training: Training) -> list[float]:
    """Those of the model itself, in the user's loop."""
    example = seeded_example(training.model, training.seed)
    program, found = CapturedProgram.of(example), list[float]()
    optimizer = training.adam.optimizer([each for each in example.module.parameters() if each.requires_grad])
    for batch in islice(batches(example, seed=training.seed), training.steps):
        optimizer.zero_grad()
        args, kwargs = program.arguments(batch)
        loss = program.loss_from(example.module(*args, **kwargs))
        loss.backward()  # type: ignore[no-untyped-call]
        found.append(loss.item())
        optimizer.step()
    return found


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers
@pytest.mark.parametrize(("name", "placer"), RUNS)
def test_five_steps_of_a_run_are_the_models_or_are_refused_before_they_start(
    name: str, placer: str, tmp_path: Path, processes: Callable[[int], Workers]
) -> None:
    file = tmp_path / "script.py"
    file.write_text(
        "import torch\nfrom tests.graphs.zoo import ZOO\n"
        f"def model():\n    torch.manual_seed(0)\n    return ZOO[{name!r}]()\n"
    )
    training, problem, plan = planned(f"{file}:model", placer)
    if why := refusal(training, problem, plan):
        assert any(known in why for known in REFUSED), why
        return
    run = run_plan(processes(2), training, problem, plan, check=True, limit=300.0)
    if run.not_compared:
        assert "draws random numbers" in run.not_compared
        return
    assert run.is_equal, run.differences
    if placer in WHOLE and name not in DRAWS:
        assert run.losses == pytest.approx(losses_of(training), rel=1e-3, abs=1e-4)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")  # while it is captured
@pytest.mark.parametrize("placer", ["gpipe:micro_batches=2", "data_parallel", "tensor_parallel"])
def test_inputs_ask_for_gradients_in_each_step_as_those_of_the_example_do(
    placer: str, tmp_path: Path, processes: Callable[[int], Workers]
) -> None:
    """Without one, a reentrant checkpoint gives its weights none."""
    file = tmp_path / "script.py"
    file.write_text(ASKS)
    training, problem, plan = planned(f"{file}:model", placer)
    assert not refusal(training, problem, plan)
    run = run_plan(processes(2), training, problem, plan, check=True, limit=300.0)
    assert run.is_equal, run.differences
    assert run.losses == pytest.approx(losses_of(training), rel=1e-3)


def planned(model: str, placer: str) -> tuple[Training, Problem, Plan]:
    training, chosen = Training(model, steps=5, epsilon=1e-5), load_placer(placer)
    problem = problem_of(training.model, "p100x2", groups=None)
    return training, problem, as_result(chosen.place(problem, seed=0, budget=2), chosen.name, 0).plan


def refusal(training: Training, problem: Problem, plan: Plan) -> str:
    try:
        check_model(training, problem, plan)
    except InputError as refused:
        return str(refused)
    return ""
