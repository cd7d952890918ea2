"""Steps that DTensor divides over processes as plans say are those of the model itself."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import distributed
from torch._subclasses.fake_tensor import FakeTensorMode

from envs.plans.plan import Plan
from envs.running.captured_program import CapturedProgram
from envs.running.dry_step import _alone
from envs.running.partitioned.parts_of_dtensors import OnParts
from envs.running.processes import Workers
from envs.running.training_job import Training
from envs.running.ways import check_model
from envs.simulation.simulator import simulate
from evaluation.commands.problems import problem_of
from graphs.files.load import load_cluster
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.data_parallel import build as data_parallel
from placers.parallel import Parallel
from placers.tensor_parallel import TensorParallel
from placers.tofu import build as tofu
from tests.envs.placed_models.models import BATCH, LENGTH, WIDTH
from tests.envs.running.partitioned_jobs import Arrays, Partitioned, Trained, example_of, losses, unplaced


@pytest.fixture(scope="module")
def workers(processes: Callable[[int], Workers]) -> Workers:
    return processes(4)


def planned(name: str, cluster: str, placer: Placer) -> tuple[Problem, Plan]:
    problem = Problem(CapturedProgram.of(example_of(name)).step, load_cluster(cluster))
    return problem, placer.place(problem).plan


def run(workers: Workers, name: str, cluster: str, plan: Plan) -> list[Trained]:
    found = workers.run(Partitioned(name, cluster, plan), limit=60.0)
    return [each for each in found if not isinstance(each, str)]


def assert_close(ours: Arrays, theirs: Arrays) -> None:
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_allclose(ours[name], array, rtol=1e-4, atol=2e-6 * max(1.0, float(np.abs(array).max())))


CASES = [
    ("mlp", "v100x2", TensorParallel()),  # columns, then rows
    ("mlp", "v100x4", tofu()),  # two axes
    ("checkpointed", "v100x2", TensorParallel()),
    ("cached", "v100x2", Parallel(tp=2)),  # heads, and a cache that begins empty
    ("gpt", "v100x2", TensorParallel()),  # heads, and a tied weight
    ("gpt", "v100x4", Parallel(tp=2)),  # within two replicas
    ("gpt", "v100x2", Parallel(cp=2)),
    ("gpt", "v100x2", Parallel(tp=2, sequence=True)),
    ("gpt", "v100x4", Parallel(cp=2, tp=2, sequence=True)),
    ("gpt", "v100x4", Parallel(dp=2, tp=2, zero=3)),  # fully sharded replicas of shards
    ("mixture", "v100x2", Parallel(ep=2)),  # experts on other devices, and all else by samples
    ("conv", "v100x2", tofu()),  # batch normalisation by channels
    ("conv", "v100x4", data_parallel()),
    pytest.param("experts", "v100x2", tofu(), marks=pytest.mark.slow),
    pytest.param("bert", "v100x2", TensorParallel(others="batch"), marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "cluster", "placer"), CASES, ids=lambda each: getattr(each, "name", each))
def test_three_steps_of_adam_are_those_of_the_model_itself(
    name: str, cluster: str, placer: Placer, workers: Workers
) -> None:
    _, plan = planned(name, cluster, placer)
    found, alone = run(workers, name, cluster, plan), unplaced(name)
    np.testing.assert_allclose(np.sum([each.losses for each in found], axis=0), alone.losses, rtol=1e-5, atol=1e-4)
    assert_close(found[0].weights, alone.weights)
    assert_close(found[0].gradients, alone.gradients)
    assert_close(found[0].buffers, {key: each for key, each in alone.buffers.items() if key in found[0].buffers})
    assert bool(found[0].buffers) == (name == "conv")
    assert not any(each.weights for each in found[1:])
    for device, each in enumerate(found):
        assert each.record is not None
        times = [(span.start, span.finish) for span in each.record.spans]
        assert [span.op for span in each.record.spans] == (
            [3 * device + k for k in range(3)] if each.collectives else []
        )
        assert times == sorted(times)
    assert any(len(set(devices)) > 1 for devices in plan.devices)


@pytest.mark.parametrize(("name", "placer"), [("mlp", TensorParallel()), ("gpt", Parallel(cp=2))])
def test_what_megatrons_perceptron_or_a_context_holds_and_sends_is_what_the_plan_says(
    name: str, placer: Placer, workers: Workers
) -> None:
    problem, plan = planned(name, "v100x2", placer)
    found, timeline = run(workers, name, "v100x2", plan), simulate(problem, plan)
    loss = 4  # bytes of an all-reduce of the parts of the last layer's loss, which a plan does not add up
    received, moved = np.full(2, float(loss)), timeline.transfers
    np.add.at(received, moved.destination, timeline.problem.graph.moved_bytes[moved.output])
    for device in (0, 1):
        assert sum(each.size for each in found[device].collectives) == received[device] > 0
        inputs = timeline.given_bytes(grows=True)[device] + timeline.given_bytes(grows=False)[device]
        state = problem.bytes_per_weight_byte - 1  # but for the gradient
        assert found[device].held * state == timeline.held_bytes[device] - inputs


def test_rows_of_a_sequence_are_added_up_by_reduce_scatters_and_gathered_for_columns(workers: Workers) -> None:
    """Where shards do all else in whole it is by all-reduces: of the embedding, and twice in each of three blocks."""
    of_word = 4 * BATCH * LENGTH * WIDTH / 2  # bytes of an activation that a device of two receives
    counts = []
    for placer in (Parallel(tp=2), Parallel(tp=2, sequence=True)):
        _, plan = planned("gpt", "v100x2", placer)
        sent = Counter((each.name, each.size) for each in run(workers, "gpt", "v100x2", plan)[0].collectives)
        counts.append([sent["all_reduce", 2 * of_word], sent["reduce_scatter_tensor", of_word]])
    assert counts == [[2 * 7, 0], [0, 2 * 7]]


def test_what_dtensor_cannot_say_is_refused_in_every_process(workers: Workers) -> None:
    _, plan = planned("gpt", "v100x4", tofu())
    found = workers.run(Partitioned("gpt", "v100x4", plan), limit=60.0)
    assert all("other parts of weight 'words.weight'" in str(each) for each in found)


def test_a_view_that_memory_does_not_allow_is_a_copy_which_cannot_be_changed_in_place() -> None:
    x = torch.arange(6.0).reshape(2, 3).T
    with OnParts():
        flat = torch.ops.aten.view.default(x, [6])
        assert flat.tolist() == [0, 3, 1, 4, 2, 5]
        assert (flat + 1).tolist() == [1, 4, 2, 5, 3, 6]
        with pytest.raises(RuntimeError, match="changes a tensor in place"):
            flat[1:].add_(1)
        torch.ops.aten.view.default(x.contiguous(), [6]).add_(1)
        with pytest.raises(RuntimeError, match="shape"):
            torch.ops.aten.view.default(x, [5])


def test_such_a_view_of_a_tensor_without_data_is_a_copy_too() -> None:
    """As in the dry step, before processes are started."""
    with FakeTensorMode(), OnParts():
        assert torch.ops.aten.view.default(torch.empty(3, 2).T, [6]).shape == (6,)


@pytest.mark.parametrize("placer", [Parallel(cp=2, tp=2, sequence=True), Parallel(dp=2, cp=2, zero=3)])
def test_a_dry_step_ends_where_dtensor_asks_for_data_and_refuses_nothing(placer: Placer) -> None:
    training = Training("transformer:layers=1,width=24,heads=4,sequence=4,batch=4,vocabulary=40", steps=1)
    problem = problem_of(training.model, "v100x4", groups=None)
    plan = placer.place(problem).plan
    assert plan.mesh == (2, 2)
    check_model(training, problem, plan)


def test_what_a_device_receives_in_collectives_by_hand() -> None:
    """On four devices, of 32 bytes on each; a quarter of what is to be there need not be sent."""
    part, functional = torch.zeros(8), torch.ops._c10d_functional
    with _alone(4), OnParts() as parts:
        assert distributed.group.WORLD is not None
        group = distributed.group.WORLD.group_name
        for sent in (
            functional.all_reduce(part, "sum", group),
            functional.all_gather_into_tensor(part, 4, group),
            functional.reduce_scatter_tensor(part, "sum", 4, group),
            functional.all_to_all_single(part, [2] * 4, [2] * 4, group),
        ):
            functional.wait_tensor(sent)
    assert [(each.name, each.devices, each.size) for each in parts.collectives] == [
        ("all_reduce", 4, 2 * 32 * 3 / 4),
        ("all_gather_into_tensor", 4, 128 * 3 / 4),
        ("reduce_scatter_tensor", 4, 32 * 3 / 4),
        ("all_to_all_single", 4, 32 * 3 / 4),
    ]


def test_gradients_of_mean_losses_are_those_of_whole_tensors(workers: Workers) -> None:
    for of_process in workers.run(losses, limit=60.0):
        for ours, theirs in of_process.values():
            assert_close(ours, theirs)
