"""The planner is behind nobody, keeps to its budget, and can be stopped."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.objectives import evaluate_objective
from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.plans.schedule import pass_order_of
from envs.simulation.simulator import simulate
from graphs.files.load import load_cluster, load_graph
from graphs.foundation.errors import InputError
from graphs.op_graph.batch_law import BatchLaw
from graphs.problem import Problem, objective_of
from placers.annealing import Annealing
from placers.optcnn import OptCNN
from placers.pipelines import size
from placers.pipelines.budget import spending
from placers.pipelines.contest import Contest
from placers.pipelines.cuts import ALL, NEEDED
from placers.pipelines.pipeline_evaluator import OpEvaluator
from placers.pipelines.pipeline_formula import PipelineFormula, in_flight
from placers.pipelines.planning import PipelinePlanning
from placers.pipelines.proposals import LATER, Proposal, Proposer
from placers.planner import Planner
from placers.split_search import SplitSearch
from placers.tofu import Tofu
from tests.contracts.test_placers import training_graph, unequal_cluster
from tests.drawn import examples
from tests.envs.expansion.pipelines import Pipeline, servers, v_shaped
from tests.oracle.toys import random_graph, toy_cluster
from tests.papers.test_dapple import chain_of, row
from tests.placers.pipelines.test_cuts import unequal

QUICK = Planner(policy="")  # without the learned policy


def chain(seed: int, layers: int, speeds: list[float], *, memory: float = np.inf, samples: int = 0) -> Problem:
    """A chain of layers on devices of these speeds in a row."""
    rng = np.random.default_rng(seed)
    seconds, sizes, weights = (rng.uniform(low, high, layers).tolist() for low, high in ((1, 9), (0, 4), (0, 9)))
    graph = replace(chain_of(seconds, sizes, weights).graph(), batch_law=BatchLaw(samples=samples))
    cluster = unequal(speeds, [memory] * len(speeds))
    return Problem(graph, cluster, "sgd", graph.measured_seconds[:, None] / np.array(speeds))


def worth(problem: Problem, planner: Planner) -> Iterator[tuple[str, float]]:
    """What the plans of all rivals take that fit."""
    for each in planner.rivals():
        for rival in each.alike(planner.micro_batches):
            try:
                plan = rival.place(problem, budget=99).plan
                timeline = simulate(problem, plan)
            except InputError:
                continue
            if timeline.fits:
                value = evaluate_objective(problem, plan)
                yield rival.name, timeline.step_seconds if value is None else value
            break


@settings(max_examples=examples(6, 3))
@given(
    seed=st.integers(0, 999), layers=st.integers(1, 8),
    speeds=st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=1, max_size=4),
    memory=st.sampled_from([np.inf, 150.0, 60.0]), samples=st.sampled_from([0, 12, 16, 17]),
    objective=st.sampled_from(["step-time", "throughput", "latency"]),
)  # fmt: skip
def test_it_is_never_behind_a_rival(
    seed: int, layers: int, speeds: list[float], memory: float, samples: int, objective: str
) -> None:
    problem = chain(seed, layers, speeds, memory=memory, samples=samples)
    problem = replace(
        problem, objective=objective_of("step-time" if objective == "throughput" and not samples else objective)
    )
    result = QUICK.place(problem, budget=40)
    timeline, rivals = simulate(problem, result.plan), dict(worth(problem, QUICK))
    assert timeline.fits or not rivals
    value = evaluate_objective(problem, result.plan)
    for rival, other in rivals.items():
        assert (timeline.step_seconds if value is None else value) <= other * (1 + 1e-9), rival


def test_as_many_micro_batches_as_memory_asks_for() -> None:
    """Of 1,024 samples 8 at a time fit, with what is computed again 16 do; rivals then have as many micro-batches."""
    samples, layers = 1024, 8
    graph = chain_of([1.0] * layers, [float(samples)] * layers, [1e-3] * layers).graph()
    cluster = unequal([1.0, 1.0], [64.0, 64.0])
    problem = Problem(replace(graph, batch_law=BatchLaw(samples=samples)), cluster, "sgd")
    result = QUICK.place(problem, budget=60)
    count = result.plan.schedule.micro_batches
    assert simulate(problem, result.plan).fits
    assert count > 64
    assert any(f"micro_batches={count},order=early_backward_a" in who for who in result.compared)
    assert all(simulate(problem, plan).fits for who, plan in result.compared.items() if who.startswith("dapple"))


def test_a_pipeline_takes_as_little_memory_as_there_is() -> None:
    """V-Half of the paper where 1F1B has no room, with a micro-batch more in flight where there is room for it."""
    chained = Pipeline(8, 8, weight_gradient=1.0, activation=1.0, weights=1000.0)
    plenty = chained.problem(servers(4, bandwidth=1e9))
    in_order = {
        order: simulate(plenty, chained.plan(order, ranks=v_shaped(4)))
        for order in ("zb_v", "v_half", "v_min")
    }  # fmt: skip
    planner = replace(QUICK, micro_batches=8)
    for order, seconds in (("v_half", 53.0), ("v_min", 59.0)):
        assert in_order[order].step_seconds == pytest.approx(seconds, abs=1e-5)
        room = float(in_order[order].peak_bytes.max())
        assert room < in_order["zb_v"].peak_bytes.max()
        problem = chained.problem(servers(4, bandwidth=1e9, memory=room))
        timeline = simulate(problem, planner.place(problem, budget=150).plan)
        assert timeline.fits
        assert timeline.step_seconds <= in_order[order].step_seconds * (1 + 1e-9)


@pytest.mark.parametrize(("order", "held"), [("v_half", 5), ("v_min", 4), ("v_half:in_flight=2", 2)])
def test_the_formula_knows_what_the_devices_of_a_v_hold(order: str, held: int) -> None:
    """Of eight devices, in activations of a stage: what the order says, and at least one of each stage."""
    sets = tuple((min(stage, 15 - stage),) for stage in range(16))
    flying = in_flight(pass_order_of(order), sets, 32, "split")
    assert (np.diff(flying) <= 0).all()
    assert (flying >= 1).all()
    of_devices = flying + flying[::-1]
    assert (of_devices >= 2 * held).all()
    assert (of_devices <= 2 * held + 1).all()


def test_more_micro_batches_in_flight_hide_transfers() -> None:
    """ZB-H2's (P - 1)(F + c) + M (F + I + W) on devices of one stage each."""
    chained = Pipeline(4, 8, weight_gradient=1.0, activation=0.3, gradient=0.3, weights=1000.0)
    problem = chained.problem(servers(4, bandwidth=1.0))
    found = simulate(problem, replace(QUICK, micro_batches=8).place(problem, budget=60).plan)
    assert found.step_seconds == pytest.approx(3 * 1.3 + 8 * 3.0)


def test_some_layers_of_a_stage_are_computed_again_where_memory_lacks_room_for_them() -> None:
    """The first of two equal stages keeps twice what the second does; two outputs less of eight suffice."""
    layers, samples = 8, 8
    graph = chain_of([1.0] * layers, [float(samples)] * layers, [1e-3] * layers).graph()
    cluster = unequal([1.0, 1.0], [7.5, 7.5])
    problem = Problem(replace(graph, batch_law=BatchLaw(samples=samples)), cluster, "sgd")
    proposer = Proposer(PipelineFormula(LayerGrain(problem, Layers.of(problem, layers)), (0, 1)), samples)
    kept, again, needed = (proposer.cut(((0,), (1,)), samples, again=which) for which in (0, ALL, NEEDED))
    assert needed.seconds < min(kept.seconds, again.seconds)
    assert 0 < sum(stage.again for stage in needed.pipeline.stages) < layers
    plan = needed.pipeline.plan(problem, proposer.grain.layers)
    assert simulate(problem, plan).fits
    result = replace(QUICK, micro_batches=samples).place(problem, budget=80)
    assert simulate(problem, result.plan).step_seconds <= simulate(problem, plan).step_seconds


def test_a_cpu_beside_gpus_is_left_to_the_plans_of_others() -> None:
    """Stages on it are in plans that the search begins from."""
    problem = chain(5, 8, [3.0, 1.0, 1.0], samples=8)
    devices = tuple(
        replace(device, kind="cpu" if device.name == "gpu:2" else "gpu") for device in problem.cluster.devices
    )
    problem = replace(problem, cluster=replace(problem.cluster, devices=devices))
    least = simulate(problem, QUICK.place(problem, budget=120).plan).step_seconds
    rivals = dict(worth(problem, QUICK))
    assert least <= min(rivals.values()) * (1 + 1e-9)


@pytest.mark.parametrize(
    "problem", [Problem(training_graph(), unequal_cluster()), Problem(random_graph(20, 3), toy_cluster(3))]
)
def test_graphs_of_ops_are_planned_too(problem: Problem) -> None:
    result = QUICK.place(problem, budget=60)
    least = simulate(problem, result.plan).step_seconds
    assert all(least <= seconds * (1 + 1e-9) for _, seconds in worth(problem, QUICK))
    assert [count for count, _ in result.curve] == sorted({count for count, _ in result.curve})
    assert result.curve[-1][1] == least


@pytest.mark.parametrize("seed", [1, 2])
def test_it_is_not_behind_a_search_for_placements_of_as_many_simulations(seed: int) -> None:
    problem = Problem(random_graph(20, seed), toy_cluster(3))
    placement = Annealing().place(problem, seed=seed, budget=80)
    result = replace(QUICK, placements=80).place(problem, seed=seed, budget=40)
    assert 80 < result.simulations <= 40 + 80
    assert simulate(problem, result.plan).step_seconds <= simulate(problem, placement.plan).step_seconds


def test_plans_that_divide_ops_are_compared_and_searched_from() -> None:
    """Large weights and few samples: gradients of whole weights take longer than products of parts."""
    model = "transformer:layers=1,width=64,heads=4,sequence=4,batch=4,vocabulary=12"
    problem = Problem(load_graph(model, with_law=True), load_cluster("p100x2"), "sgd")
    result = QUICK.place(problem, budget=120)
    least = simulate(problem, result.plan).step_seconds
    for rival in QUICK.splitting_rivals():
        assert rival.spec in result.compared
        assert least <= simulate(problem, rival.placer().place(problem).plan).step_seconds * (1 + 1e-9)
    assert "optcnn" not in replace(QUICK, split=False).place(problem, budget=20).compared


def test_a_kind_of_plans_is_asked_once_and_searched_further_only_if_it_is_near_the_best() -> None:
    model = "transformer:layers=1,width=64,heads=4,sequence=4,batch=4,vocabulary=12"
    problem = Problem(load_graph(model, with_law=True), load_cluster("p100x2"), "sgd")
    for near, asked in ((9.0, 1), (0.0, 0)):
        with (
            mock.patch("placers.planner.NEAR", near),
            mock.patch.object(OptCNN, "search", autospec=True, side_effect=OptCNN.search) as exact,
            mock.patch.object(Tofu, "search", autospec=True, side_effect=Tofu.search) as fewest_bytes,
            mock.patch.object(SplitSearch, "beside", autospec=True, side_effect=SplitSearch.beside) as further,
        ):
            result = QUICK.place(problem, budget=160)
        assert (exact.call_count, fewest_bytes.call_count, further.call_count) == (1, 0, asked)
        assert result.simulations <= 160


@pytest.mark.parametrize(("memory", "why"), [(4e10, "would take it minutes"), (2e5, "cannot hold the step's batch")])
def test_of_a_large_problem_plans_are_left_out_that_take_long_to_divide_or_cannot_fit(
    monkeypatch: pytest.MonkeyPatch, memory: float, why: str
) -> None:
    monkeypatch.setattr(size, "LARGE", 1)
    model = "transformer:layers=2,width=64,heads=4,sequence=64,batch=4,vocabulary=128"
    problem = Problem(load_graph(model, with_law=True), load_cluster("p100x2"), "sgd")
    problem = replace(problem, cluster=problem.cluster.with_each_device(memory_bytes=memory))
    result = QUICK.place(problem, budget=40)
    refused = [note for note in result.notes if "no plan of" in note and "optcnn" in note]
    assert len(refused) == 1
    assert why in refused[0]
    assert any("no splits are searched for, stages are not divided inside" in note for note in result.notes)
    assert ("tensor_parallel" in result.compared) == (memory > 1e9)
    for who, least in worth(problem, QUICK):
        assert simulate(problem, result.plan).step_seconds <= least * (1 + 1e-9), who


@pytest.mark.parametrize(
    ("layers", "speeds", "chains"),
    [
        (3, [1.0, 1.0, 3.0], 1),
        pytest.param(4, [1.0] * 3, 1, marks=pytest.mark.slow),  # one more layer, and devices that are alike
        pytest.param(8, [1.0] * 4, 12, marks=pytest.mark.slow),
        pytest.param(5, [1.0, 2.0, 1.0, 3.0], 12, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_no_pipeline_is_faster(layers: int, speeds: list[float], chains: int) -> None:
    """All pipelines on all devices, in four micro-batches and in both orders of DAPPLE, simulated."""
    for seed in range(chains):
        problem = chain(seed, layers, speeds)
        least = min(simulate(problem, each.plan(problem, Layers.of(problem, layers))).step_seconds
                    for each in every_pipeline(layers, speeds))  # fmt: skip
        found = replace(QUICK, micro_batches=4).place(problem, budget=100 if chains == 1 else 1000)
        assert simulate(problem, found.plan).step_seconds <= least * (1 + 1e-9)


def every_pipeline(layers: int, speeds: list[float]) -> Iterator[LayerPipeline]:
    """Every way to cut, and to give each device to a stage; devices that are alike are given in their order."""
    devices = range(len(speeds))
    alike = [pair for pair in itertools.combinations(devices, 2) if speeds[pair[0]] == speeds[pair[1]]]
    for stages in range(1, len(speeds) + 1):
        for given_to in itertools.product(range(stages), repeat=len(speeds)):
            if set(given_to) != set(range(stages)) or any(given_to[one] > given_to[other] for one, other in alike):
                continue
            sets = [tuple(device for device in devices if given_to[device] == stage) for stage in range(stages)]
            for cuts in itertools.combinations(range(1, layers), stages - 1):
                ends = zip((0, *cuts), (*cuts, layers), sets, strict=True)
                pipeline = LayerPipeline(tuple(LayerStage(*each) for each in ends), 4)
                yield pipeline
                yield replace(pipeline, order=LATER)


def test_notes_say_who_won_and_by_how_much() -> None:
    notes = QUICK.place(chain(1, 6, [1.0, 1.0, 2.0]), budget=60).notes
    assert notes[0].startswith("planner: the best of 18 plans in the same simulator is its own pipeline: ")
    assert "faster than the next, " in notes[0]
    assert "data_parallel (" in notes[1]
    assert "before simulation its step was estimated as" in notes[2]


def test_what_was_not_compared_is_laid_to_ctrl_c_only_after_it() -> None:
    with spending(0, "planner") as spent:
        assert spent.said_of_missed(["metis"]) == "no simulations were left to compare metis."
        signal.raise_signal(signal.SIGINT)
        assert spent.said_of_missed(["metis", "fsdp"]) == "stopped before metis, fsdp were compared."


def test_ctrl_c_gives_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = OpEvaluator._simulated
    calls = itertools.count()

    def interrupted(evaluator: OpEvaluator, pipeline: LayerPipeline) -> object:
        if next(calls) == 20:
            signal.raise_signal(signal.SIGINT)
        return judged(evaluator, pipeline)

    monkeypatch.setattr(OpEvaluator, "_simulated", interrupted)
    problem = chain(2, 6, [1.0, 1.0, 2.0])
    result = QUICK.place(problem, budget=1000)
    assert 20 < result.simulations < 1000
    assert f"stopped by Ctrl-C after {result.simulations} of 1000 simulations" in result.notes[-1]
    least = simulate(problem, result.plan).step_seconds
    assert all(least <= seconds * (1 + 1e-9) for _, seconds in worth(problem, QUICK))


def test_where_only_placements_make_sense_it_is_one() -> None:
    bound = replace(random_graph(12, seed=6), devices=(("gpu:0",), ("gpu:1", "gpu:2"), ()) * 4)
    problem = Problem(bound, replace(row(3, 4.0), devices=tuple(
        replace(device, name=f"gpu:{number}", memory_bytes=1e9) for number, device in enumerate(row(3, 4.0).devices))),
    )  # fmt: skip
    result = QUICK.place(problem, budget=30)
    assert result.plan.is_placement
    assert any("op placements only, since op 'op0' may only run on gpu:0" in note for note in result.notes)
    pipelined = Problem(random_graph(12, seed=6), toy_cluster(3), objective=objective_of("max-load"))
    assert QUICK.place(pipelined, budget=30).plan.is_placement


def test_pipelines_are_also_proposed_with_more_in_flight() -> None:
    """Those of two stages, too; one stage has nothing in flight."""
    problem = chain(3, 4, [1.0] * 2, samples=16)
    proposer = Proposer(PipelineFormula(LayerGrain(problem, Layers.of(problem, 4)), [0, 1]))
    two = LayerPipeline((LayerStage(0, 2, (0,)), LayerStage(2, 4, (1,))), micro_batches=4)
    one = LayerPipeline((LayerStage(0, 4, (0,)),), micro_batches=4)
    for pipeline, order in ((two, LATER), (one, one.order)):
        seconds, full = proposer.formula.estimates(pipeline)
        assert proposer._with_more_in_flight(Proposal(pipeline, seconds, full)).pipeline.order == order


def test_latency_is_what_pipelines_are_judged_by_where_it_is_the_objective() -> None:
    problem = chain(3, 4, [1.0] * 2, samples=16)
    for objective in ("step-time", "throughput", "latency"):
        with spending(9, "planner") as spent:
            judged = replace(problem, objective=objective_of(objective))
            contest = Contest(judged, spent)
            planning = PipelinePlanning(judged, contest, spent, 0, layers=9, micro_batches=0, split=False)
            assert planning._by_latency() == (objective == "latency")


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="has 12 samples, which cannot be divided into 5 micro-batches"):
        Planner(micro_batches=5).place(chain(1, 4, [1.0, 1.0], samples=12), budget=9)
    with pytest.raises(InputError, match="cannot be divided into 8 micro-batches on 1 replica; choose numbers whose"):
        Planner(micro_batches=8).place(chain(1, 4, [1.0, 1.0], samples=12), budget=9)
    with pytest.raises(InputError, match="planner: layers is 0; expected at least 1"):
        Planner(layers=0)


def test_what_fits_nowhere_is_said() -> None:
    result = QUICK.place(chain(1, 4, [1.0, 1.0], memory=1.0), budget=99)
    assert result.notes[0].startswith("planner: no plan fits; ")
    assert result.curve == ()


def test_the_best_plan_that_processes_run_is_known_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if they ran op placements alone: the best of those is named, and is the answer where it is asked for."""
    problem = chain(1, 6, [1.0, 1.0], samples=8)
    best = QUICK.place(problem, budget=60)
    assert not best.plan.is_placement
    monkeypatch.setattr("placers.planner.is_run", lambda _, plan: plan.is_placement)
    named = QUICK.place(problem, budget=60)
    assert named.plan == best.plan
    asked = replace(QUICK, runnable=True).place(problem, budget=60)
    assert asked.plan == named.runnable
    fitting = [plan for plan in named.compared.values() if plan.is_placement and simulate(problem, plan).fits]
    assert simulate(problem, asked.plan).step_seconds == min(simulate(problem, plan).step_seconds for plan in fitting)
    monkeypatch.setattr("placers.planner.is_run", lambda *_: False)
    (said,) = [
        note for note in replace(QUICK, runnable=True).place(problem, budget=60).notes if "processes run" in note
    ]
    assert said.startswith("planner: none of the plans that fit")
