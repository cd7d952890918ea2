"""A process that waits for a collective has said which one before it waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from unittest.mock import patch

import pytest
from torch.distributed import distributed_c10d

from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from envs.running.captured_program import CapturedProgram
from envs.running.clock import Mark
from envs.running.model_data import seeded_example
from envs.running.processes import Process, Workers
from envs.running.progress import ACTIVITY
from envs.running.training_job import Training, TrainingJob
from envs.running.ways import step_of
from graphs.files.load import load_cluster
from graphs.problem import Problem
from placers.contract.placer import as_result
from placers.tensor_parallel import TensorParallel

MODELS = {
    "transformer": "transformer:layers=1,width=8,heads=2,sequence=4,batch=4,vocabulary=16",
    "batch norm": "tests/envs/running/test_nccl_rules.py:normed",
}


def replicated(problem: Problem) -> Plan:
    ops = len(problem.graph)
    return Plan(((0, 1),) * ops, schedule=Schedule(2, (0,) * ops))


def divided(problem: Problem) -> Plan:
    return as_result(TensorParallel(2).place(problem, seed=0, budget=1), "tensor_parallel", 0).plan


@dataclass(frozen=True)
class Held:
    """A run in which a process is held at a place until the other one has said what it waits for."""

    job: TrainingJob
    held: int
    place: str  # what it begins there
    waits: str  # for what the other one waits

    def __call__(self, process: Process) -> bool:
        store, what_was_said = distributed_c10d._get_default_store(), set[str]()

        def note(what: str, *, waits: bool = False, after: Mark = 0.0) -> None:
            del after
            if process.rank != self.held and waits:
                what_was_said.add(what)
                store.set(what, "")
            elif process.rank == self.held and what == self.place:
                store.get(self.waits)

        with patch.object(ACTIVITY, "note", note):
            self.job(process)
        return process.rank == self.held or self.waits in what_was_said


@pytest.mark.parametrize(
    ("model", "plan_of", "held", "place", "waits"),
    [
        ("transformer", replicated, 1, "the backward pass of micro-batch 1", "the all-reduces of gradients"),
        ("batch norm", replicated, 0, "a step", "the broadcast of the first replica's buffers"),
        ("transformer", divided, 1, "a step", "collective 1 of the step, all_reduce of processes 0, 1"),
    ],
)
def test_who_waits_for_a_collective_has_said_so(
    model: str,
    plan_of: Callable[[Problem], Plan],
    held: int,
    place: str,
    waits: str,
    processes: Callable[[int], Workers],
) -> None:
    training = Training(MODELS[model], steps=1)
    problem = Problem(CapturedProgram.of(seeded_example(training.model, 0)).step, load_cluster("p100x2"))
    job = TrainingJob(training, problem, plan_of(problem), step_of)
    assert processes(2).run(Held(job, held, place, waits), limit=200.0) == [True, True]
