"""A policy of whole plans: what it sees, what it decides, and the placer that acts with it."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from envs.pipelines.construction import Decision
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from evaluation.commands.load_placer import classical_placers, load_placer
from graphs.cluster import Cluster
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.learned.policy_file import load_policy, save_policy
from placers.learned.policy_meta import Meta
from placers.learned.whole_plans.chain_view import ProblemChain
from placers.learned.whole_plans.decision_features import FAR, FEATURES, WIDTH
from placers.learned.whole_plans.outlook import HOPELESS, EqualStageEstimates
from placers.learned.whole_plans.placer import build
from placers.learned.whole_plans.policy import DRAWN, KIND, MARGIN, WholePlansPolicy
from tests.contracts.test_placers import training_graph, unequal_cluster
from tests.drawn import examples
from tests.oracle.toys import random_graph, toy_cluster
from training.problems.random.random_chains import CHAINS, random_chain

POLICY = WholePlansPolicy.new(KIND, 1)
SEEDS = st.integers(0, 10_000)


def chain(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    return random_chain(rng, str(rng.choice(list(CHAINS))))


def seconds_alone(cluster: Cluster) -> EqualStageEstimates:
    return EqualStageEstimates(ProblemChain.of(Problem(training_graph(), cluster)))


# ---- what it sees and decides ----------------------------------------------------------------------------------------


@settings(max_examples=examples(20, 6), deadline=None)
@given(SEEDS)
@example(20)  # it fills up a stage with a device that has no room
def test_what_is_drawn_is_a_plan_and_decisions_that_lead_to_it_are_found_again(seed: int) -> None:
    problem = chain(seed)
    seeing = POLICY.view(problem)
    pipeline = POLICY.draw(seeing, np.random.default_rng(seed))[0]
    pipeline.plan(problem, seeing.view.pipelines.layers).check(problem)
    followed = iter(POLICY.follow(seeing, pipeline))
    construction = seeing.view.construction()
    while not construction.ended:
        choice, place = seeing.choice(construction), 0
        if len(choice.actions) > 1:
            taken = next(followed)
            assert np.array_equal(taken.choice.rows, choice.rows)
            place = taken.place
        assert choice.rows.shape == (len(choice.actions), WIDTH[choice.decision])
        assert np.isfinite(choice.rows).all()
        assert np.abs(choice.rows).max() <= FAR
        construction.take(int(choice.actions[place]))
    assert construction.pipeline == pipeline
    assert not list(followed)


@settings(max_examples=examples(10, 5), deadline=None)
@given(SEEDS)
def test_decisions_are_rated_together_as_they_are_alone(seed: int) -> None:
    taken = POLICY.draw(POLICY.view(chain(seed)), np.random.default_rng(seed))[1]
    if not taken:
        return
    together, entropy = POLICY.score(taken)
    alone = [torch.from_numpy(POLICY.logits(each.choice)).log_softmax(0)[each.place] for each in taken]
    torch.testing.assert_close(together.double(), torch.stack(alone), atol=1e-5, rtol=1e-4)
    assert (entropy >= -1e-6).all()


def test_of_devices_that_are_alike_it_is_asked_about_one() -> None:
    assert ProblemChain.of(Problem(training_graph(), load_cluster("p100:devices=4"))).alike.tolist() == [0, 0, 0, 0]
    servers = ProblemChain.of(Problem(training_graph(), load_cluster("v100_servers:servers=2,devices=2")))
    assert servers.alike.tolist() == [0, 0, 2, 2]
    seeing = POLICY.view(servers.problem)
    construction = seeing.view.construction()
    while construction.decision != Decision.DEVICES:
        construction.take(int(seeing.choice(construction).actions[0]))
    devices = seeing.choice(construction).actions - construction.actions.first_device
    assert [each for each in devices.tolist() if 0 <= each < 4] == [0, 2]


def test_it_uses_no_cpu_next_to_accelerators() -> None:
    problem = Problem(training_graph(), unequal_cluster())
    seeing = POLICY.view(problem)
    rng = np.random.default_rng(0)
    for _ in range(5):
        stages = POLICY.draw(seeing, rng)[0].stages
        assert {device for stage in stages for device in stage.devices} <= {1, 2}


def test_the_outlook_of_one_device_is_its_step_and_replicas_share_it_out() -> None:
    outlook = seconds_alone(load_cluster("p100:devices=4").with_free_links())
    view = outlook.view
    assert view.work[-1] + view.fixed[-1] + view.update[-1] == pytest.approx(1.0)
    assert outlook.seconds[0, 1, 1] == pytest.approx(1.0)
    assert outlook.seconds[0, 0].min() == HOPELESS


def test_the_formula_of_one_device_is_its_step_and_knows_replicas_and_recomputation() -> None:
    problem = Problem(training_graph(), load_cluster("p100:devices=2").with_free_links())
    view = ProblemChain.of(problem)
    layers = len(view.pipelines.layers)
    alone, both = (LayerPipeline((LayerStage(0, layers, devices),)) for devices in ((0,), (0, 1)))
    one, again, shared = (
        view.formula.estimates(each)[0] / view.step for each in (alone, replace(alone, recompute=(0,)), both)
    )
    assert one == pytest.approx(1.0)
    assert again > 1.0
    ring = 2 * (view.latency[0, 1] + view.per_byte[0, 1] * view.weights[-1] / 2)
    assert shared == pytest.approx(view.work[-1] / 2 + view.fixed[-1] + view.update[-1] + ring)


def test_what_seems_too_full_is_computed_again_and_nothing_else_changes() -> None:
    fitting = 0
    for seed in range(8):
        problem = chain(seed)
        pipeline = replace(POLICY.draw(POLICY.view(problem), np.random.default_rng(seed))[0], recompute=())
        full = ProblemChain.of(problem).formula.filled(pipeline)
        hosts = pipeline.stages[int(full.argmax())].devices
        memory = min(problem.cluster.memory_bytes[list(hosts)]) * full.max() * 0.9
        devices = [replace(each, memory_bytes=float(memory)) for each in problem.cluster.devices]
        formula = ProblemChain.of(replace(problem, cluster=replace(problem.cluster, devices=tuple(devices)))).formula
        assert formula.filled(pipeline).max() > MARGIN
        again = formula.made_to_fit(pipeline, MARGIN)
        assert again.recompute
        assert replace(again, recompute=()) == pipeline
        assert formula.made_to_fit(again, MARGIN) == again
        fitting += formula.filled(again).max() <= MARGIN
    assert fitting > 0


# ---- the placer ------------------------------------------------------------------------------------------------------


def test_the_plan_that_promises_most_takes_no_simulation_and_the_best_of_several_is_no_slower() -> None:
    placer, problem = build(untrained=True), chain(3)
    greedy, several = (placer.place(problem, seed=5, budget=budget) for budget in (0, 6))
    assert (greedy.simulations, several.simulations) == (0, 6)
    assert placer.place(problem, seed=5, budget=6) == several
    policy = placer.policy_for(problem)
    seeing = policy.view(problem)
    drawn = policy.promising(seeing, 6, 5)
    assert set(drawn) <= set(islice(policy.candidates(seeing, 5), DRAWN))
    assert drawn[0].plan(problem, seeing.view.pipelines.layers) == greedy.plan
    outcomes = [seeing.view.pipelines.outcome(each) for each in drawn]
    best = min(outcomes, key=lambda each: (not each.fits, each.step_seconds))
    chosen = [each.plan(problem, seeing.view.pipelines.layers) for each in drawn].index(several.plan)
    assert outcomes[chosen].step_seconds == best.step_seconds
    assert build(untrained=True, samples=1).place(problem, budget=6).simulations == 0


def test_a_policy_is_saved_loaded_and_asked(tmp_path: Path) -> None:
    meta = Meta(placer=KIND, network=f"{KIND}:hidden=64", seed=1, decoder_features=FEATURES)
    save_policy(tmp_path, POLICY.state_dict(), meta)
    problem = chain(4)
    loaded = load_placer(f"{KIND}:checkpoint={tmp_path}")
    seeing = POLICY.view(problem)
    first = POLICY.promising(seeing, 1, 0)[0].plan(problem, seeing.view.pipelines.layers)
    assert loaded.place(problem, budget=0).plan == first
    save_policy(tmp_path, POLICY.state_dict(), Meta(placer=KIND, network=KIND, seed=1, decoder_features=("other",)))
    with pytest.raises(InputError, match="trained on other decoder features"):
        load_policy(tmp_path, WholePlansPolicy)


def test_what_it_cannot_do_is_said_in_one_sentence(tmp_path: Path) -> None:
    assert KIND not in classical_placers()
    with pytest.raises(InputError, match="and not both"):
        build(checkpoint=str(tmp_path), untrained=True)
    with pytest.raises(InputError, match="holds no policy"):
        build(checkpoint=str(tmp_path))
    bound = replace(random_graph(3, seed=0), devices=(("gpu:0",), (), ()))
    with pytest.raises(InputError, match="'op0' may only run on gpu:0"):
        build(untrained=True).place(Problem(bound, toy_cluster(2)))
