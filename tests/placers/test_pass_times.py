"""When passes run, and what memory they need: as the simulation of stages says."""

from dataclasses import replace

import numpy as np
import pytest

from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.plans.schedule import pass_order_of
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.learned.whole_plans.candidates import Candidates
from placers.learned.whole_plans.pass_times import estimates, passes_of
from placers.pipelines.pipeline_formula import sets_of
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


def test_one_stage_takes_what_the_formula_says_and_other_stages_than_an_order_takes_are_refused() -> None:
    known = candidates()
    alone = pipeline(known.layers, SIMPLE[0], ranks=1)
    assert estimates(known.formula, alone) == known.formula.estimates(alone)
    with pytest.raises(InputError):
        estimates(known.formula, replace(pipeline(known.layers, "zb_v"), order=pass_order_of("zb_h1")))
