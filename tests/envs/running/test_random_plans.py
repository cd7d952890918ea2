"""No plan of one device per op makes processes wait for each other for ever, and each trains as the model itself."""

from collections.abc import Callable

import numpy as np
import pytest

from envs.plans.plan import Plan
from envs.running.measured_run import run_plan
from envs.running.model_data import batches, seeded_example
from envs.running.processes import Workers
from envs.running.training_job import Training
from graphs.files.load import load_cluster, load_graph
from graphs.problem import Problem
from tests.drawn import examples

TRAINING = Training("transformer:layers=1,width=16,heads=2,sequence=8,batch=2,vocabulary=32,tied=true", steps=2)
pytestmark = pytest.mark.drawn
PLANS = examples(25, 8)  # for each number of processes
LIMIT = 120.0  # seconds for a plan, which takes less than one; the first one begins with the processes
ORDERS = ("", "program", "fifo")


@pytest.fixture(scope="module", params=[2, 3])
def workers(request: pytest.FixtureRequest, processes: Callable[[int], Workers]) -> Workers:
    return processes(request.param)


@pytest.fixture(scope="module")
def losses() -> tuple[float, ...]:
    """Of the model itself, in the user's loop."""
    example = seeded_example(TRAINING.model, TRAINING.seed)
    optimizer, data, found = TRAINING.adam.optimizer(list(example.module.parameters())), batches(example), []
    for _ in range(TRAINING.steps):
        optimizer.zero_grad()
        loss = example.module(*next(data).values())
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return tuple(found)


def test_random_plans_never_deadlock(workers: Workers, losses: tuple[float, ...]) -> None:
    devices = len(workers.devices)
    problem = Problem(load_graph(TRAINING.model), load_cluster(f"p100x{devices}"))
    random = np.random.default_rng(devices)
    for number in range(PLANS):
        placement = random.integers(0, devices, problem.graph.num_units)
        alone = random.random(problem.graph.num_units) < random.choice([0.0, 0.5, 0.9])  # few transfers, or many
        placement = np.where(alone, 0, placement)
        order = random.random(problem.graph.num_units) if number % 4 == 3 else ORDERS[number % 4]
        plan = Plan.of_units(problem, placement, order=order)
        run = run_plan(workers, TRAINING, problem, plan, limit=LIMIT)
        assert run.losses == pytest.approx(losses, rel=1e-5)
        line = run.measured
        assert (line.busy_seconds <= line.step_seconds).all()
        assert (line.start >= 0).all()
        producer, consumer = line.problem.graph.edges.T
        assert (line.finish[producer] <= line.start[consumer] + 1e-9).all()
