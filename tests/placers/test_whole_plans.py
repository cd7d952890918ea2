"""Placers of whole plans: data parallelism and pipelines of micro-batches."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.objectives import evaluate_objective
from envs.pipelines.unit_order import pipeline_positions
from envs.plans.schedule import WHOLE_BATCH
from envs.simulation.simulator import simulate
from graphs.cluster import Cluster
from graphs.files.load import load_cluster, load_graph
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph, Phase
from graphs.op_graph.batch_law import BatchLaw
from graphs.op_groups.grouping import tie_ops
from graphs.problem import Problem, objective_of
from graphs.runtime import LONGEST_PATH, PROGRAM
from placers.data_parallel import DataParallel
from placers.gpipe import GPipe
from placers.pipelines.replica_shares import ReplicaCosts
from tests.contracts.test_placers import training_graph, unequal_cluster
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.oracle.toys import random_graph, toy_cluster, toy_graph


def never_backwards(graph: OpGraph, stages: tuple[int, ...]) -> bool:
    """Whether forward edges lead to later stages only, and edges between backward ops to earlier ones."""
    stage, phase = np.array(stages), graph.phase[graph.edges]
    change = stage[graph.edges[:, 1]] - stage[graph.edges[:, 0]]
    forward, backward = ((phase == each).all(axis=1) for each in (Phase.FORWARD, Phase.BACKWARD))
    return bool((change[forward] >= 0).all() and (change[backward] <= 0).all())


# ---- data parallelism ------------------------------------------------------------------------------------------------


def test_data_parallelism_has_every_op_on_every_device() -> None:
    problem = Problem(training_graph(), toy_cluster(3))
    assert DataParallel().place(problem, budget=0).plan.devices == ((0, 1, 2),) * 36
    assert DataParallel(devices=2).place(problem, budget=0).plan.devices == ((0, 1),) * 36
    assert DataParallel(devices=1).place(problem, budget=0).plan.is_placement


def test_data_parallelism_leaves_out_a_cpu_that_all_others_would_wait_for() -> None:
    problem = Problem(training_graph(), unequal_cluster())
    assert DataParallel().place(problem, budget=0).plan.devices[0] == (1, 2)


def test_data_parallelism_refuses_what_it_cannot_do() -> None:
    with pytest.raises(InputError, match="asked for 4 devices, cluster 'toy3' has 3"):
        DataParallel(devices=4).place(Problem(training_graph(), toy_cluster(3)))
    with pytest.raises(InputError, match="unknown all_reduce 'tree'"):
        DataParallel(all_reduce="tree")
    with pytest.raises(InputError, match="a bucket of gradients has 0"):
        DataParallel(bucket_bytes=0.0)
    bound = replace(random_graph(3, seed=0), devices=(("gpu:0",), (), ()))
    with pytest.raises(InputError, match="'op0' may only run on gpu:0; use another placer"):
        DataParallel().place(Problem(bound, toy_cluster(2)))


def test_without_weights_as_many_devices_are_as_many_times_as_fast() -> None:
    chain = Pipeline(stages=3, forward=4.0, backward=8.0, is_training=False)
    problem = chain.problem(servers(4))
    assert simulate(problem, DataParallel().place(problem).plan).step_seconds == pytest.approx(3.0)


def test_gradients_are_accumulated_over_as_many_micro_batches_as_memory_asks_for() -> None:
    chain = Pipeline(stages=4, activation=64.0, weights=1.0)  # 256 bytes are kept for the backward pass
    for memory, expected in ((500.0, 1), (150.0, 1), (80.0, 2), (50.0, 4)):
        problem = chain.problem(servers(2, memory=memory))
        result = DataParallel().place(problem, budget=9)
        assert simulate(problem, result.plan).fits
        assert result.plan.schedule.micro_batches == expected
        assert DataParallel(micro_batches=8).place(problem).plan.schedule.micro_batches == 8


def test_weights_that_fit_on_no_device_are_not_divided() -> None:
    problem = Pipeline(stages=2, weights=99.0).problem(servers(2, memory=50.0))
    result = DataParallel().place(problem, budget=9)
    assert result.plan.schedule == WHOLE_BATCH
    assert not simulate(problem, result.plan).fits


def of_speeds(*speeds: float, bandwidth: float = np.inf, memory: Sequence[float] = (1e18,) * 3) -> Cluster:
    """Devices that compute so many FLOP in a second."""
    even = servers(len(speeds), bandwidth=bandwidth)
    each = zip(even.devices, speeds, memory, strict=False)
    return replace(even, devices=tuple(replace(one, flops_per_second=s, memory_bytes=m) for one, s, m in each))


def test_unequal_devices_have_shares_by_speed_and_end_together() -> None:
    graph = replace(Pipeline(2, forward=8.0, backward=16.0).graph(), batch_law=BatchLaw(samples=16))
    problem = Problem(graph, of_speeds(1.0, 4.0, 3.0))
    result = DataParallel().place(problem, budget=9)
    assert result.plan.schedule.shares == ((1, 4, 3),)
    assert simulate(problem, result.plan).step_seconds == pytest.approx(48 / 8)
    assert result.notes == (
        "data_parallel: of 16 parts of a micro-batch go, by speed, 2 to gpu:0, 8 to gpu:1, 6 to gpu:2.",
    )
    assert DataParallel(shares="equal", devices=2).place(problem).plan.schedule.shares == ()
    given_by_hand = DataParallel(shares="3:1").place(problem).plan
    assert given_by_hand.schedule.shares == ((3, 1),)
    assert given_by_hand.devices[0] == (0, 1)


def test_equal_shares_of_devices_that_are_linked_well_are_taken_where_shares_by_speed_are_slower() -> None:
    problem = Problem(load_graph("vit:layers=2,batch=64"), load_cluster("v100_a100"))
    found, equal = DataParallel().place(problem, budget=20), DataParallel(shares="equal").place(problem)
    assert simulate(problem, found.plan).step_seconds <= simulate(problem, equal.plan).step_seconds
    assert found.notes == equal.notes != ()


@given(st.lists(st.floats(0.1, 9.0), min_size=2, max_size=5), st.integers(1, 40), st.integers(1, 3), st.data())
def test_no_other_shares_end_sooner_by_formula(
    speeds: list[float], parts: int, micro_batches: int, data: st.DataObject
) -> None:
    """Compared with moving one part from any device to any other: the longest of affine times is convex."""
    per_batch = 1 / np.array(speeds)
    fixed = np.array(data.draw(st.lists(st.floats(0.0, 1.0), min_size=len(speeds), max_size=len(speeds))))
    room = np.array(data.draw(st.lists(st.floats(0.5, 2.0), min_size=len(speeds), max_size=len(speeds))))
    costs = ReplicaCosts(per_batch, fixed, np.zeros(len(speeds)), room)
    shares = np.array(costs.shares(parts, micro_batches))
    assert shares.sum() == parts
    assert (shares >= (parts >= len(speeds))).all()

    def longest(shares: np.ndarray) -> float:
        return float((fixed * micro_batches + per_batch * shares / parts)[shares > 0].max())

    for one, other in itertools.permutations(range(len(speeds)), 2):
        moved = shares.copy()
        moved[[one, other]] += (-1, 1)
        if moved[one] >= (shares[one] > 0) and shares[other] and moved[other] <= room[other] * parts * micro_batches:
            assert longest(moved) >= longest(shares) * (1 - 1e-9)


def test_a_device_with_little_memory_has_no_more_than_fits() -> None:
    graph = replace(Pipeline(4, activation=64.0, weights=1.0).graph(), batch_law=BatchLaw(samples=32))
    problem = Problem(graph, of_speeds(1.0, 1.0, memory=(300.0, 90.0)))
    result = DataParallel(devices=2).place(problem, budget=9)
    found = simulate(problem, result.plan)
    assert found.fits
    assert result.plan.schedule.micro_batches == 1
    assert found.peak_bytes[1] > 80  # of 90
    assert not simulate(problem, DataParallel(shares="equal", micro_batches=1).place(problem).plan).fits


def test_measured_times_are_in_proportion_to_the_share_and_a_note_says_so() -> None:
    chain = Pipeline(2, forward=8.0, backward=16.0).problem(servers(2))
    seconds = np.outer(chain.graph.flops, (1.0, 1 / 3))
    result = DataParallel().place(replace(chain, op_seconds=seconds), budget=9)
    assert result.plan.schedule.shares == ((1, 3),)
    assert result.notes[1].startswith("data_parallel: times were measured with the whole batch")


def test_shares_that_are_none_are_refused() -> None:
    for wrong in ("3", "3:0", "fast", "3:-1"):
        with pytest.raises(InputError, match="says no shares; expected how many parts of the batch"):
            DataParallel(shares=wrong)
    with pytest.raises(InputError, match="shares=3:1 are of 2 devices, and devices=3; change one"):
        DataParallel(shares="3:1", devices=3)
    graph = replace(Pipeline(2).graph(), batch_law=BatchLaw(samples=12))
    with pytest.raises(InputError, match="into 2 micro-batches of 4 parts, the shares 3:1; choose numbers"):
        DataParallel(shares="3:1", micro_batches=2).place(Problem(graph, servers(2)))


def test_samples_are_divided_evenly() -> None:
    graph = replace(Pipeline(stages=3).graph(), batch_law=BatchLaw(samples=6))
    problem = Problem(graph, servers(4))
    result = DataParallel().place(problem)
    assert result.plan.devices[0] == (0, 1, 2)
    assert result.notes == ("data_parallel: 3 of 4 devices, the most that a step's samples divide among.",)
    assert GPipe().place(problem).plan.schedule.micro_batches == 6
    assert GPipe(replicas=2).place(problem).plan.schedule.micro_batches == 3
    for placer in (DataParallel(devices=4), DataParallel(micro_batches=4), GPipe(micro_batches=4), GPipe(replicas=4)):
        with pytest.raises(InputError, match="has 6 samples, which cannot be divided into"):
            placer.place(problem)


def test_the_numbers_of_micro_batches_that_a_refusal_names_can_be_used() -> None:
    for samples, stages in ((16, 3), (14, 4), (30, 4), (7, 2)):
        problem = Problem(
            replace(Pipeline(stages=stages).graph(), batch_law=BatchLaw(samples=samples)), servers(stages)
        )
        with pytest.raises(
            InputError, match=r"which must be equal; use .* micro-batches, into which .* samples"
        ) as raised:
            GPipe(micro_batches=samples, order="interleaved").place(problem)
        named = re.findall(r"\d+", str(raised.value).partition("; use ")[2].partition(" micro")[0])
        assert named
        for count in map(int, named):
            plan = GPipe(micro_batches=count, order="interleaved").place(problem).plan
            assert plan.schedule.micro_batches == count
        assert GPipe(order="interleaved").place(problem).plan.schedule.micro_batches <= samples
    unknown = Problem(replace(problem.graph, batch_law=None), problem.cluster)
    with pytest.raises(InputError, match=r"use 6 or 9 micro-batches$"):
        GPipe(micro_batches=7, order="interleaved").place(unknown)


# ---- pipelines -------------------------------------------------------------------------------------------------------


def test_gpipe_puts_four_micro_batches_per_stage_through_balanced_stages() -> None:
    chain = Pipeline(stages=4, micro_batches=8, forward=1.0, backward=2.0)
    problem = chain.problem(servers(2))
    plan = GPipe().place(problem).plan
    assert plan.schedule.micro_batches == 8
    assert plan.schedule.order.name == "gpipe"
    assert plan.placement.tolist() == list(plan.schedule.stages)
    assert [plan.schedule.stages[op] for op in range(4)] == [0, 0, 1, 1]
    assert simulate(problem, plan).step_seconds == pytest.approx((8 + 2 - 1) * 2 * (1 + 2))


def test_one_micro_batch_without_replicas_is_an_op_placement() -> None:
    problem = Problem(training_graph(), toy_cluster(3))
    assert GPipe(micro_batches=1).place(problem).plan.is_placement
    assert not GPipe(micro_batches=1, recompute=True).place(problem).plan.is_placement


def test_replicas_of_a_stage_are_neighbours() -> None:
    problem = Pipeline(stages=4).problem(servers(4))
    plan = GPipe(replicas=2, micro_batches=4).place(problem).plan
    assert [plan.devices[op] for op in range(4)] == [(0, 1), (0, 1), (2, 3), (2, 3)]
    with pytest.raises(InputError, match="4 devices of 'servers4' cannot be divided among stages of 3 replicas"):
        GPipe(replicas=3).place(problem)


def test_one_stage_of_replicas_is_data_parallelism() -> None:
    problem = Pipeline(stages=3, weights=8.0).problem(servers(4, bandwidth=4.0))
    plan = GPipe(replicas=4).place(problem).plan
    assert replace(plan, order=PROGRAM) == DataParallel().place(problem).plan


def test_data_parallelism_adds_up_gradients_as_early_as_pytorch_does() -> None:
    """Longest path first puts off the gradients of weights, and their sums with them."""
    problem = Problem(load_graph("vgg:layers=11,image=32,batch=16"), load_cluster("p100x4"))
    plan = DataParallel().place(problem).plan
    early, late = (simulate(problem, each).step_seconds for each in (plan, replace(plan, order=LONGEST_PATH)))
    assert early < late


def test_a_problem_of_placements_gets_one_with_a_note() -> None:
    problem = Problem(random_graph(12, seed=1), toy_cluster(2), objective=objective_of("max-load"))
    result = GPipe().place(problem)
    assert result.plan.is_placement
    assert result.notes == (
        "gpipe: stages without micro-batches or replicas, since the objective 'max-load' is about samples that follow "
        "one another anyway.",
    )
    assert evaluate_objective(problem, result.plan)
    assert GPipe(micro_batches=1).place(problem).notes == ()
    assert not GPipe().place(replace(problem, objective=objective_of("latency"))).plan.is_placement


def test_the_loss_is_with_the_last_layer() -> None:
    weights = Pipeline(stages=4, forward=(1, 1, 1, 8)).graph()
    graph = replace(weights, weight_uses=weights.weight_uses[weights.weight_uses[:, 1] < 3])
    plan = GPipe(micro_batches=4).place(Problem(graph, servers(2))).plan
    assert [plan.devices[op] for op in range(4)] == [(0,), (0,), (1,), (1,)]


def test_there_are_no_more_stages_than_units() -> None:
    problem = Problem(toy_graph([1, 1], [(0, 1)]), toy_cluster(5))
    assert set(GPipe().place(problem).plan.schedule.stages) == {0, 1}


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_blocks_of_the_order_never_run_backwards(seed: int, groups: int) -> None:
    graph = training_graph() if seed % 2 else random_graph(30, seed=seed)
    drawn = np.random.default_rng(seed).integers(-1, groups, len(graph))  # ops that are tied, at random
    tied = replace(graph, group=drawn)
    position = pipeline_positions(Problem(tied, toy_cluster(2)), np.arange(tied.num_units))
    assert never_backwards(tied, tuple(position[tied.units].tolist()))
    assert np.array_equal(np.unique(position), np.arange(position.max() + 1))


@pytest.mark.parametrize("groups", [None, 20])
@pytest.mark.parametrize("model", ["transformer:layers=1", "nmt:layers=2,steps=3"])
def test_stages_of_captured_models_never_run_backwards(model: str, groups: int | None) -> None:
    graph = load_graph(model) if groups is None else tie_ops(load_graph(model), groups)
    plan = GPipe().place(Problem(graph, load_cluster("p100:devices=4"))).plan
    assert set(plan.schedule.stages) == {0, 1, 2, 3}
    assert never_backwards(graph, plan.schedule.stages)


def test_layers_of_a_recurrent_net_stay_together() -> None:
    graph = load_graph("nmt:layers=2,steps=3")
    stages = np.array(GPipe().place(Problem(graph, load_cluster("p100:devices=2"))).plan.schedule.stages)
    forward = graph.phase[graph.weight_uses[:, 0]] == Phase.FORWARD
    used = np.unique(np.stack([stages[graph.weight_uses[:, 0]], graph.weight_uses[:, 1]], 1)[forward], axis=0)
    assert (np.bincount(used[:, 1]) > 1).mean() < 1 / 3, "one layer is cut, and no other"


@pytest.mark.parametrize("spec", ["gpipe:micro_batches=8,order=early_backward_a", "data_parallel:devices=2"])
def test_knobs_are_part_of_the_name(spec: str) -> None:
    assert by_name.build("placers", spec).name == spec


def test_an_unknown_order_of_passes_is_refused_at_once() -> None:
    with pytest.raises(InputError, match="no_such_order"):
        GPipe(order="no_such_order")
