"""When passes run, and what memory they need: as the simulation of stages says."""

from dataclasses import replace

import numpy as np
import pytest

from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.plans.schedule import pass_order_of
from envs.simulation.simulator import simulate
from graphs.files.load import load_cluster, load_graph
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.learned.whole_plans.candidates import Candidates
from placers.learned.whole_plans.pass_times import estimates, passes_of
from placers.pipelines.pipeline_formula import sets_of
from placers.pipelines.places import Sets
from training.problems.random.random_chains import random_chain

SIMPLE = "early_backward_a", "early_backward_b", "gpipe", "zb_h1", "zb_h2"
FOLDED = {"interleaved": False, "interleaved_zero_bubble": False, "looped_bfs": False, "zb_v": True, "dualpipe_v": True}


def candidates(memory: float = np.inf) -> Candidates:
    problem: Problem = random_chain(np.random.default_rng(7), "blocks")
    devices = tuple(replace(device, memory_bytes=memory) for device in problem.cluster.devices)
    return Candidates(replace(problem, cluster=replace(problem.cluster, devices=devices)))


def pipeline(layers: Layers, order: str, ranks: int = 3, micro_batches: int = 12) -> LayerPipeline:
    devices = [(device,) for device in range(ranks)]
    if order in FOLDED:
        devices += devices[::-1] if FOLDED[order] else devices
    ends = np.linspace(0, len(layers), len(devices) + 1).astype(int).tolist()
    stages = tuple(map(LayerStage, ends[:-1], ends[1:], devices))
    return LayerPipeline(stages, micro_batches, pass_order_of(order))


@pytest.mark.parametrize("order", [*SIMPLE, *FOLDED])
def test_a_step_takes_as_long_as_in_the_simulation_of_its_stages(order: str) -> None:
    known = candidates()
    one = pipeline(known.layers, order)
    outcome = known.formula.grain.outcome(one)
    seconds, _ = estimates(known.formula, one)
    assert seconds == pytest.approx(outcome.step_seconds, rel=0.1 if order == "looped_bfs" else 0.01)


@pytest.mark.parametrize("order", [*SIMPLE, "zb_v"])
def test_the_fullest_device_needs_what_it_needs_in_the_simulation_of_stages(order: str) -> None:
    memory = 1e9
    known = candidates(memory)
    one = pipeline(known.layers, order)
    peak = candidates().formula.grain.outcome(one).peak_bytes.max()
    assert estimates(known.formula, one)[1] == pytest.approx(peak / memory, rel=0.05)


def test_replicas_that_take_turns_have_a_rank_each_and_their_own_micro_batches() -> None:
    known = candidates()
    one = pipeline(known.layers, SIMPLE[0], ranks=2)
    first, last = one.stages
    turns = replace(one, stages=(replace(first, devices=(0, 2)), last), sharing="turns")
    passes = passes_of(known.problem.cluster, turns.order, sets_of(turns), 12, "turns")
    of_rank = np.split(passes.micro_batch, passes.begin[1:-1])
    assert [sorted(set(each.tolist())) for each in of_rank] == [[*range(0, 12, 2)], [*range(1, 12, 2)], [*range(12)]]
    simulated = known.formula.grain.outcome(turns).step_seconds
    assert estimates(known.formula, turns)[0] == pytest.approx(simulated, rel=0.05)


@pytest.mark.parametrize("sets", [((0,), (2,)), ((0, 1), (2, 3)), ((0,), (1,), (2,), (3,))])
@pytest.mark.parametrize("order", ["early_backward_a", "zb_h2"])
def test_weights_that_several_stages_use_are_sent_there_and_back(sets: Sets, order: str) -> None:
    graph = load_graph("xlnet:layers=2,width=128,heads=2,sequence=32,batch=16")
    known = Candidates(Problem(graph, load_cluster("v100_servers:servers=2,devices=2")))
    ends = np.linspace(0, len(known.layers), len(sets) + 1).astype(int).tolist()
    one = LayerPipeline(tuple(map(LayerStage, ends[:-1], ends[1:], sets)), 4, pass_order_of(order))
    simulated = simulate(known.problem, one.plan(known.problem, known.layers)).step_seconds
    assert estimates(known.formula, one)[0] == pytest.approx(simulated, rel=0.03)
    assert known.formula.estimates(one)[0] < simulated / 2  # the planner's formula does not count them


@pytest.mark.parametrize("cluster", ["dgx_a100:devices=4", "rtx3090_rtx3060"])
def test_divided_stages_take_what_their_slowest_shards_compute_and_exchange(cluster: str) -> None:
    graph = load_graph("transformer:layers=2,width=1024,heads=8,sequence=128,batch=16")
    known = Candidates(Problem(graph, load_cluster(cluster)))
    divided = [each for each in known.each if each.pipeline.is_divided]
    assert {each.kind for each in divided} >= {"divided", "tensor parallel", "sequence parallel", "optcnn"}
    for each in divided:
        simulated = simulate(known.problem, known.plan(each)).step_seconds
        assert estimates(known.formula, each.pipeline)[0] == pytest.approx(simulated, rel=0.06)


def test_one_stage_takes_what_the_formula_says_and_other_stages_than_an_order_takes_are_refused() -> None:
    known = candidates()
    alone = pipeline(known.layers, SIMPLE[0], ranks=1)
    assert estimates(known.formula, alone) == known.formula.estimates(alone)
    with pytest.raises(InputError):
        estimates(known.formula, replace(pipeline(known.layers, "zb_v"), order=pass_order_of("zb_h1")))
