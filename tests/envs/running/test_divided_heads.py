"""A vocabulary that devices divide, its head and its embedding, tied or not: steps that are run are the model's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from envs.running.measured_run import run_plan
from envs.running.processes import Workers
from envs.running.training_job import Training
from envs.running.ways import check_model
from evaluation.commands.problems import problem_of
from graphs.foundation.errors import InputError
from placers.parallel import Parallel
from placers.splits.column_row import columns_and_rows

SMALL = "layers=1,width=24,heads=6,sequence=4,batch=3"
PERCEPTRON = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = (6, 8, 10, 7, 5)
        self.net = nn.Sequential(*[
            layer for before, after in zip(sizes, sizes[1:]) for layer in (nn.Linear(before, after), nn.Tanh())
        ])

    def forward(self, x, wanted):
        return nn.functional.mse_loss(self.net(x), wanted)

def model():
    return Net(), (torch.randn(4, 6), torch.randn(4, 5))
"""


@pytest.mark.parametrize(
    ("model", "devices"),
    [
        (f"transformer:{SMALL},vocabulary=41", 2),  # 21 and 20 words
        (f"transformer:{SMALL},vocabulary=41,tied=true", 2),
        (f"transformer:{SMALL},vocabulary=42,tied=true", 3),
        pytest.param(f"bert:{SMALL}", 2, marks=pytest.mark.slow),  # whose head has a bias
        ("perceptron", 2),  # the mean of the squares of 3 and of 2 features
    ],
)
def test_a_step_with_a_divided_head_is_the_models(
    model: str, devices: int, tmp_path: Path, processes: Callable[[int], Workers]
) -> None:
    if model == "perceptron":
        (file := tmp_path / "perceptron.py").write_text(PERCEPTRON)
        model = f"{file}:model"
    problem = problem_of(model, f"p100x{devices}", groups=None)
    plan = Parallel(tp=devices).place(problem).plan
    divided = {problem.graph.names[op].partition("/")[0] for op, split in enumerate(plan.split) if any(split)}
    assert "nll_loss_forward" in divided or "mse_loss" in divided
    run = run_plan(processes(devices), Training(model, steps=1, epsilon=1e-5), problem, plan, check=True, limit=300.0)
    assert not run.not_compared
    assert run.is_equal, run.differences


def test_a_vocabulary_of_which_dtensor_has_other_parts_is_refused() -> None:
    model = f"transformer:{SMALL},vocabulary=43"
    problem = problem_of(model, "p100x3", groups=None)
    plan = Parallel(tp=3).place(problem).plan
    assert any(columns_and_rows(problem.graph, 3))
    with pytest.raises(InputError, match=r"divides 43 of index 'v' into 3 unequal parts \(45 has equal ones\)"):
        check_model(Training(model, steps=1), problem, plan)
