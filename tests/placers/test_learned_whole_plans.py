"""A policy of whole plans: the candidates, what it sees of them, and the placer that rates them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from envs.simulation.simulator import simulate
from evaluation.commands.load_placer import classical_placers, load_placer
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.learned.policy_file import load_policy, save_policy
from placers.learned.policy_meta import Meta
from placers.learned.whole_plans.candidates import KINDS, Candidates
from placers.learned.whole_plans.features import FAR, FEATURES, WIDTH
from placers.learned.whole_plans.placer import WholePlansPlacer, build
from placers.learned.whole_plans.policy import KIND, WholePlansPolicy, seconds_of
from tests.contracts.test_placers import training_graph, unequal_cluster
from tests.oracle.toys import random_graph, toy_cluster
from training.problems.random.random_chains import random_chain

POLICY = WholePlansPolicy.new(KIND, 1)


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PROPOSED", "FORMS", "FEW", "DIVIDED"):
        monkeypatch.setattr(f"placers.learned.whole_plans.candidates.{name}", 2)


def chain(seed: int, kind: str = "recurrent") -> Problem:
    return random_chain(np.random.default_rng(seed), kind)


# ---- what it sees ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [chain(3), Problem(training_graph(), load_cluster("p100:devices=4"))])
def test_candidates_differ_have_finite_rows_and_are_plans_or_are_refused(problem: Problem) -> None:
    view = POLICY.view(problem)
    each = view.candidates.each
    assert len(set(each)) == len(each)
    assert {"pipeline", "zero 1", "zero 3", "expert placement"} <= {one.kind for one in each} <= {*KINDS}
    assert view.rows.shape == (len(each), WIDTH)
    assert view.rows.abs().max() <= FAR
    assert sorted(POLICY.ranked(view).tolist()) == list(range(len(each)))
    made = 0
    for number in range(len(each)):
        seconds, fits = view.judged(number)
        plan = view.plan(number)
        if not np.isfinite(seconds):
            continue
        assert plan is not None
        timeline = simulate(problem, plan)
        assert seconds == pytest.approx(timeline.step_seconds)
        assert fits == timeline.fits
        assert seconds >= view.bound * (1 - 1e-9)
        made += 1
    assert made > len(each) / 2


def test_pipelines_use_no_cpu_next_to_accelerators() -> None:
    candidates = Candidates(Problem(training_graph(), unequal_cluster()))
    used = {device for one in candidates.each for stage in one.pipeline.stages for device in stage.devices}
    assert used == {1, 2}


# ---- the placer ------------------------------------------------------------------------------------------------------


def test_the_best_rated_plan_takes_no_simulation_and_the_best_of_several_is_the_fastest_of_them() -> None:
    placer, problem = build(untrained=True), chain(3)
    greedy, several = (placer.place(problem, seed=5, budget=budget) for budget in (0, 6))
    assert (greedy.simulations, several.simulations) == (0, 6)
    assert placer.place(problem, seed=5, budget=6) == several
    proposed = placer.proposals(problem, 6, 5)
    assert proposed[0] == greedy.plan
    assert len(set(proposed)) == 6
    times = [seconds_of(problem, plan) for plan in proposed]
    assert times[proposed.index(several.plan)] == min(times, key=lambda both: (not both[1], both[0]))
    assert build(untrained=True, samples=1).place(problem, budget=6).simulations == 0


def test_a_policy_is_saved_loaded_and_asked(tmp_path: Path) -> None:
    meta = Meta(placer=KIND, network=f"{KIND}:hidden=64", seed=1, decoder_features=FEATURES)
    save_policy(tmp_path, POLICY.state_dict(), meta)
    problem = chain(4)
    first = WholePlansPlacer(POLICY, KIND).place(problem, budget=0).plan
    assert load_placer(f"{KIND}:checkpoint={tmp_path}").place(problem, budget=0).plan == first
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
