"""Training a policy of whole plans: labels, then list-wise learning; a run that is stopped and resumed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from graphs.foundation.errors import InputError
from placers.learned.learned_placer import PolicyPlacer
from placers.learned.settings import WholePlans
from placers.learned.whole_plans.policy import KIND, WholePlansPolicy
from tests.training.metrics_lines import metrics_lines
from training.learning.whole_plans import CandidateTimes, WholePlansTrainer
from training.problems.random.random_chains import CHAINS
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
    whole_plans=WholePlans(updates=2, problems_per_update=2),
)


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PROPOSED", "FORMS", "FEW", "DIVIDED"):
        monkeypatch.setattr(f"placers.learned.whole_plans.candidates.{name}", 1)
    monkeypatch.setattr("training.learning.whole_plans.LABELLED", 2)


def trained(folder: Path, **options: Any) -> PolicyPlacer[Any]:
    return train(SMALL, out=folder, seed=1, loggers=(), **options)


def test_costs_are_logarithms_and_what_does_not_fit_or_is_no_plan_costs_more() -> None:
    times = CandidateTimes(np.array([2.0, 1.0, 1.0, np.inf]), np.array([1.0, 1.0, 0.0, 0.0]))
    assert times.costs == pytest.approx(np.log([2.0, 1.0, 3.0, 100.0]))
    assert not CandidateTimes(np.full(2, np.inf), np.zeros(2)).costs.any()


def test_it_learns_which_candidate_is_the_fastest() -> None:
    settings = WholePlans(updates=150, problems_per_update=1, learning_rate=0.01)
    trainer = WholePlansTrainer(WholePlansPolicy.new(KIND, 3), load_problems(SMALL.problems)[:1], settings, seed=0)
    assert np.isnan(trainer.imitate())
    over_best = [trainer.update().step_over_best for _ in range(settings.updates)]
    assert over_best[-1] == pytest.approx(1.0, abs=0.02)
    view, times = trainer.problems[0], trainer.times[0]
    first = int(trainer.policy.ranked(view)[0])
    assert times.costs[first] == pytest.approx(np.log(over_best[-1]), abs=1e-9)
    assert view.judged(first) == (times.seconds[first], times.fits[first] > 0)


def test_a_run_that_is_stopped_ends_as_if_it_had_not_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trained(tmp_path / "whole")
    original = WholePlansTrainer.imitate

    def interrupted(self: Any) -> float:
        if self.imitated == 1:  # after the first labels
            raise KeyboardInterrupt
        return original(self)

    monkeypatch.setattr(WholePlansTrainer, "imitate", interrupted)
    monkeypatch.setattr("training.runs.train.CHECKPOINT_EVERY", 1)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "stopped")
    monkeypatch.setattr(WholePlansTrainer, "imitate", original)
    resumed = trained(tmp_path / "stopped", resume=True)
    assert whole.policy is not None
    assert resumed.policy is not None
    for one, other in zip(whole.policy.parameters(), resumed.policy.parameters(), strict=True):
        assert torch.equal(one, other)
    assert metrics_lines(tmp_path / "whole") == metrics_lines(tmp_path / "stopped")
    states = [RunFolder(tmp_path / name).read_state() for name in ("whole", "stopped")]
    assert states[0][1] == states[1][1]
    labels = [value for key, value in states[0][0].items() if key.startswith("label.")]
    assert int(states[0][1]["simulations"]) == sum(each.shape[1] for each in labels)
    assert len(labels) == 3
    assert all(torch.equal(states[0][0][key], value) for key, value in states[1][0].items())

    with pytest.raises(InputError, match=r"another recipe than this one: validation\.every was"):
        train(replace(SMALL, validation=Validation()), out=tmp_path / "whole", seed=1, resume=True)
    with pytest.raises(InputError, match="written with seed 1, this run has seed 2"):
        train(SMALL, out=tmp_path / "whole", seed=2, resume=True)


def test_chains_that_are_validated_on_are_of_other_kinds_than_those_that_are_learned() -> None:
    chosen = SMALL.problems
    stay, held_out = load_problems(chosen), validation_problems(SMALL)
    assert renewed_problems(chosen, 1) is None
    assert (len(stay), len(held_out)) == (3, 1)
    assert {each.graph.name for each in held_out} <= {"mixed", "pyramid"}
    assert not {each.graph.name for each in stay} & {"mixed", "pyramid"}
    assert [each.graph.fingerprint for each in load_problems(chosen, seed=5)] == [
        each.graph.fingerprint for each in stay
    ]


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
