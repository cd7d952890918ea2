"""The policies that come with placelab are those that their recipes make, and serve graphs that they never saw."""

from pathlib import Path
from statistics import geometric_mean

import pytest

from envs.simulation.simulator import simulate
from evaluation.records.provenance import policy_sha256
from graphs.files.load import load_cluster, load_graph
from graphs.files.splits import split
from graphs.files.suites import KEPT_ASIDE
from graphs.foundation import by_name
from graphs.problem import Problem
from graphs.runtime import IDEAL
from placers import default
from placers.learned.lookup import placer_of
from placers.learned.policy_meta import load_meta
from training.recipe import load_recipe

BOTH = pytest.mark.parametrize(
    ("folder", "name"), [(default.RELEASED, "released"), (default.OF_PROGRAMS, "world")], ids=["released", "world"]
)


@BOTH
def test_its_recipe_is_the_one_among_the_recipes_and_no_log_comes_along(folder: Path, name: str) -> None:
    recipe = load_recipe(str(folder / "config.toml"))
    assert recipe == load_recipe(name)
    assert set(recipe.problems.families) == set(by_name.built_in("graphs.families")) - set(KEPT_ASIDE)
    meta = load_meta(folder)
    assert meta.network == recipe.network
    assert meta.updates == recipe.ppo.updates
    assert (folder / "policy.safetensors").stat().st_size < 10e6
    assert not (folder / "metrics.jsonl").exists()


@BOTH
def test_its_card_names_its_training_its_weights_and_where_it_is_weak(folder: Path, name: str) -> None:
    meta, card = load_meta(folder), (folder / "card.md").read_text()
    assert f"placelab train {name} " in (folder / "command.txt").read_text()
    assert f"seed {meta.seed}" in card
    assert f"{meta.simulations:,} simulations" in card
    assert policy_sha256(placer_of(folder)) in card, "so that who has the file can tell that it is this one"
    assert "Licence: Apache-2.0" in card
    assert "## Where it is weak" in card


def test_without_simulation_it_places_unseen_graphs_better_than_what_takes_as_long() -> None:
    """In the mean over a family that it was trained on and three that it was not, under the order of its training."""
    order = load_recipe("released").problems.order
    over: dict[str, list[float]] = {rival: [] for rival in ("heft", "metis", "human_expert")}
    for family in ("rnnlm", *KEPT_ASIDE):
        problem = Problem(
            load_graph(split([family], "test")[0], groups=64),
            load_cluster("p100x4"),
            runtime=IDEAL.with_knobs(order=order),
        )
        result = default.build().place(problem, budget=0)
        assert result.simulations == 0
        ours = simulate(problem, result.plan)
        assert ours.fits, family
        for rival, ratios in over.items():
            theirs = simulate(problem, by_name.build("placers", rival).place(problem, budget=1).plan)
            if theirs.fits:
                ratios.append(ours.step_seconds / theirs.step_seconds)
    assert all(geometric_mean(ratios) < 0.98 for ratios in over.values()), over
