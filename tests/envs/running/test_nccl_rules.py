"""By NCCL's rules no plan hangs, whatever its kind; and what would hang by them is found out to hang."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import get_args
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed._functional_collectives import (
    all_gather_single,
    all_reduce,
    all_to_all_single,
    broadcast,
    reduce_scatter_single,
)

from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY, Schedule, Zero
from envs.running.captured_program import CapturedProgram
from envs.running.measured_run import run_plan
from envs.running.model_data import seeded_example
from envs.running.pipelined.pipelined_step import stages_of
from envs.running.processes import Process, Workers
from envs.running.training_job import Training
from envs.running.ways import check_can_run
from graphs.files.load import load_cluster
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.contract.placer import as_result
from placers.tensor_parallel import TensorParallel
from tests.envs.running.nccl_rules import Communicator, Rules, synchronise

TRANSFORMER = "transformer:layers=1,width=24,heads=12,sequence=4,batch=12,vocabulary=48,tied=true"
NORMED = f"{Path(__file__)}:normed"
ZEROS = get_args(Zero)
ORDERS = (AS_READY.name, *by_name.built_in("envs.pass_orders"))
LIMIT = 200.0  # seconds for a plan, which takes less than one


class Towers(nn.Module):
    """Two, with buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = (
            nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 8)) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        both: Tensor = self.left(x) * self.right(x)
        return both.square().mean()


def normed() -> tuple[nn.Module, tuple[Tensor]]:
    return Towers(), (torch.randn(12, 8),)


@pytest.fixture(scope="module")
def by_the_rules() -> Iterator[Callable[[int], Workers]]:
    """A number of processes that wait as NCCL lets them."""
    with ExitStack() as stack:

        def started(count: int) -> Workers:
            workers = stack.enter_context(Workers(["cpu"] * count, pin=False))
            workers.run(Rules())
            return workers

        yield cache(started)


# ---- the rules -------------------------------------------------------------------------------------------------------


def asked(process: Process) -> list[str]:
    """What becomes of two processes that ask for messages in several orders, each of a group of its own."""
    return [_outcome(case, process.rank) for case in (crossing, crossing_together, synchronising, in_order)]


def _outcome(case: Callable[[distributed.ProcessGroup, int], str], rank: int) -> str:
    try:
        return case(distributed.new_group(), rank)
    except RuntimeError as error:
        return str(error).partition(":")[0]


def crossing(group: distributed.ProcessGroup, rank: int) -> str:
    """Both receive, and then send."""
    works = [group.recv([torch.zeros(1)], 1 - rank, 0), group.send([torch.ones(1)], 1 - rank, 1)]
    return str([work.wait() for work in works])


def crossing_together(group: distributed.ProcessGroup, rank: int) -> str:
    """Both at once."""
    operations = [
        distributed.P2POp(each, torch.ones(1), 1 - rank, group) for each in (distributed.irecv, distributed.isend)
    ]
    return str([work.wait() for work in distributed.batch_isend_irecv(operations)])


def synchronising(group: distributed.ProcessGroup, rank: int) -> str:
    """One synchronises between what it has asked for and what the other one waits for."""
    other = distributed.new_group()
    if rank == 1:
        group.recv([torch.zeros(1)], 0, 0).wait()
        return str(other.send([torch.ones(1)], 0, 0).wait())
    coming = other.recv([torch.zeros(1)], 1, 0)
    synchronise()
    group.send([torch.ones(1)], 1, 0).wait()
    return str(coming.wait())


def in_order(group: distributed.ProcessGroup, rank: int) -> str:
    """Tags are not looked at."""
    values = [torch.full((1,), float(rank) * (2 + tag)) for tag in range(2)]
    tags = (0, 1) if rank else (1, 0)
    works = [(group.send if rank else group.recv)([values[tag]], 1 - rank, tag) for tag in tags]
    for work in works:
        work.wait()
    return str([float(values[tag]) for tag in tags])


def test_what_waits_for_ever_by_the_rules_is_found_out() -> None:
    with Workers(["cpu"] * 2, pin=False) as workers:
        workers.run(Rules(limit=1.5))
        first, second = workers.run(asked)
    assert first == ["hangs", "[True]", "hangs", "[2.0, 3.0]"]
    assert second == ["hangs", "[True]", "hangs", "[2.0, 3.0]"]


def collectives(process: Process) -> list[list[float]]:
    """What DTensor's collectives return, of which each is asked of the communicator, and what the group cannot do."""
    mine, group = torch.tensor([1.0, 2.0]) + 2 * process.rank, distributed.group.WORLD
    assert group is not None
    with patch.object(Communicator, "ask", autospec=True, side_effect=Communicator.ask) as ask:
        found = [
            all_reduce(mine, "sum", group),
            all_gather_single(mine, 0, group),
            reduce_scatter_single(mine, "sum", 0, group),
            all_to_all_single(mine, None, None, group),
            broadcast(mine, 1, group),
        ]
        returned = [each.tolist() for each in found]
        assert ask.call_count == len(found)
    with pytest.raises(RuntimeError, match="No backend"):
        distributed.reduce(mine, 0)
    return returned


def test_collectives_go_through_the_communicator_or_fail(by_the_rules: Callable[[int], Workers]) -> None:
    first, second = by_the_rules(2).run(collectives)
    assert first == [[4.0, 6.0], [1.0, 2.0, 3.0, 4.0], [4.0], [1.0, 3.0], [3.0, 4.0]]
    assert second == [[4.0, 6.0], [1.0, 2.0, 3.0, 4.0], [6.0], [2.0, 4.0], [3.0, 4.0]]


# ---- plans -----------------------------------------------------------------------------------------------------------


def placed(problem: Problem, random: np.random.Generator) -> Plan:
    """Each op on any device, or most on the first; in the order of the simulator, of the program, or any."""
    units, devices = problem.graph.num_units, len(problem.cluster)
    placement = random.integers(0, devices, units)
    placement[random.random(units) < random.choice([0.0, 0.5, 0.9])] = 0
    orders: list[object] = ["", "program", "fifo", random.random(len(problem.graph))]
    return Plan.of_units(problem, placement, order=orders[random.integers(len(orders))])  # type: ignore[arg-type]


def staged(problem: Problem, random: np.random.Generator) -> Plan:
    """Stages of as many units, on devices in any order, and an order of passes that is made for them."""
    devices, graph = len(problem.cluster), problem.graph
    ranks = int(random.integers(2, devices + 1))
    replicas = 2 if ranks == 2 and devices == 4 and random.random() < 0.5 else 1
    numbers = random.permutation(devices)[: ranks * replicas].reshape(ranks, replicas).tolist()
    up = list(range(ranks))
    while True:
        rank_of = [up, up + up, up + up[::-1]][random.integers(3)]
        stage = (graph.units * len(rank_of) // graph.num_units).tolist()
        zero: Zero = 1 if replicas == 2 and random.random() < 0.5 else 0
        recompute = tuple(np.flatnonzero(random.random(len(rank_of)) < 0.2).tolist())
        schedule = Schedule(
            int(random.choice([1, 2, 3, 6])), tuple(stage), random.choice(ORDERS), recompute=recompute, zero=zero
        )  # fmt: skip
        plan = Plan(tuple(tuple(numbers[rank_of[number]]) for number in stage), schedule=schedule)
        try:
            check_can_run(problem, plan)
            stages_of(program(TRANSFORMER if graph.name == TRANSFORMER else NORMED), problem, plan, {})
        except InputError:
            continue
        return plan


def replicated(problem: Problem, random: np.random.Generator) -> Plan:
    """All ops on several devices, which divide the batch, and each its part; batch norm needs more than one sample."""
    count = int(random.integers(2, len(problem.cluster) + 1))
    devices = tuple(random.permutation(len(problem.cluster))[:count].tolist())
    ops = len(problem.graph)
    return Plan((devices,) * ops, schedule=Schedule(int(random.choice([1, 6 // count])), (0,) * ops))


def sharded(problem: Problem, random: np.random.Generator) -> Plan:
    """As `replicated`, which hold parts of weights, or of what belongs to them, all together or in groups."""
    plan, zero = replicated(problem, random), ZEROS[random.integers(1, 4)]
    group = 2 if len(plan.devices[0]) == 4 and random.random() < 0.7 else 0
    order = "early_backward_a" if plan.schedule.micro_batches > 1 else AS_READY
    return replace(plan, schedule=replace(plan.schedule, order=order, zero=zero, shard_group=group))


def divided(problem: Problem, random: np.random.Generator) -> Plan:
    """The heads and features of the Transformer, as experts divide them."""
    placer = TensorParallel(int(random.integers(2, len(problem.cluster) + 1)), random.choice(["whole", "batch"]))
    return as_result(placer.place(problem, seed=0, budget=1), "tensor_parallel", 0).plan


WAYS = {"placed": placed, "staged": staged, "replicated": replicated, "divided": divided, "sharded": sharded}


@cache
def program(model: str) -> CapturedProgram:
    return CapturedProgram.of(seeded_example(model, 0))


def drawn(way: str, devices: int, seed: int) -> tuple[Training, Problem, Plan]:
    """A model, and a plan of it by one of the ways of running."""
    random = np.random.default_rng([devices, seed])
    model = NORMED if way != "divided" and seed % 2 else TRANSFORMER
    problem = Problem(program(model).step, load_cluster(f"p100x{devices}"))
    return Training(model, steps=1), problem, WAYS[way](problem, random)


# ---- none hangs ------------------------------------------------------------------------------------------------------


BRIEFLY = 1  # plans of each way and number of processes; with those marked slow there are 100
PLANS = [
    pytest.param(way, devices, seed, marks=[] if seed < BRIEFLY else [pytest.mark.slow])
    for devices, counts in ((2, (15, 8, 3, 3, 2)), (3, (15, 11, 3, 3, 2)), (4, (14, 12, 3, 3, 3)))
    for way, count in zip(WAYS, counts, strict=True)
    for seed in range(count)
]


def test_there_are_a_hundred_plans() -> None:
    assert len(PLANS) == 100


@pytest.mark.parametrize(("way", "devices", "seed"), PLANS)
def test_no_plan_hangs_and_each_trains_as_the_model_does(
    way: str, devices: int, seed: int, by_the_rules: Callable[[int], Workers]
) -> None:
    run = run_plan(by_the_rules(devices), *drawn(way, devices, seed), check=True, limit=LIMIT)
    assert run.is_equal, run.differences
    assert not run.not_compared
