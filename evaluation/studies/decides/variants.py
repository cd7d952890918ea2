"""The recipe of the study of what decides, and its variants: one change each, the most informative first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from placers.learned.settings import Imitation, Ppo
from training.recipe import ProblemSet, Recipe

FAMILIES = ("rnnlm", "gnmt", "inception", "amoebanet", "transformer", "layered")
CLUSTERS = ("p100:devices=2", "p100:devices=4")
GROUPS = 64
BASE = "base"


@dataclass(frozen=True)
class DecidesSize:
    """The size of the study."""

    updates: int = 250
    """Of PPO, in every training."""
    imitation_updates: int = 250
    """Of imitation, before PPO."""
    imitation_simulations: int = 100
    """Of annealing on each training problem, which finds what is imitated."""
    unseen_graphs: int = 2
    """Test graphs of the family that is never trained on; of the others, all are taken."""
    choices: int = 16
    """Samples; the best of them by simulation is evaluated, in addition to the greedy placement."""


@dataclass(frozen=True)
class Variant:
    """A change of the recipe."""

    label: str
    change: Callable[[Recipe], Recipe]


def base_recipe(size: DecidesSize) -> Recipe:
    """What all variants start from."""
    return Recipe(
        placer="sequential",
        network="sequential",
        problems=ProblemSet(
            families=FAMILIES, clusters=CLUSTERS, test_clusters=CLUSTERS, randomised=1, groups=(GROUPS,), variants=4,
            test_groups=GROUPS,
        ),
        ppo=Ppo(
            updates=size.updates, problems_per_update=8, samples=16, epochs=3, reward="log", learning_rate=1e-3,
            final_learning_rate=1e-4, entropy=0.02, final_entropy=0.002, weight_decay=0.0,
        ),
        imitation=Imitation(simulations=size.imitation_simulations, updates=size.imitation_updates, weight=0.1),
    )  # fmt: skip


def recipe_of(variant: str, size: DecidesSize) -> Recipe:
    """The recipe of a variant."""
    return VARIANTS[variant].change(base_recipe(size))


def _change(section: str = "", **changes: object) -> Callable[[Recipe], Recipe]:
    """Of the recipe itself, or of a section of it."""

    def change(recipe: Recipe) -> Recipe:
        return replace(recipe, **({section: replace(getattr(recipe, section), **changes)} if section else changes))

    return change


def _imitation_alone(recipe: Recipe) -> Recipe:
    """A run has at least one update of PPO: here a single step, on samples alone."""
    ppo = replace(recipe.ppo, updates=1, epochs=1, entropy=0.0, final_entropy=0.0)
    return replace(recipe, ppo=ppo, imitation=replace(recipe.imitation, weight=0.0))


def _one_shot(network: str) -> Callable[[Recipe], Recipe]:
    """GDP's policy, without imitation."""
    return _change(placer="gdp", network=network, imitation=Imitation())


VARIANTS: dict[str, Variant] = {
    BASE: Variant("base", lambda recipe: recipe),
    "no_imitation": Variant("no imitation", _change(imitation=Imitation())),
    "imitation_alone": Variant("imitation alone, no PPO", _imitation_alone),
    "imitation_before": Variant("imitation before PPO only, not beside it", _change("imitation", weight=0.0)),
    "gdp": Variant("one-shot (GDP), no imitation", _one_shot("graphsage_transformer")),
    "gdp_alike": Variant("one-shot (GDP) without superposition", _one_shot("graphsage_transformer:superposition=no")),
    "gdp_segments": Variant("one-shot (GDP) in segments of 16 units", _one_shot("graphsage_transformer:segment=16")),
    "samples_4": Variant("4 samples per problem", _change("ppo", samples=4)),
    "entropy_0": Variant("no entropy bonus", _change("ppo", entropy=0.0, final_entropy=0.0)),
    "entropy_x5": Variant("entropy bonus five times larger", _change("ppo", entropy=0.1, final_entropy=0.01)),
    "moving_average": Variant("moving average as baseline", _change("ppo", baseline="moving_average")),
    "sqrt": Variant("reward of the square root", _change("ppo", reward="sqrt")),
    "width_32": Variant("width 32", _change(network="sequential:width=32")),
    "not_randomised": Variant("no randomised clusters", _change("problems", randomised=0)),
    "topological": Variant("units placed in topological order", _change(network="sequential:order=topological")),
    "curriculum": Variant("small graphs first, half of PPO long", _change("ppo", curriculum=0.5)),
    "groups_16": Variant("trained on 16 groups", _change("problems", groups=(16,))),
    "groups_128": Variant("trained on 128 groups", _change("problems", groups=(128,))),
    "samples_32": Variant("32 samples per problem", _change("ppo", samples=32)),
    "sage_3": Variant("3 GraphSAGE layers", _change(network="sequential:sage_layers=3")),
    "width_128": Variant("width 128", _change(network="sequential:width=128")),
}
