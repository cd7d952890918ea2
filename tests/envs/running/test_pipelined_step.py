"""Pipelines and replicas, run by processes, train as the model itself does on the same parts of its batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from envs.expansion.expanded import Expansion, Role
from envs.pass_orders import PassKind
from envs.pipelines.grain.expand_stages import expand_stages
from envs.pipelines.grain.stage_grain import GRADIENT, KINDS
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY, Schedule
from envs.running.pipelined.schedule_rows import schedule_rows
from envs.running.pipelined.stage_modules import stage_programs
from envs.running.plan_rules import check_pipeline
from envs.running.processes import Workers
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase
from graphs.problem import Problem
from tests.drawn import examples
from tests.envs.expansion.pipelines import Pipeline, interleaved, servers, v_shaped
from tests.envs.running.pipeline_jobs import PROCESSES, RATE, STEPS, Case, Result, Trainings, unplaced
from tests.envs.running.trained_models import STOPPED

pytestmark = pytest.mark.drawn
TWO, THREE = ((0,), (1,)), ((0,), (1,), (2,))


def random_case(seed: int) -> Case:
    """Any stages on any devices."""
    random = np.random.default_rng(seed)
    ranks = int(random.integers(1, 5))
    rank_of = random.permutation([*range(ranks), *random.integers(0, ranks, random.integers(0, 5))])
    hosted = sorted(tuple(np.flatnonzero(rank_of == rank).tolist()) for rank in range(ranks))
    replicas = 2 if ranks <= 2 and seed % 2 else 1
    return Case(
        str(random.choice(["gpt", "conv", "experts"])), tuple(hosted), str(random.choice([AS_READY.name, "gpipe"])),
        int(random.choice([1, 2])), replicas, tuple(np.flatnonzero(random.random(len(rank_of)) < 0.2).tolist()),
        devices=tuple(random.permutation(ranks * replicas).tolist()),
    )  # fmt: skip


CASES = (
    *(
        case
        for model in ("gpt", "conv", "mlp")[: examples(3, 2)]
        for case in (
            Case(model, TWO, "early_backward_a"),
            Case(model, v_shaped(2), "zb_v"),
            Case(model, THREE, "zb_h1", devices=(2, 0, 1)),
            Case(model, TWO, "early_backward_a", micro_batches=2, replicas=2),
            Case(model, ((0,),), micro_batches=2, replicas=2),
        )
    ),
    Case("mlp", THREE, "gpipe"),
    Case("mlp", v_shaped(2), "v_half"),  # rows, as PyTorch has no schedule of that name
    Case("conv", TWO, "gpipe", micro_batches=2),
    Case("gpt", THREE, "early_backward_a", micro_batches=2),  # fewer than PyTorch's own schedule takes
    Case("gpt", ((0, 1, 2), (3,), (4, 5, 6)), recompute=(2,)),  # a part of a tensor is sent
    Case("gpt", interleaved(2), "interleaved", recompute=(1,)),
    Case("conv", interleaved(3), micro_batches=2),  # in the simulated order
    Case("gpt", ((0, 1),), "gpipe", micro_batches=2),  # both stages on one device
    Case("conv", ((0,),), micro_batches=2, replicas=2, as_pipeline=True),
    Case("mlp", ((0,),), micro_batches=1, replicas=4),
    Case("mlp", ((0,),), micro_batches=1, replicas=4, shares=((1, 3, 2, 2),), devices=(3, 1, 0, 2)),
    Case("gpt", ((0,),), micro_batches=2, replicas=2, shares=((3, 1),)),
    Case("gpt", ((0,),), "early_backward_a", 2, 4, zero=3),
    Case("gpt", ((0,),), "early_backward_a", 2, 2, zero=3, recompute=(0,), frozen=1),
    Case("conv", ((0,),), micro_batches=2, replicas=2, zero=2),
    Case("gpt", TWO, "early_backward_a", micro_batches=2, replicas=2, zero=1),  # a weight of both stages
    Case("mlp", ((0,),), micro_batches=1, replicas=4, zero=1, shard_group=2, as_pipeline=True),
    Case("mlp", ((0,),), micro_batches=2, replicas=4, zero=1, shard_group=2),
    Case(
        "mlp", ((0,),), micro_batches=1, replicas=4, zero=2, shard_group=2, shares=((1, 3, 2, 2),), devices=(3, 1, 0, 2)
    ),
    Case("experts", ((0,),), "early_backward_a", 2, 4, zero=3, shard_group=2),
    Case("gpt", ((0,),), "early_backward_a", 2, 2, zero=3, offload=True, devices=(2, 1)),
    Case("bert", interleaved(3)),  # a stage that makes a mask alone
    Case("experts", interleaved(2), "interleaved_zero_bubble", recompute=(0, 2)),
    Case("experts", TWO, "early_backward_b", devices=(1, 0), micro_batches=2),
    Case("translator", TWO, "zb_h1"),  # weights that each time step reads
    Case("gpt", interleaved(2), "interleaved", frozen=1),
    Case("gpt", ((0,),), micro_batches=2, replicas=2, frozen=2),
    Case("attention", THREE, "early_backward_a", micro_batches=8),  # of one sample
    *(Case(name, THREE, "early_backward_a") for name in STOPPED if name != "checkpoint"),
    Case("vq-vae", interleaved(2), "interleaved", recompute=(1,)),
    Case("gan", TWO, "zb_h1"),
    Case("no_grad", ((0,),), micro_batches=2, replicas=2),
    Case("own: reversal", TWO, "early_backward_a"),
    Case("own: a product", TWO, "early_backward_a", recompute=(0,)),
    Case("own: one operation", TWO, "zb_h1"),
    Case("own: several operations", ((0,),), as_pipeline=True),
    Case("own: several results", ((0,),), as_pipeline=True),
    *(random_case(seed) for seed in range(examples(6, 2))),
)


@pytest.fixture(scope="module")
def results(processes: Callable[[int], Workers]) -> dict[Case, list[Result]]:
    """What each process has in the end, of every case."""
    found = processes(PROCESSES).run(Trainings(CASES), limit=180.0)
    return {case: [of_process[number] for of_process in found] for number, case in enumerate(CASES)}


def name_of(case: Case) -> str:
    return f"{case.model}-{case.order}-{case.stages}-{case.micro_batches}-{case.replicas}"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_training_equals_that_of_the_model(case: Case, results: dict[Case, list[Result]]) -> None:
    expected, found = unplaced(case), results[case]
    np.testing.assert_allclose(np.sum([each.losses for each in found], axis=0), expected.losses, rtol=1e-5, atol=1e-4)
    assert {name for each in found for name in each.weights} == set(expected.weights)
    largest = max(np.abs(gradient).max() for gradient in expected.gradients.values())
    for name, gradient in expected.gradients.items():
        is_noise = np.abs(gradient) < 1e-5 * largest  # Adam divides it by itself
        for own, weight in of(found, "gradients", "weights", name=name):
            np.testing.assert_allclose(own, gradient, rtol=1e-4, atol=1e-6 * largest)
            apart = np.abs(weight - expected.weights[name])
            assert (apart <= np.where(is_noise, 2 * RATE * STEPS, 1e-5)).all(), name
    changed = {name for each in found for name in each.buffers}
    assert changed == {name for name in expected.buffers if "running" in name or "num_batches" in name}
    for name in changed:
        for (own,) in of(found, "buffers", name=name):
            np.testing.assert_allclose(own, expected.buffers[name], rtol=1e-5, atol=1e-6)


def of(found: list[Result], *kinds: str, name: str) -> list[tuple[np.ndarray, ...]]:
    """What each of the processes that have it has under a name."""
    both = [[getattr(each, kind) for kind in kinds] for each in found]
    assert any(name in arrays[0] for arrays in both), f"no process has {name}"
    return [tuple(each[name] for each in arrays) for arrays in both if name in arrays[0]]


@pytest.mark.parametrize("case", [case for case in CASES if case.stages > 1], ids=name_of)
def test_every_pass_is_recorded_in_the_order_of_its_row(case: Case, results: dict[Case, list[Result]]) -> None:
    """Ops of the plan at the grain of stages that take time; devices without a stage record nothing."""
    program = case.program()
    problem = case.problem(program)
    plan = case.plan(problem)
    expansion, rows = expand_stages(problem, plan), schedule_rows(problem, plan)
    assert expansion.problem.op_seconds is not None
    works = (expansion.role <= Role.RECOMPUTED) & (expansion.problem.op_seconds.max(axis=1) > 0)
    for device, result in enumerate(results[case]):
        here = works & (expansion.placement == device)
        assert {span.op for span in result.spans} == set(np.flatnonzero(here).tolist())
        ops = [span.op for span in sorted(result.spans, key=lambda span: (span.start, span.finish))]
        ran = [(int(expansion.stage[op]), int(expansion.micro_batch[op]), part_of(expansion, op)) for op in ops]
        of_rank = [passes for passes, replicas in zip(rows.passes, rows.devices, strict=True) if device in replicas]
        row = [(each.stage, each.micro_batch, part) for each in sum(of_rank, ()) for part in PARTS[each.kind]]
        has_ops = [each for each in row if each in ran]
        assert without_repeats([each for each in ran if each[1] >= 0]) == without_repeats(has_ops)
        is_update = [micro_batch < 0 for _, micro_batch, _ in ran]
        assert is_update == sorted(is_update)


PARTS: dict[PassKind, tuple[PassKind, ...]] = {
    PassKind.BACKWARD: (PassKind.INPUT_GRADIENT, PassKind.WEIGHT_GRADIENT),
    **{kind: (kind,) for kind in PassKind if kind != PassKind.BACKWARD},
}


def part_of(expansion: Expansion, op: int) -> PassKind:
    """The part of a pass that an op at the grain of stages stands for."""
    if expansion.problem.graph.phase[op] == Phase.FORWARD:
        return PassKind.FORWARD
    is_weight = expansion.given.graph.kinds[expansion.origin[op]] == KINDS[GRADIENT]
    return PassKind.WEIGHT_GRADIENT if is_weight else PassKind.INPUT_GRADIENT


def without_repeats(passes: list[tuple[int, int, PassKind]]) -> list[tuple[int, int, PassKind]]:
    return [each for number, each in enumerate(passes) if number == 0 or passes[number - 1] != each]


# ---- what is refused ---------------------------------------------------------------------------------------------


def test_a_micro_batch_with_another_answer_than_the_example_s_is_refused(processes: Callable[[int], Workers]) -> None:
    case = Case("masked", ((0,),), as_pipeline=True)
    with pytest.raises(InputError, match=r"masked: what is computed depends on data at .*a micro-batch differs there"):
        processes(PROCESSES).run(Trainings((case,)), limit=60.0)


def chain(**schedule: Any) -> tuple[Problem, Plan]:
    """Two stages on two devices."""
    pipeline = Pipeline(2, 2)
    plan = pipeline.plan("gpipe", **schedule)
    devices = max(max(each) for each in plan.devices) + 1
    return pipeline.problem(servers(devices)), plan


def test_plans_that_cannot_be_run_as_pipelines_are_refused() -> None:
    for plan, words in (
        (chain(replicas=(2, 1)), "stages 0 and 1 have 2 and 1 replicas"),
        (chain(replicas=(2, 2), sharing="turns"), "in turns"),
        (chain(replicas=(2, 2), shares=((3, 1), ())), "unequal shares of the batch, which are run with one stage"),
        (chain(update="micro_batch"), "updates weights after each micro-batch"),
        (chain(recompute=(0,), recompute_at="early"), "use recompute_at 'late'"),
        (chain(recompute=(0,), recompute_at="block"), "recomputes block by block, and processes recompute whole"),
        (chain(), "it is not known how many samples"),
    ):
        with pytest.raises(InputError, match=words):
            check_pipeline(*plan)


def test_divided_ops_and_sparse_gradients_are_refused() -> None:
    case = Case("mlp", TWO, "gpipe")
    problem = case.problem(case.program())
    plan = case.plan(problem)
    assert check_pipeline(problem, plan).ranks == TWO
    split = replace(plan, devices=tuple((0, 1) for _ in plan.devices), split=tuple(("",) for _ in plan.devices))
    with pytest.raises(InputError, match="divides ops as well"):
        check_pipeline(problem, replace(split, schedule=Schedule(2)))
    graph = problem.graph
    sparse = replace(problem, graph=replace(graph, kinds=("aten.embedding.sparse", *graph.kinds[1:])))
    with pytest.raises(InputError, match="use sparse=False"):
        check_pipeline(sparse, plan)


def test_a_stage_sends_to_the_next_one_alone() -> None:
    """What the first tower of the conv net makes is passed on by stages of the second one."""
    case = Case("conv", interleaved(3))
    program = case.program()
    stage = np.array(case.plan(case.problem(program)).schedule.stages)[: program.loss + 1]
    stages = stage_programs(program, stage)
    assert (stages[0].received, stages[-1].sent) == ((), ())
    for one, other in pairwise(stages):
        assert one.sent == other.received
        assert set(other.part.reads) <= set(other.received)
        assert set(one.sent) <= {*one.received, *one.part.results}
    assert any(set(one.received) & set(one.sent) for one in stages)
    stage[:2] += 5  # so that there is a last stage
    stage[program.loss] = 4
    with pytest.raises(InputError, match="the loss is in stage 4, and the last stage is 5"):
        stage_programs(program, stage)
