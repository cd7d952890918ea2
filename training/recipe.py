"""Recipe: everything that decides a training run, read from TOML; an unknown key is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import tomli_w

from graphs import by_name
from graphs.errors import InputError

RECIPES = Path(__file__).resolve().parent / "recipes"

Positive = Annotated[int, msgspec.Meta(ge=1)]
Rate = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class ProblemSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to train on, the training split of families on some clusters, and what to be judged by."""

    families: tuple[str, ...] = ("rnnlm", "inception", "transformer")
    clusters: tuple[str, ...] = ("p100:devices=2", "p100:devices=3", "p100:devices=4", "p100:devices=8")
    test_clusters: tuple[str, ...] = ("p100:devices=2", "p100:devices=4")  # for the families' test split
    randomised: Annotated[int, msgspec.Meta(ge=0)] = 0  # copies of each training cluster with other speeds and memory
    spread: Annotated[float, msgspec.Meta(ge=1)] = 5.0  # by which those are at most multiplied or divided
    unequal: Share = 0.0  # of those copies, with devices that differ from each other
    groups: tuple[Positive, ...] = (64,)  # into which training graphs are tied, each graph into all of these
    variants: Annotated[int, msgspec.Meta(ge=0)] = 0  # of groups, clusters and copies, kept of each graph; 0: all
    test_groups: Positive = 64  # into which test graphs are tied
    optimizer: str = "adam"  # whose state occupies memory


class Ppo(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """PPO's settings; GDP's paper gives none, these are ours."""

    updates: Positive = 1500  # policy improvements in the whole run
    problems_per_update: Positive = 8  # problems drawn for each
    samples: Positive = 32  # placements simulated per problem and update
    epochs: Positive = 3  # passes over those samples
    reward: Literal["sqrt", "log"] = "sqrt"  # of the step time; the first is GDP's
    baseline: Literal["samples", "moving_average"] = "samples"  # of a problem: the same update's, or earlier ones
    only_fitting_after: Annotated[int, msgspec.Meta(ge=0)] = 0  # updates, of a moving average; 0: all always count
    clip: Share = 0.2  # of the probability ratio of each unit's device
    learning_rate: Rate = 1e-3  # of AdamW, at the start
    final_learning_rate: Rate = 1e-4  # at the end, linearly
    entropy: Annotated[float, msgspec.Meta(ge=0)] = 0.01  # bonus per nat, at the start; falls linearly to final
    final_entropy: Annotated[float, msgspec.Meta(ge=0)] = 0.0005
    weight_decay: Annotated[float, msgspec.Meta(ge=0)] = 0.01  # of AdamW
    gradient_norm: Rate = 1.0  # larger gradients are scaled down to this


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A training run, but for its seed."""

    placer: str = "gdp"  # the learned placer to train: "gdp", "sequential", "colocrl" or "hdp"
    network: str = "graphsage_transformer"  # spec of a file in placers/networks; of the others, "hdp:devices=2"
    problems: ProblemSet = ProblemSet()
    ppo: Ppo = Ppo()

    def to_toml(self) -> str:
        """The file that `load_recipe` reads."""
        return tomli_w.dumps(msgspec.to_builtins(self))


def recipe_names() -> tuple[str, ...]:
    """The recipes that come with placelab."""
    return tuple(sorted(path.stem for path in RECIPES.glob("*.toml")))


def load_recipe(what: str) -> Recipe:
    """A recipe by name, or from a TOML file. Raises InputError, naming the key, for what is unknown or out of range."""
    path = Path(what) if what.endswith(".toml") else RECIPES / f"{what}.toml"
    if not path.is_file():
        if what.endswith(".toml"):
            raise InputError(f"recipe file {what} does not exist; recipes by name: {', '.join(recipe_names())}")
        raise InputError(by_name.unknown("recipe", what, recipe_names()))
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Recipe)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InputError(f"{path}: {error}") from error
