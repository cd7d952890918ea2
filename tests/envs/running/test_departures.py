"""What a process has sent it holds until that has arrived, and no longer: as much memory as in the simulation."""

from __future__ import annotations

import subprocess
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from envs.plans.plan import Plan
from envs.running.captured_program import CapturedProgram
from envs.running.op_by_op.departures import SMALL, Departures
from envs.running.op_by_op.op_step import OpStep
from envs.running.processes import Process, Workers
from envs.simulation.simulator import LaidOut
from graphs.capture.examples import Example
from graphs.files.load import load_cluster
from graphs.problem import Problem
from tests.envs.running.placed_runs import ADAM
from tests.oracle.fake_step import Storages

LENGTH = 20  # messages in each direction and each pass


class Negated(nn.Module):
    """A chain of ops of which autograd saves nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.weight
        for _ in range(LENGTH):
            x = x.neg()
        return x.mean()


@dataclass(frozen=True)
class Alternating:
    """A job: each process runs every other op; what it holds at most in a step, and in the simulation, in bytes."""

    def __call__(self, process: Process) -> tuple[int, float]:
        x = torch.ones(SMALL)
        program = CapturedProgram.of(Example(Negated(), (x,), {}, "negated"))
        problem = Problem(program.step, load_cluster("p100x2"))
        laid = LaidOut.of(problem, Plan.of_units(problem, [unit % 2 for unit in range(problem.graph.num_units)]))
        step = OpStep(program, laid, process.rank, process.device, ADAM)
        for _ in range(2):  # the first one makes the optimizer's state
            storages = Storages()
            with storages:
                step.run(dict.fromkeys(program.leaves, x))
        return storages.held.peak, float(laid.simulator().timeline(laid.placement).peak_bytes[process.rank])


def test_no_more_is_held_than_in_the_simulation(processes: Callable[[int], Workers]) -> None:
    for held, simulated in processes(2).run(Alternating(), limit=100.0):
        size = 4 * SMALL
        assert simulated >= 2 * size
        assert held <= simulated + 3 * size  # a thread that waits for messages may be late; there are 20 and more


class Sent:
    """A message of a GPU."""

    def __init__(self) -> None:
        self.has_left = False

    def is_completed(self) -> bool:
        return self.has_left

    def wait(self) -> object:
        self.has_left = True
        return None


def test_of_a_gpu_what_has_left_is_let_go_of_in_order() -> None:
    leaving, sent, buffers = Departures(torch.device("cuda")), [Sent() for _ in range(3)], list[weakref.ref[Tensor]]()
    for work in sent:
        buffer = torch.zeros(2)
        buffers.append(weakref.ref(buffer))
        leaving.add(work, buffer)
    del buffer
    sent[1].has_left = True
    leaving.release()
    assert all(each() is not None for each in buffers)
    sent[0].has_left = True
    leaving.release()
    assert [each() is None for each in buffers] == [True, True, False]
    leaving.wait()
    assert [each() is None for each in buffers] == [True] * 3


class Lost(Sent):
    def wait(self) -> object:
        raise RuntimeError("the other process has gone")


def test_what_cannot_be_sent_ends_the_step() -> None:
    leaving = Departures(torch.device("cpu"))
    leaving.add(Lost(), torch.zeros(SMALL))
    with pytest.raises(RuntimeError, match="the other process has gone"):
        leaving.wait()
    leaving.wait()


def test_after_a_fork_another_thread_waits() -> None:
    """In a process of its own, whose memory has no threads of others."""
    program = (
        "import os, torch\n"
        "from envs.running.op_by_op.departures import Departures\n"
        "Departures(torch.device('cpu')).wait()\n"
        "child = os.fork()\n"
        "Departures(torch.device('cpu')).wait()\n"
        "if child:\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100, cwd=Path(__file__).parents[3])
