"""Steps that processes run together, and what the run says of them; the steps here compute nothing."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from envs.plans.plan import Plan
from envs.running.captured_program import CapturedProgram
from envs.running.measured_run import FIRST, MeasuredRun, run_plan
from envs.running.processes import Process, Workers
from envs.running.running_step import RunningStep
from envs.running.training_job import Training, TrainingJob
from evaluation.measuring.measured_rows import device_rows, kind_rows, link_rows
from graphs.files.load import load_cluster, load_graph
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from tests.envs.running.pretended import pretended

MODEL = "rnnlm:layers=1,steps=2,hidden=8,batch=2,vocabulary=16"


@pytest.fixture(scope="module")
def workers(processes: Callable[[int], Workers]) -> Workers:
    return processes(3)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem(load_graph(MODEL), load_cluster("p100x3"))


def some_run(workers: Workers, problem: Problem, seed: int, steps: int = 4) -> MeasuredRun:
    placement = np.random.default_rng(seed).integers(0, 3, problem.graph.num_units)
    return run_plan(
        workers, Training(MODEL, steps), problem, Plan.of_units(problem, placement), way=pretended, limit=60.0
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_measured_step_is_as_long_as_what_it_holds(seed: int, workers: Workers, problem: Problem) -> None:
    run = some_run(workers, problem, seed)
    transfers = len(run.predicted.transfers)
    assert run.losses == (float(transfers),) * 4  # each has arrived
    assert len(run.seconds) == 4
    assert len(run.counted) == 4 - FIRST
    assert run.step_seconds == sorted(run.counted)[0]  # the lower of two
    line = run.measured
    assert 0 <= line.start.min() <= line.finish.max() <= line.step_seconds
    assert (line.busy_seconds <= line.step_seconds).all()
    for mine in (np.flatnonzero(line.placement == device) for device in range(3)):
        order = mine[np.argsort(line.start[mine], kind="stable")]
        assert (line.start[order[1:]] >= line.finish[order[:-1]]).all()
    producer, consumer = line.problem.graph.edges.T
    assert (line.finish[producer] <= line.start[consumer]).all()
    pairs = [
        sorted(zip(*(part.tolist() for part in (t.output, t.source, t.destination)), strict=True))
        for t in (line.transfers, run.predicted.transfers)
    ]
    assert pairs[0] == pairs[1]


def test_rows_of_both_steps_add_up(workers: Workers, problem: Problem) -> None:
    run = some_run(workers, problem, 7)
    for row, device in enumerate(device_rows(run)):
        assert device.busy.measured + device.idle.measured == pytest.approx(run.measured.step_seconds)
        assert device.busy.predicted == pytest.approx(run.predicted.busy_seconds[row])
        assert device.predicted_growth < run.predicted.peak_bytes[row]
    kinds = kind_rows(run)
    assert sum(kind.measured for kind in kinds) == pytest.approx(run.measured.busy_seconds.sum())
    assert sum(kind.predicted for kind in kinds) == pytest.approx(run.predicted.busy_seconds.sum())
    links = link_rows(run)
    assert sum(link.count for link in links) == len(run.predicted.transfers)
    moved = problem.graph.moved_bytes[run.predicted.transfers.output].sum()
    assert sum(link.bytes for link in links) == pytest.approx(moved)


def test_one_step_counts_if_there_is_no_other(workers: Workers, problem: Problem) -> None:
    assert len(some_run(workers, problem, 0, steps=1).counted) == 1


def test_a_plan_of_another_graph_is_refused_by_the_processes_in_one_sentence(workers: Workers) -> None:
    other = Problem(load_graph("rnnlm:layers=1,steps=3,hidden=8,batch=2,vocabulary=16"), load_cluster("p100x3"))
    with pytest.raises(InputError, match="is not of this model"):
        some_run(workers, other, 0)


def test_what_the_making_of_a_step_leaves_is_gone_before_its_memory_is_measured(problem: Problem) -> None:
    left: list[weakref.ref[CycleOfItself]] = []

    def leaving(program: CapturedProgram, *given: Any) -> RunningStep:
        left.append(weakref.ref(CycleOfItself()))
        return pretended(program, *given)

    plan = Plan.of([0] * len(problem.graph))
    gc.disable()
    try:
        TrainingJob(Training(MODEL, steps=0), problem, plan, leaving)(Process(0, 3, torch.device("cpu")))
        assert left[0]() is None
    finally:
        gc.enable()
        gc.unfreeze()


class CycleOfItself:
    """An object that only the garbage collector frees."""

    def __init__(self) -> None:
        self.itself = self
