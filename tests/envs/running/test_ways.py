"""Every kind of plan is run in the way that suits it, and computes what the model itself does."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from envs.plan import Plan
from envs.running.measured_run import run_plan
from envs.running.processes import Workers
from envs.running.training_job import Training
from envs.running.ways import check_can_run
from evaluation.commands.load_placer import load_placer
from evaluation.commands.problems import problem_of
from graphs.foundation.errors import InputError
from graphs.load import load_graph
from graphs.problem import Problem
from placers.contract.placer import as_result

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
