"""Training a policy of whole plans: labels, imitation, REINFORCE; a run that is stopped and resumed."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from graphs.foundation.errors import InputError
from placers.learned.learned_placer import PolicyPlacer
from placers.learned.settings import WholePlans
from placers.learned.whole_plans.chain_view import MICRO_BATCHES, PASS_ORDERS, ProblemChain
from placers.learned.whole_plans.label_search import best_known, is_possible, named_alike
from placers.learned.whole_plans.policy import WholePlansPolicy
from tests.training.metrics_lines import metrics_lines
from training.learning.whole_plans import PlanLabelSearch, WholePlansTrainer
from training.problems.random.random_chains import CHAINS, random_chain
from training.problems.random.settings import Chains, World
from training.recipe import ProblemSet, Recipe, Validation
from training.runs.problem_sets import load_problems, renewed_problems, validation_problems
from training.runs.run_folder import RunFolder
from training.runs.train import train

SMALL = Recipe(
    placer="whole_plans",
    network="whole_plans:hidden=4",
    problems=ProblemSet(chains=Chains(problems=3, held_out=("mixed", "pyramid"))),
    validation=Validation(every=1, problems=1),
    whole_plans=WholePlans(label_simulations=2, imitation=3, updates=2, problems_per_update=2, samples=2, batch=8),
)


def trained(folder: Path, **options: Any) -> PolicyPlacer[Any]:
    return train(SMALL, out=folder, seed=1, loggers=(), **options)


def test_the_best_known_pipeline_can_be_made_and_is_no_slower_than_one_device() -> None:
    view = ProblemChain.of(random_chain(np.random.default_rng(5), "recurrent"))
    pipeline, seconds = best_known(view, 6, seed=0)
    assert pipeline is not None
    assert is_possible(view, pipeline)
    assert named_alike(view, pipeline) == pipeline
    assert pipeline.micro_batches in MICRO_BATCHES
    assert pipeline.order in PASS_ORDERS
    assert seconds == view.pipelines.outcome(pipeline).step_seconds or len(pipeline.stages) == 1
    longer = best_known(view, 12, seed=0, starts=[pipeline])[1]
    assert longer <= seconds * (1 + 1e-9)


def test_a_run_that_is_stopped_ends_as_if_it_had_not_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trained(tmp_path / "whole")
    original = WholePlansTrainer.imitate

    def interrupted(self: Any) -> float:
        if self.imitated == 2:  # after the searches, and an update
            raise KeyboardInterrupt
        return original(self)

    monkeypatch.setattr(WholePlansTrainer, "imitate", interrupted)
    monkeypatch.setattr("training.runs.train.CHECKPOINT_EVERY", 1)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "stopped")
    monkeypatch.undo()
    resumed = trained(tmp_path / "stopped", resume=True)
    assert whole.policy is not None
    assert resumed.policy is not None
    for one, other in zip(whole.policy.parameters(), resumed.policy.parameters(), strict=True):
        assert torch.equal(one, other)
    assert metrics_lines(tmp_path / "whole") == metrics_lines(tmp_path / "stopped")
    states = [RunFolder(tmp_path / name).read_state() for name in ("whole", "stopped")]
    assert states[0][1] == states[1][1]
    assert states[0][1]["simulations"] == str(3 * 2 + 2 * 2 * 2), "of labels, and of updates"
    assert all(torch.equal(states[0][0][key], value) for key, value in states[1][0].items())
    first = PlanLabelSearch(WholePlansPolicy, load_problems(SMALL.problems)[0], 2)
    elsewhere: PlanLabelSearch = pickle.loads(pickle.dumps(first))  # as another process is given it
    assert elsewhere.do() == tuple(states[0][0]["label.0"].tolist())

    with pytest.raises(InputError, match="started from another recipe"):
        train(replace(SMALL, validation=Validation()), out=tmp_path / "whole", seed=1, resume=True)
    with pytest.raises(InputError, match="written with seed 1, this run has seed 2"):
        train(SMALL, out=tmp_path / "whole", seed=2, resume=True)


def test_chains_that_are_validated_on_are_of_other_kinds_than_those_that_are_learned() -> None:
    chosen = SMALL.problems
    stay, held_out, renewed = load_problems(chosen), validation_problems(SMALL), renewed_problems(chosen, 1)
    assert renewed is not None
    new = [renewed.problem(number) for number in range(4)]
    assert (len(stay), len(held_out)) == (3, 1)
    assert {each.graph.name for each in held_out} <= {"mixed", "pyramid"}
    assert not {each.graph.name for each in (*stay, *new)} & {"mixed", "pyramid"}
    assert [each.graph.fingerprint for each in load_problems(chosen, seed=5)] == [
        each.graph.fingerprint for each in stay
    ]
    other = renewed_problems(chosen, 2)
    assert other is not None
    assert other.problem(0).graph.fingerprint != new[0].graph.fingerprint


def test_without_a_label_that_fits_there_is_nothing_to_imitate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("placers.learned.whole_plans.policy.best_known", lambda *_, **__: (None, np.inf))
    with pytest.raises(InputError, match="no search has found a plan that fits"):
        trained(tmp_path)


def test_settings_that_leave_nothing_to_train_or_to_validate_on_are_refused() -> None:
    with pytest.raises(InputError, match="unknown kind of chain 'blokcs'"):
        Chains(held_out=("blokcs",))
    with pytest.raises(InputError, match="all kinds of chains are held out"):
        Chains(held_out=tuple(CHAINS))
    with pytest.raises(InputError, match="there is nothing to validate on"):
        replace(SMALL, problems=ProblemSet(chains=Chains(problems=3)))
    with pytest.raises(InputError, match="placer 'gdp' learns nothing from chains"):
        Recipe(problems=ProblemSet(chains=Chains(problems=3)))
    with pytest.raises(InputError, match="learns from problems that stay"):
        replace(SMALL, problems=ProblemSet(world=World(problems=3)))
