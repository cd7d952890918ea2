"""Placers that divide ops: their plans check and simulate, move what they should, and say what they estimate."""

import math
from dataclasses import replace

import numpy as np
import pytest

from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from evaluation.tables.plan_memory import DeviceMemory
from graphs.cluster import Cluster
from graphs.descriptions.descriptions import descriptions_of
from graphs.files.load import load_cluster, load_graph
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.contract.whole_plans import accelerators
from placers.splits.column_row import columns_and_rows
from placers.splits.cuts import MOST_OPERATIONS
from tests.envs.expansion.divided_graphs import ITEM, convolutions, mlp
from tests.envs.expansion.test_divided_bytes import moved_bytes, problem
from tests.envs.expansion.test_divided_models import TRANSFORMER, along_heads
from tests.oracle.toys import random_graph, toy_cluster

PLACERS = ("tofu", "optcnn", "tensor_parallel")
LAYERS, WIDTH, SEQUENCE, BATCH = 2, 16, 6, 8  # of TRANSFORMER
WIDE = "transformer:layers=1,width=64,heads=4,sequence=4,batch=4,vocabulary=12"  # more weights than activations


def placer(spec: str) -> Placer:
    built: Placer = by_name.build("placers", spec)
    return built


def captured(model: str, cluster: str | Cluster) -> Problem:
    on = load_cluster(cluster) if isinstance(cluster, str) else cluster
    return Problem(load_graph(model), on, optimizer="sgd")


def replicas(given: Problem) -> Plan:
    return Plan((accelerators(given.cluster),) * len(given.graph))


@pytest.mark.parametrize("cluster", ["p100x2", "p100x4"])
@pytest.mark.parametrize("spec", PLACERS)
def test_its_plan_for_a_transformer_divides_ops_and_is_simulated(spec: str, cluster: str) -> None:
    given = captured(TRANSFORMER, cluster)
    found = placer(spec).place(given, seed=3)
    found.plan.check(given)
    timeline = simulate(given, found.plan)
    devices = accelerators(given.cluster)
    assert {set(several) == set(devices) for several in found.plan.devices} == {True}
    assert math.prod(map(int, found.plan.mesh)) == len(devices)  # type: ignore[arg-type]  # of equal parts
    assert timeline.step_seconds > 0
    assert found.simulations == 0
    [note] = found.notes
    assert f"mesh of {' x '.join(map(str, found.plan.mesh))} devices" in note
    number, unit = note.partition("estimated to move " if spec == "tofu" else "estimated to take ")[2].split()[:2]
    estimate = float(number) * (2.0**20 if unit == "MiB" else 2.0**10 if unit == "KiB" else 1.0)
    real = moved_bytes(timeline) if spec == "tofu" else timeline.step_seconds
    assert estimate == pytest.approx(real, rel=0.05 if spec == "tofu" else 0.3)
    assert found == placer(spec).place(given, seed=3)


def test_a_plan_that_divides_nothing_says_so() -> None:
    """Links so slow that no part is worth sending; and links that take no time."""
    given = captured(TRANSFORMER, "p100x2")
    for bandwidth, is_said in ((1e3, True), (1e15, False)):
        cluster = replace(given.cluster, bandwidth=np.full((2, 2), bandwidth), latency=np.zeros((2, 2)))
        [note] = placer("optcnn").place(replace(given, cluster=cluster)).notes
        assert ("; no op is divided: each device computes all of them." in note) == is_said


@pytest.mark.parametrize("cluster", ["p100x2", "p100x4"])
def test_tofu_moves_less_than_replicas_where_weights_are_large(cluster: str) -> None:
    given = captured(WIDE, cluster)
    bytes_moved = moved_bytes(simulate(given, placer("tofu").place(given).plan))
    assert bytes_moved <= moved_bytes(simulate(given, replicas(given)))


def test_tofu_never_moves_more_than_replicas_that_store_a_part_of_each_weight() -> None:
    """These move half as much again as replicas do: no device of Tofu's has a whole weight."""
    given = captured(TRANSFORMER, "p100x2")
    plan = placer("tofu").place(given).plan
    assert moved_bytes(simulate(given, plan)) <= 1.5 * moved_bytes(simulate(given, replicas(given)))
    timeline = simulate(given, plan)
    others = timeline.given_bytes(grows=True) + timeline.given_bytes(grows=False)
    assert (timeline.held_bytes - others).sum() == pytest.approx(given.weight_memory.bytes.sum())  # each weight once


@pytest.mark.parametrize("devices", [2, 4])
def test_devices_of_tofus_plan_hold_their_part_of_what_one_would_and_buffers(devices: int) -> None:
    """Buffers are copies of what others made, sums on their way, and a partial sum, whole until it is added up."""
    given = problem(mlp([256, 512, 512, 256], 1024).graph, devices)
    alone = simulate(given, Plan(((0,),) * len(given.graph)))
    timeline = simulate(given, placer("tofu").place(given).plan)
    assert timeline.held_bytes.tolist() == [alone.held_bytes[0] / devices] * devices
    for held in DeviceMemory.of(timeline):
        buffers = held.received + held.sums + given.graph.output_bytes.max()
        assert held.peak <= alone.peak_bytes[0] / devices + buffers


def test_new_weights_that_further_ops_receive_are_divided_as_their_updates() -> None:
    """Steps of a recurrent network share weights: each receives what its device stores of them."""
    given = captured("rnnlm:layers=1,hidden=32,steps=3,batch=8,vocabulary=40", "p100x4")
    found = placer("tofu").place(given)
    timeline = simulate(given, found.plan)
    refreshed = [op for op, phase in enumerate(given.graph.phase.tolist()) if phase == Phase.REFRESH]
    assert {found.plan.split[op] for op in refreshed} == {()}
    assert timeline.expansion is not None
    updated = given.graph.phase[timeline.expansion.origin[timeline.transfers.output]] == Phase.UPDATE
    assert not updated.any()


def added_up_by_shards(shards: int, batch: float = BATCH) -> float:
    """Bytes that shards of TRANSFORMER send: Megatron-LM's sums, each as an all-reduce.

    Activations twice in a layer forward, after attention and after the feed-forward part, and twice backward; once
    what the embedding has found, and once the gradient of what the head reads. Of the loss, for each word three
    numbers of 4 bytes: the largest score and the sum of exponentials forward, and backward the sum of the gradients
    of scores' logarithms. Megatron-LM sends the score of the word that is asked for instead of the last one, forward.
    """
    words = batch * SEQUENCE
    return 2 * (shards - 1) * ((LAYERS * 4 + 2) * ITEM * words * WIDTH + 3 * 4 * words)


@pytest.mark.parametrize("tied", ["", ",tied=true"])
@pytest.mark.parametrize("devices", [2, 4])
def test_tensor_parallel_adds_up_what_megatron_does_and_sends_nothing_else(devices: int, tied: str) -> None:
    given = captured(TRANSFORMER + tied, f"p100x{devices}")
    plan = placer("tensor_parallel:others=whole").place(given).plan
    timeline = simulate(given, plan)
    assert moved_bytes(timeline) == added_up_by_shards(devices)
    whole = [name for name in given.graph.weight_names if "norm" in name or "bias" in name or name == "positions"]
    stored = dict(zip(given.graph.weight_names, given.weight_memory.bytes.tolist(), strict=True))
    bias_of_columns = [name for name in whole if "query_key_value" in name or "feed_forward.0" in name]
    in_parts = sum(stored.values()) - sum(stored[name] for name in whole if name not in bias_of_columns)
    others = timeline.given_bytes(grows=True) + timeline.given_bytes(grows=False)
    held = in_parts / devices + sum(stored.values()) - in_parts
    assert (timeline.held_bytes - others).tolist() == pytest.approx([held] * devices)
    by_hand = along_heads(given.graph)
    is_of_layer = np.array([name.startswith("layers.") for name in given.graph.names])
    in_layers = np.flatnonzero(is_of_layer & (given.graph.phase == Phase.FORWARD))
    assert [plan.split[op] for op in in_layers] == [by_hand[op] for op in in_layers]


def test_columns_and_rows_of_a_plain_network_take_turns() -> None:
    graph = mlp([8, 16, 8, 16, 8], 4).graph
    by = dict(zip(graph.names, columns_and_rows(graph, 2), strict=True))
    assert [by[f"mm{layer}"] for layer in range(4)] == ["o", "i", "o", "i"]


def test_where_no_products_follow_one_another_only_the_batch_is_divided() -> None:
    given = problem(convolutions(8, [8, 8, 16], 16).graph, 4)
    assert set(columns_and_rows(given.graph, 4)) == {""}
    found = placer("tensor_parallel").place(given)
    assert "only the batch is." in found.notes[0]
    assert moved_bytes(simulate(given, found.plan)) == 2 * 3 * given.graph.weights.sum()


def test_convolutions_of_single_points_are_no_matrix_products() -> None:
    assert set(columns_and_rows(load_graph("resnet"), 4)) == {""}


def test_servers_divide_the_batch_and_their_devices_the_products() -> None:
    given = captured(TRANSFORMER, load_cluster("v100_servers:servers=2,devices=4"))
    found = placer("tensor_parallel:others=whole").place(given)
    assert found.plan.mesh == (2, 4)
    assert "mesh of 2 x 4 devices, of which 4 divide the weights among them" in found.notes[0]
    described = descriptions_of(given.graph)
    for split, each, phase in zip(found.plan.split, described, given.graph.phase, strict=True):
        if phase == Phase.FORWARD:
            assert split[:1] in ((), ("" if each is None else each.batch,))
    assert simulate(given, found.plan).step_seconds > 0


def test_what_is_no_pair_of_products_is_done_whole_or_by_the_batch_whichever_is_estimated_to_take_less() -> None:
    given = captured("vgg", "p100x2")
    notes = {others: placer(f"tensor_parallel:others={others}").place(given).notes[0] for others in ("whole", "batch")}
    takes = {others: float(note.partition("estimated to take ")[2].split()[0]) for others, note in notes.items()}
    assert takes["batch"] < 0.7 * takes["whole"]
    found = placer("tensor_parallel").place(given)
    assert found.notes == (notes["batch"],)
    timeline = simulate(given, found.plan)
    assert timeline.step_seconds == pytest.approx(takes["batch"], rel=0.2)
    assert moved_bytes(timeline) < moved_bytes(simulate(given, replicas(given)))


def test_optcnn_says_which_search_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem(convolutions(8, [8, 8, 16], 16).graph, 4)
    assert MOST_OPERATIONS > 0
    [exact] = placer("optcnn").place(given).notes
    assert "by eliminations of nodes and edges" in exact
    [other] = placer("optcnn").place(captured(TRANSFORMER, "p100x2")).notes
    assert "by bucket elimination, since those of OptCNN leave too many nodes" in other
    monkeypatch.setattr("placers.optcnn.MOST_OPERATIONS", 0.0)
    [least] = placer("optcnn").place(given).notes
    assert "axis by axis" in least
    costs = [float(note.partition("estimated to take ")[2].split()[0]) for note in (exact, least)]
    assert costs[0] <= costs[1]


@pytest.mark.parametrize("spec", PLACERS)
def test_what_cannot_be_divided_goes_to_one_device_and_a_note_says_why(spec: str) -> None:
    net = mlp([8, 16, 8], 4).graph
    bound = replace(net, devices=(("gpu:0",),) * len(net))
    for given, reason in (
        (Problem(random_graph(9, seed=1), toy_cluster(2)), "does not say what its ops compute"),
        (problem(net, 1), "there is no other to divide ops with"),
        (Problem(bound, toy_cluster(2)), "may only run on gpu:0"),
    ):
        found = placer(spec).place(given)
        assert found.plan.is_placement
        assert len(set(found.plan.devices)) == 1
        assert found.notes[-1].startswith(f"{spec}: all on one device, since ")
        assert reason in found.notes[-1]


@pytest.mark.parametrize("spec", PLACERS)
def test_more_devices_than_there_are_are_refused(spec: str) -> None:
    given = captured(TRANSFORMER, "p100x2")
    with pytest.raises(InputError, match=f"{spec}: devices is 3; expected 0 for all, or up to the 2 of cluster"):
        placer(f"{spec}:devices=3").place(given)
    assert placer(f"{spec}:devices=1").place(given).plan.is_placement
