"""A policy in place of the released one, so that no test depends on how good that is, or whether it is there."""

from pathlib import Path

import pytest

from placers import default
from placers.learned.policy_file import save_policy
from placers.learned.policy_meta import Meta
from placers.learned.sequential.decoder_features import FEATURES
from placers.learned.sequential.policy import SequentialPolicy
from training.recipe import ProblemSet, Recipe

NETWORK = "sequential:width=8,sage_layers=1,heads=2,hidden=8"
PROBLEMS = ProblemSet()


def stand_in(folder: Path, problems: ProblemSet = PROBLEMS, *, seed: int = 3) -> Path:
    """An untrained policy with the recipe of its problems, in a new folder."""
    folder.mkdir()
    meta = Meta(placer="sequential", network=NETWORK, seed=seed, decoder_features=FEATURES)
    save_policy(folder, SequentialPolicy.new(NETWORK, seed=seed).state_dict(), meta)
    recipe = Recipe(placer="sequential", network=NETWORK, problems=problems)
    (folder / "config.toml").write_text(recipe.to_toml())
    return folder


def release(monkeypatch: pytest.MonkeyPatch, folder: Path, problems: ProblemSet = PROBLEMS) -> Path:
    """A stand-in that counts as released, for all ways of running plans, until the test is over."""
    monkeypatch.setattr(default, "RELEASED", stand_in(folder / "released", problems))
    monkeypatch.setattr(default, "OF_PROGRAMS", default.RELEASED)
    return default.RELEASED
