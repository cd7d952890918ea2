"""Replicas that hold parts of weights, run by `fully_shard`: they hold, gather and scatter what the plan says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from envs.plans.plan import Plan
from envs.plans.schedule import Schedule, Zero
from envs.running.adam import Adam
from envs.running.captured_program import CapturedProgram
from envs.running.model_data import batches, seeded_example
from envs.running.processes import Process, Workers
from envs.running.sharded.sharded_blocks import checkpointed_modules, sharded_blocks
from envs.running.sharded.sharded_step import ShardedStep, check_module
from envs.running.ways import check_can_run
from graphs.capture.examples import Example
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError
from graphs.problem import Problem

MODEL, BLOCKS, BATCHES, PROCESSES = "transformer:layers=3,width=16,heads=2,sequence=4,batch=8,vocabulary=32", 3, 2, 4


def problem_of(program: CapturedProgram) -> Problem:
    return Problem(program.step, load_cluster(f"p100x{PROCESSES}"))


def plan_of(problem: Problem, zero: Zero, group: int = 0, recompute: tuple[int, ...] = ()) -> Plan:
    schedule = Schedule(
        BATCHES, order="early_backward_a", recompute=recompute, recompute_at="block", zero=zero, shard_group=group
    )
    return Plan((tuple(range(PROCESSES)),) * len(problem.graph), schedule=schedule)


class Collectives(TorchDispatchMode):
    """Counts them by name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            self.counts[func.name().rpartition("::")[2]] += 1
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Counted:
    """A job: a second step by plans, of which the collectives are counted, and bytes of the parts of weights."""

    cases: tuple[tuple[Zero, int, tuple[int, ...]], ...]

    def __call__(self, process: Process) -> list[tuple[Counter[str], int, int]]:
        return [self._counted(process, *case) for case in self.cases]

    def _counted(
        self, process: Process, zero: Zero, group: int, recompute: tuple[int, ...]
    ) -> tuple[Counter[str], int, int]:
        program = CapturedProgram.of(seeded_example(MODEL, 0))
        problem, calls = problem_of(program), list[str]()
        plan = plan_of(problem, zero, group, recompute)
        step = ShardedStep(program, problem, plan, process, Adam().optimizer)
        block = step._own().get_submodule("layers.1")
        first = next(iter(block.children()))
        first.register_forward_hook(lambda *_: calls.append("forward"))
        drawn = batches(program.example, seed=0)
        step.run(next(drawn))
        calls.clear()
        with Collectives() as collectives:
            step.run(next(drawn))
        held = sum(weight.to_local().nbytes for weight in step._own().parameters())  # type: ignore[attr-defined]
        return collectives.counts, held, len(calls)


CASES: tuple[tuple[Zero, int, tuple[int, ...]], ...] = ((1, 0, ()), (2, 0, ()), (3, 0, ()), (3, 2, (0,)))


def test_they_hold_gather_and_scatter_as_the_plan_says(processes: Callable[[int], Workers]) -> None:
    """Groups are blocks, and the rest: gathered once in a step or, of 3, blocks for each pass, the rest for both."""
    weights = sum(each.nbytes for each in seeded_example(MODEL, 0).module.parameters())
    groups = BLOCKS + 1
    gathers = [groups, groups, *[BATCHES * (2 * BLOCKS + 1)] * 2]
    scatters = [groups, *[BATCHES * groups] * 3]
    for found in processes(PROCESSES).run(Counted(CASES), limit=120.0):
        for (counts, held, calls), gathered, scattered, (_, group, again) in zip(
            found, gathers, scatters, CASES, strict=True
        ):
            assert counts["_allgather_base_"] == gathered
            assert counts["_reduce_scatter_base_"] == scattered
            assert counts["allreduce_"] == (groups if group else 0)
            assert weights / (group or PROCESSES) <= held <= 1.1 * weights / (group or PROCESSES)
            assert calls == BATCHES * (2 if again else 1)


def test_what_cannot_be_run_is_refused() -> None:
    program = CapturedProgram.of(seeded_example(MODEL, 0))
    problem = problem_of(program)
    plan = plan_of(problem, 3, recompute=(0,))
    with pytest.raises(InputError, match="block by block; use recompute_at 'block'"):
        check_can_run(problem, replace(plan, schedule=replace(plan.schedule, recompute_at="late")))
    units = problem.graph.units < problem.graph.num_units // 2
    apart = tuple((0, 1) if each else (2, 3) for each in units.tolist())
    with pytest.raises(InputError, match="is run with one stage alone; use zero 1"):
        check_can_run(problem, replace(plan, devices=apart, schedule=Schedule(BATCHES, order="gpipe", zero=2)))
    with pytest.raises(InputError, match=r"none of .* being these ops; take whole blocks"):
        check_module(program, problem, with_the_first_units_again(problem, plan, more=2))
    scaled = Scaled()
    single = CapturedProgram.of(Example(scaled, (torch.zeros(8, 4),), {}, "scaled", 8))
    with pytest.raises(InputError, match="'scale' is a single number"):
        check_module(single, problem_of(single), plan_of(problem_of(single), 3))


def with_the_first_units_again(problem: Problem, plan: Plan, more: int) -> Plan:
    """Those before the second block, and some more."""
    begins = next(op for op, name in enumerate(problem.graph.names) if name.startswith("layers.1."))
    is_later = problem.graph.units >= problem.graph.units[begins] + more
    stages = tuple(is_later.astype(int).tolist())
    return replace(plan, schedule=replace(plan.schedule, stages=stages, recompute=(0,)))


def test_blocks_again_are_modules() -> None:
    program = CapturedProgram.of(seeded_example(MODEL, 0))
    problem, module = problem_of(program), program.example.module
    plan = plan_of(problem, 3, recompute=(0,))
    blocks = [module.get_submodule(f"layers.{number}") for number in range(BLOCKS)]
    assert checkpointed_modules(problem, plan, module) == sharded_blocks(problem.graph, module) == blocks
    first = with_the_first_units_again(problem, plan, more=0)
    assert checkpointed_modules(problem, first, module) == blocks[:1]


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = torch.nn.Linear(4, 4), torch.nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x) * self.scale
        return y
