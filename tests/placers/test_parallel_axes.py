"""The further axes of `parallel`: sequence and context parallelism by their closed forms, and what they refuse."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.costs.costs import costs_of
from envs.orders import priorities_of
from envs.plans.schedule import Zero
from envs.simulation.simulator import LaidOut, simulate
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.files.load import load_graph
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from placers.parallel import Parallel
from placers.pipelines.budget import spending
from placers.pipelines.contest import Contest
from placers.pipelines.offered_degrees import FULLY_SHARDED, offered_degrees
from placers.pipelines.rivals import of_degrees
from placers.splits.experts import along_experts
from placers.splits.sequences import along_sequence
from tests.drawn import examples
from tests.envs.expansion.divided_graphs import ITEM
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.envs.expansion.test_divided_bytes import moved_bytes
from tests.envs.expansion.test_divided_models import TRANSFORMER
from tests.oracle.oracle import simulate as oracle
from tests.oracle.strategies import check_times
from tests.oracle.toys import toy_cluster
from tests.placers import mixtures
from tests.placers.splits.test_split_placers import BATCH, LAYERS, SEQUENCE, WIDTH, captured
from tests.placers.test_parallel import LONG

LONG_ACTIVATION = ITEM * BATCH * 48 * WIDTH


def bytes_of(graph: OpGraph, *words: str) -> float:
    """Bytes of the weights whose names have one of some words in them."""
    named = [any(word in name for word in words) for name in graph.weight_names]
    return float(graph.weights[named].sum())


# ---- sequence parallelism --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [2, 3])
def test_sequence_parallelism_moves_what_tensor_parallelism_does_and_gradients_of_norms(devices: int) -> None:
    """A reduce-scatter and an all-gather in place of each all-reduce (Korthikanti et al. 2022, section 4.2.2).

    Norms, which each shard has in whole, are used by each for its positions: their gradients are added up. Those of the
    table of positions need no sum, since each has those of its own.
    """
    problem = captured(TRANSFORMER.replace("heads=4", "heads=12").replace("width=16", "width=24"), f"p100x{devices}")
    plain = simulate(problem, Parallel(tp=devices).place(problem).plan)
    timeline = simulate(problem, Parallel(tp=devices, sequence=True).place(problem).plan)
    norms = 2 * (devices - 1) * bytes_of(problem.graph, "norm")
    assert moved_bytes(timeline) == moved_bytes(plain) + norms + (devices - 1) * bytes_of(problem.graph, "positions")


@pytest.mark.parametrize("devices", [2, 4])
def test_sequence_parallelism_holds_its_part_of_what_tensor_parallelism_has_in_whole(devices: int) -> None:
    """Of two norms in a layer the inputs, which wait for the backward pass; what they make, columns need in whole."""
    problem = captured(LONG, f"p100x{devices}")
    plain = simulate(problem, Parallel(tp=devices).place(problem).plan)
    timeline = simulate(problem, Parallel(tp=devices, sequence=True).place(problem).plan)
    inputs = LAYERS * 2 * LONG_ACTIVATION * (1 - 1 / devices)
    assert timeline.static_bytes.tolist() == plain.static_bytes.tolist()
    assert (plain.peak_bytes - timeline.peak_bytes).tolist() == pytest.approx([inputs] * devices, rel=0.35)


# ---- context parallelism ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize(
    ("knobs", "width_of_keys"), [("", WIDTH), (",attention=sdpa,kv_heads=2", WIDTH / 2), (",attention=sdpa", WIDTH)]
)
def test_context_parallelism_gathers_keys_and_values_alone(devices: int, knobs: str, width_of_keys: float) -> None:
    """Forward keys and values of each layer, and a reduce-scatter of their gradients (Llama Team 2024, section 3.3.2).

    With heads that share keys and values, these are as much smaller. Gradients of weights are added up as replicas do;
    of the table of positions each device has those of its own.
    """
    problem = captured(TRANSFORMER + knobs, f"p100x{devices}")
    found = Parallel(cp=devices).place(problem)
    gathered = 2 * ITEM * BATCH * SEQUENCE * width_of_keys
    weights, positions = float(problem.graph.weights.sum()), bytes_of(problem.graph, "positions")
    sums = 2 * (devices - 1) * (weights - positions) + (devices - 1) * positions
    timeline = simulate(problem, found.plan)
    assert moved_bytes(timeline) == pytest.approx(2 * LAYERS * (devices - 1) * gathered + sums, rel=1e-12)
    assert found.notes[0].startswith("parallel: 100% of the FLOPs are divided along the sequence among")


@pytest.mark.parametrize("devices", [2, 4])
def test_context_parallelism_holds_its_part_of_activations_and_all_keys_and_values(devices: int) -> None:
    """Replicas, which divide samples in place of positions, hold the same but for what is gathered."""
    problem = captured(LONG, f"p100x{devices}")
    replicas, timeline = (
        simulate(problem, placer.place(problem).plan) for placer in (Parallel(dp=devices), Parallel(cp=devices))
    )
    others = timeline.given_bytes(grows=True) + timeline.given_bytes(grows=False)
    assert (timeline.held_bytes - others).tolist() == pytest.approx([problem.weight_memory.bytes.sum()] * devices)
    more = timeline.peak_bytes - replicas.peak_bytes
    gathered = LAYERS * 2 * LONG_ACTIVATION * (1 - 1 / devices)
    assert 0.3 * gathered < more.min() <= more.max() <= gathered


# ---- expert parallelism ----------------------------------------------------------------------------------------------


def mixture(samples: int = 8) -> OpGraph:
    """A step of a mixture of experts between two layers."""
    inputs = (
        torch.empty(samples, mixtures.SEQUENCE, mixtures.WIDTH),
        torch.empty(samples, mixtures.SEQUENCE, mixtures.WIDTH),
    )
    return training_step(capture(mixtures.Model(), inputs, name="mixture"))


@pytest.mark.parametrize(("degrees", "devices", "of_experts"), [("ep=2", 2, 2), ("ep=4", 4, 4), ("ep=2", 4, 2)])
def test_expert_parallelism_takes_four_all_to_alls_and_holds_its_part_of_experts(
    degrees: str, devices: int, of_experts: int
) -> None:
    """Two forward and two backward (Lepikhin et al. 2021, section 3.2), of what is dispatched, (n - 1) / n each.

    Gradients of experts are added up over the devices with the same ones alone, all others over all replicas.
    """
    graph = mixture()
    problem = Problem(graph, toy_cluster(devices), optimizer="sgd")
    timeline = simulate(problem, by_name.build("placers", f"parallel:{degrees}").place(problem).plan)
    dispatched = ITEM * 8 * mixtures.EXPERTS * mixtures.ROOM * mixtures.WIDTH
    experts = bytes_of(graph, "mixture.up", "mixture.down", "mixture.bias")
    others = float(graph.weights.sum()) - experts
    sums = 2 * (devices - 1) * others + 2 * (devices // of_experts - 1) * experts
    assert moved_bytes(timeline) == 4 * dispatched * (of_experts - 1) / of_experts + sums
    given = timeline.given_bytes(grows=True) + timeline.given_bytes(grows=False)
    assert (timeline.held_bytes - given).tolist() == pytest.approx([others + experts / of_experts] * devices)


def test_replicas_of_a_mixture_are_pipelined_and_sharded_too() -> None:
    problem = Problem(mixture(), toy_cluster(8), optimizer="sgd")
    placer = by_name.build("placers", "parallel:dp=2,ep=2,tp=2,pp=2,micro_batches=2,stages=mixture")
    by = dict(zip(problem.graph.names, placer.place(problem).plan.split, strict=True))
    assert by["mixture/bmm_1"] == ("b", "m")
    assert by["mixture/bmm_1.update"] == ("b", "m")
    assert by["mixture/bmm"] == ("b", "")  # samples
    assert len(set(along_experts(problem.graph, 4)) - {""}) > 0 == len(set(along_experts(problem.graph, 5)) - {""})


# ---- together --------------------------------------------------------------------------------------------------------


def test_a_group_of_shards_is_in_a_part_of_the_sequence_that_is_in_a_replica() -> None:
    problem = captured(TRANSFORMER, "dgx_a100:servers=2")
    found = Parallel(dp=2, cp=2, tp=2, pp=2, sequence=True, micro_batches=2, recompute=True).place(problem)
    by = dict(zip(problem.graph.names, found.plan.split, strict=True))
    assert found.plan.mesh == (2, 2, 2)
    assert by["layers.0.attention_norm/native_layer_norm"] == ("d0", "d1", "d1")
    assert by["layers.0.feed_forward.0/addmm_2"] == ("n.0", "n.1", "m")
    assert by["layers.0.feed_forward.0/addmm_2.update"] == ("", "", "m")
    assert by["layers.0.attention/bmm"] == ("b.0", "n", "b.1")  # queries, but not keys
    assert by["loss"] == ("", "", "")
    assert simulate(problem, found.plan).step_seconds > 0


def test_the_positions_of_a_transformer_are_found_without_their_name_in_any_of_its_forms() -> None:
    """All products are divided along the sequence but those of one row, such as a class."""
    for spec in (
        "llama:layers=1,width=16,heads=4,inner=32,sequence=6,batch=4,vocabulary=12",
        f"{TRANSFORMER},attention=eager,dropout=0.1,separate=true",
        "bert:layers=1,width=16,heads=4,sequence=6,batch=4",
    ):
        graph = load_graph(spec)
        whole = {
            graph.names[op].partition("/")[0]
            for op, name in enumerate(along_sequence(graph, 2))
            if not name and graph.phase[op] == Phase.FORWARD and graph.flops[op] > graph.flops.sum() / 1000
        }
        assert whole <= {"classifier", "pooler"}, spec


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ("sequence=true", "sequence=true divides what shards of tp do besides, and tp is 1; say tp"),
        ("cp=0", "cp is 0; expected at least 1"),
        ("ep=2,cp=2", "ep=2 cannot be combined with cp=2, since tokens of a whole sequence choose"),
        ("ep=2,dp=3", "ep=2 experts' devices are of the dp=3 replicas; choose a divisor"),
        ("cp=2,zero=2", "zero=2 cannot be combined with cp=2; take zero=3, or leave one out"),
        ("ep=2,dp=2,shares=3:1", "shares=3:1 cannot be combined with ep=2; leave one out"),
    ],
)
def test_what_no_model_can_have_is_refused_before_one_is_captured(knobs: str, sentence: str) -> None:
    with pytest.raises(InputError, match=f"parallel: {sentence}"):
        by_name.build("placers", f"parallel:{knobs}")


def test_what_a_model_cannot_have_is_refused() -> None:
    convolutions, chain = (
        Problem(load_graph("resnet:layers=26,image=32,batch=4"), servers(2)),
        Pipeline(3).problem(servers(4)),
    )
    for problem, knobs, sentence in (
        (convolutions, "cp=2", "no product of 'resnet.*' can be divided along a sequence into 2 parts"),
        (convolutions, "ep=2", "'resnet.*' has no 2 experts or more whose weights are one tensor"),
        (chain, "cp=2", "ops cannot be divided with cp=2, since graph '.*' does not say what its ops compute"),
        (chain, "cp=3", "tp=1, cp=3 and pp=1 take 3 devices for each replica, cluster 'servers4' has 4"),
        (captured(TRANSFORMER, "p100x4"), "ep=3,dp=0", "ep=3 does not divide the 4 replicas"),
    ):
        with pytest.raises(InputError, match=sentence):
            by_name.build("placers", f"parallel:{knobs}").place(problem)


@pytest.mark.parametrize("knobs", ["tp=2,dp=2", "cp=2,dp=2", "tp=2,cp=2,sequence=true"])
def test_replicas_and_parts_of_the_sequence_store_their_part_of_weights(knobs: str) -> None:
    """As fully sharded data parallelism has it, of all that has enough values: an n-th of weights and all states.

    In place of an all-reduce, gradients are added up by a reduce-scatter, and weights gathered in both passes.
    """
    problem = captured(LONG, "p100x4")
    whole, sharded = (
        simulate(problem, by_name.build("placers", f"parallel:{knobs}{zero}").place(problem).plan)
        for zero in ("", ",zero=3")
    )
    given = whole.given_bytes(grows=True) + whole.given_bytes(grows=False)
    parts = 4 if "tp" not in knobs else 2
    stored = (whole.held_bytes - given).max() / parts
    assert (sharded.held_bytes - given).tolist() == pytest.approx([stored] * 4, rel=0.06)
    read_again = moved_bytes(sharded) - moved_bytes(whole)
    assert (
        0 < read_again <= (parts - 1) * problem.graph.weights.sum()
    )  # of rows of tables less, and each device its own


# ---- any of them -----------------------------------------------------------------------------------------------------

SMALL = "transformer:layers=2,width=8,heads=4,sequence=4,batch=4,vocabulary=8"


@st.composite
def degrees(draw: st.DrawFn) -> Parallel:
    """At most 8 devices, that divide samples, positions and heads of SMALL."""
    tp, cp, pp = (draw(st.sampled_from((1, 2))) for _ in range(3))
    micro_batches, recompute = draw(st.sampled_from((1, 2))), draw(st.booleans())
    dp = draw(st.sampled_from((1, 2))) if tp * cp * pp < 8 else 1
    zeros: tuple[Zero, ...] = (0, 3) if tp * cp > 1 else (0,)
    sequence, zero = tp > 1 and draw(st.booleans()), draw(st.sampled_from(zeros))
    return Parallel(dp, tp, sequence, cp, pp=pp, micro_batches=micro_batches, recompute=recompute, zero=zero)


def check_against_oracle(problem: Problem, placer: Parallel) -> None:
    """Times and memory of the placer's plan."""
    laid = LaidOut.of(problem, placer.place(problem).plan)
    devices = laid.placement[laid.problem.graph.units].tolist()
    seconds = costs_of(laid.problem).op_seconds.tolist()
    expected = oracle(laid.problem, seconds, devices, priorities_of(laid.problem, laid.order))
    timeline = laid.simulator().timeline(laid.placement)
    check_times(timeline, expected)
    assert timeline.peak_bytes.tolist() == expected.peak_bytes


@settings(max_examples=examples(100, 4))
@given(degrees())
def test_a_plan_by_its_degrees_takes_what_the_oracle_says(placer: Parallel) -> None:
    check_against_oracle(Problem(load_graph(SMALL), toy_cluster(8), optimizer="sgd"), placer)


@pytest.mark.parametrize("placer", [Parallel(dp=4, ep=2), Parallel(dp=2, ep=2, tp=2, micro_batches=2)])
def test_a_plan_whose_experts_are_divided_takes_what_the_oracle_says(placer: Parallel) -> None:
    check_against_oracle(Problem(mixture(), toy_cluster(4), optimizer="sgd"), placer)


# ---- offered ---------------------------------------------------------------------------------------------------------


def test_degrees_are_offered_where_they_can_be() -> None:
    """A sequence is divided where samples are too few; of 4 experts 8 devices cannot have one each."""
    kinds = {
        "two heads": (captured(TRANSFORMER.replace("heads=4", "heads=2"), "p100x4"), "parallel:tp=2,sequence=true"),
        "few samples": (captured(TRANSFORMER.replace("batch=8", "batch=2"), "p100x4"), "parallel:cp=2"),
        "experts": (Problem(mixture(), toy_cluster(8)), "parallel:ep=4"),
    }
    for problem, spec in kinds.values():
        offered = offered_degrees(problem)
        assert spec in offered.values()
        assert FULLY_SHARDED not in offered  # on one server
        for each in offered.values():
            assert simulate(problem, by_name.build("placers", each).place(problem).plan).step_seconds > 0
    assert offered_degrees(Problem(load_graph("resnet:layers=26,image=32,batch=4"), servers(4))) == {}
    assert offered_degrees(Pipeline(3).problem(servers(4))) == {}


def test_tensor_parallelism_has_shares_by_speed_on_unequal_servers() -> None:
    """Four times as fast, a server has four fifths: faster than equal shares, and compared by the planner."""
    given = captured(LONG.replace(f"batch={BATCH}", "batch=20"), "v100_servers:servers=2,devices=2")
    problem = replace(given, op_seconds=costs_of(given).op_seconds * (1.0, 1.0, 4.0, 4.0))
    specs = [*(f"parallel:tp=2{knob},shares=4:1" for knob in ("", ",sequence=true")), "fsdp:tp=2"]
    assert [*offered_degrees(problem).values()] == [rival.spec for rival in of_degrees(problem)] == specs
    unequal, equal = (
        simulate(problem, by_name.build("placers", spec).place(problem).plan).step_seconds
        for spec in (specs[0], "parallel:tp=2")
    )
    assert unequal < equal


def test_the_planner_compares_experts_that_are_divided_by_their_specs() -> None:
    problem = Problem(mixture(), toy_cluster(4))
    with spending(4, "planning") as spent:
        contest = Contest(problem, spent)
        for rival in of_degrees(problem):
            rival.compared(contest, 0, 0, 1)
    assert "parallel:ep=4" in contest.entries
