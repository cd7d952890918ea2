"""Recipe: everything that decides a training run, read from TOML; an unknown key is an error."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import tomli_w

from graphs.foundation import by_name
from graphs.foundation.documents import read_document
from graphs.foundation.errors import InputError

RECIPES = Path(__file__).resolve().parent / "recipes"
VERSION = 1  # of recipe files, which need not give it

Positive = Annotated[int, msgspec.Meta(ge=1)]
LearningRate = Annotated[float, msgspec.Meta(gt=0, le=1)]  # of Adam, which moves every weight by about that much
Limit = Annotated[float, msgspec.Meta(gt=0)]  # inf: none
Weight = Annotated[float, msgspec.Meta(ge=0, le=1e9)]  # finite, that is
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
FAMILIES = ("rnnlm", "inception", "transformer")


class ProblemSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to train on, graphs on some clusters, and what to be judged by.

    Without graphs and suites, and if no families are named, three families are trained on. Raises InputError if
    nothing is left to train on.
    """

    families: tuple[str, ...] = FAMILIES  # whose training splits are trained on
    graphs: tuple[str, ...] = ()  # any others: graph files, specs such as "rnnlm:layers=4", "my_model.py:model"
    suites: tuple[str, ...] = ()  # whose problems are trained on, each on its own cluster
    test_graphs: tuple[str, ...] = ()  # to be judged by, in addition to the families' test splits
    clusters: tuple[str, ...] = ("p100:devices=2", "p100:devices=3", "p100:devices=4", "p100:devices=8")
    test_clusters: tuple[str, ...] = ("p100:devices=2", "p100:devices=4")  # for what it is judged by
    randomised: Annotated[int, msgspec.Meta(ge=0)] = 0  # copies of each training cluster with other speeds and memory
    spread: Annotated[float, msgspec.Meta(ge=1, le=1e9)] = 5.0  # by which those are at most multiplied or divided
    unequal: Share = 0.0  # of those copies, with devices that differ from each other
    slow: Share = 0.0  # of the devices of those, slow and with much memory as processors, the others with less
    forward: Share = 0.0  # of the training problems, the forward pass alone, as in inference
    measured: Share = 0.0  # of the training problems, ops of each kind take other times, as on another machine
    groups: tuple[Positive, ...] = (64,)  # into which training graphs are tied, each graph into all of these
    variants: Annotated[int, msgspec.Meta(ge=0)] = 0  # of groups, clusters and copies, kept of each graph; 0: all
    test_groups: Positive = 64  # into which test graphs are tied
    optimizer: str = "adam"  # whose state occupies memory

    def __post_init__(self) -> None:
        if self.families is FAMILIES and (self.graphs or self.suites):
            msgspec.structs.force_setattr(self, "families", ())  # not named: the default is for want of anything else
        if not (self.families or self.graphs or self.suites):
            raise InputError("there is nothing to train on; name families, graphs or suites")
        needed = {"groups": True, "clusters": self.families or self.graphs}
        needed["test_clusters"] = self.families or self.test_graphs
        for what, is_needed in needed.items():
            if is_needed and not getattr(self, what):
                raise InputError(f"{what} is empty; give at least one, or leave it out")


class Ppo(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """PPO's settings; GDP's paper gives none, these are ours."""

    updates: Positive = 1500  # policy improvements in the whole run
    problems_per_update: Positive = 8  # problems drawn for each
    curriculum: Share = 0.0  # of the updates, during which larger graphs join, from a fifth of all problems on
    samples: Positive = 32  # placements simulated per problem and update
    epochs: Positive = 3  # passes over those samples
    reward: str = "sqrt"  # a file in training/ppo_rewards, or "my.py:build"; this one is GDP's
    baseline: Literal["samples", "moving_average"] = "samples"  # of a problem: the same update's, or earlier ones
    only_fitting_after: Annotated[int, msgspec.Meta(ge=0)] = 0  # updates, of a moving average; 0: all always count
    clip: Share = 0.2  # of the probability ratio of each unit's device
    learning_rate: LearningRate = 1e-3  # of AdamW, at the start
    final_learning_rate: LearningRate = 1e-4  # at the end, linearly
    entropy: Weight = 0.01  # bonus per nat, at the start; falls linearly to final
    final_entropy: Weight = 0.0005
    weight_decay: Weight = 0.01  # of AdamW
    gradient_norm: Limit = 1.0  # larger gradients are scaled down to this

    def __post_init__(self) -> None:
        _check_name("training.ppo_rewards", self.reward)


class Imitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much of what search finds is imitated, before and beside PPO (`training.imitation`); all of this is ours."""

    simulations: Annotated[int, msgspec.Meta(ge=0)] = 0  # of annealing, on each training problem; 0: no imitation
    updates: Annotated[int, msgspec.Meta(ge=0)] = 0  # of imitation alone, before PPO
    weight: Weight = 0.0  # of the imitated log-probability in PPO; falls linearly to 0


class Reinforce(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of Placeto's REINFORCE; defaults are those of its code where its sample settings give one."""

    updates: Positive = 1000  # in the whole run
    problems_per_update: Positive = 4  # drawn for each; the authors run 4 to 8 workers
    episodes: Positive = 1  # per problem and update
    baseline_updates: Positive = 10  # over which a problem's returns are averaged
    discount: Share = 1.0
    learning_rate: LearningRate = 1e-3  # of Adam, at the start
    final_learning_rate: LearningRate = 1e-4  # at the end, linearly
    entropy: Weight = 0.1  # bonus per nat and step, at the start (ours)
    final_entropy: Weight = 0.0  # at the end, linearly
    gradient_norm: Limit = 1.25  # larger gradients are scaled down to this
    steps: Annotated[int, msgspec.Meta(ge=0)] = 0  # of the episodes, after each of which it learns; 0: whole episodes
    epochs: Positive = 1  # passes over these steps; after the first the ratio of probabilities is clipped, as in PPO
    clip: Share = 0.2  # of that ratio
    normalised: bool = False  # advantages by their standard deviation, so that the entropy bonus means the same (ours)
    imitation: Weight = 0.0  # weight of the best known device; falls linearly to 0 (ours)
    relative: bool = False  # returns in units of the problem's lower bound, so that 20 ms and 2 s count alike (ours)


class EpisodeRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How Placeto's episodes start and what they pay: `envs.gym.iterative.Rules`, but for the order of the visits.

    That order is part of the network's spec, "placeto:order=random": whoever acts with the policy needs it, too.
    """

    reward: str = "improvement"  # a file in envs/rewards, or "my.py:build"
    start: Literal["random", "single", "zero", "best"] = "random"
    memory_gib: Annotated[float, msgspec.Meta(gt=0)] | None = None  # of a device, beyond which memory costs; its own
    penalty_per_gb: Weight = 2.0  # seconds
    longest_seconds: Limit = 10.0  # to which penalised seconds are clipped
    every: Positive = 1  # steps from one simulation to the next, if the reward pays before the end (ours)

    def __post_init__(self) -> None:
        _check_name("envs.rewards", self.reward)


def _check_name(folder: str, spec: str) -> None:
    """Raise InputError for the name of nothing; a user's own file is looked at when it is used."""
    if by_name.own(spec) is None and (name := spec.partition(":")[0]) not in by_name.names(folder):
        raise InputError(by_name.unknown("reward", name, by_name.names(folder)))


SECTIONS = {"ppo": Ppo(), "imitation": Imitation(), "reinforce": Reinforce(), "rules": EpisodeRules()}


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A training run, but for its seed. Raises InputError for settings of a trainer that is not the placer's."""

    placer: str = "gdp"  # the learned placer to train: "gdp", "sequential", "colocrl", "hdp" or "placeto"
    network: str = "graphsage_transformer"  # a file in placers/learned/gdp/networks; of others, "hdp:devices=2"
    problems: ProblemSet = ProblemSet()
    ppo: Ppo = Ppo()
    imitation: Imitation = Imitation()
    reinforce: Reinforce = Reinforce()  # of Placeto, in place of ppo
    rules: EpisodeRules = EpisodeRules()  # of Placeto

    def __post_init__(self) -> None:
        for section in self._unused:
            if getattr(self, section) != SECTIONS[section]:
                raise InputError(f"[{section}] says nothing to placer {self.placer!r}; remove that section")

    @property
    def _unused(self) -> tuple[str, ...]:
        """Sections of other placers."""
        return ("ppo", "imitation") if self.placer == "placeto" else ("reinforce", "rules")

    def to_toml(self) -> str:
        """The file that `load_recipe` reads."""
        plain = {name: value for name, value in msgspec.to_builtins(self).items() if name not in self._unused}
        if "rules" in plain:
            plain["rules"] = {name: value for name, value in plain["rules"].items() if value is not None}
        return tomli_w.dumps(plain)


def recipe_names() -> tuple[str, ...]:
    """The recipes that come with placelab."""
    return tuple(sorted(path.stem for path in RECIPES.glob("*.toml")))


def load_recipe(what: str, changes: Sequence[str] | str = ()) -> Recipe:
    """A recipe by name, or from a TOML file, with changes to its keys such as "ppo.updates=200".

    Raises InputError, naming the key, for what is unknown or out of range.
    """
    recipe = _loaded(what)
    for change in [changes] if isinstance(changes, str) else changes:
        recipe = _changed(recipe, change)
    return recipe


def _loaded(what: str) -> Recipe:
    path = Path(what) if what.endswith(".toml") else RECIPES / f"{what}.toml"
    if not path.is_file():
        if what.endswith(".toml"):
            raise InputError(f"recipe file {what} does not exist; recipes by name: {', '.join(recipe_names())}")
        raise InputError(by_name.unknown("recipe", what, recipe_names()))
    return read_document(path, Recipe, version=VERSION, remedy="`placelab list recipes` names those that come along")


def _changed(recipe: Recipe, change: str) -> Recipe:
    """The recipe with another value of a key; the value is written as in TOML, or a word without its quotes."""
    key, equals, text = (part.strip() for part in change.partition("="))
    if not equals or not key:
        raise InputError(f"expected KEY=VALUE to change a recipe, such as ppo.updates=200, got {change!r}")
    plain = msgspec.to_builtins(recipe)
    *sections, name = key.split(".")
    place: Any = plain
    for section in sections:
        place = place.get(section) if isinstance(place, dict) else None
    if not isinstance(place, dict) or name not in place or isinstance(place[name], dict):
        raise InputError(by_name.unknown("key of a recipe", key, _keys(plain)))
    place[name] = _value(text)
    try:
        return msgspec.convert(plain, Recipe)
    except msgspec.ValidationError as error:
        what = str(error).partition(" - at `")[0].replace("`", "")
        raise InputError(f"{change}: {what[:1].lower()}{what[1:]}") from error


def _value(text: str) -> Any:  # of a key, whichever type it has
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        if text.startswith("[") and text.endswith("]"):  # words without their quotes
            return [part.strip() for part in by_name.specs(text[1:-1])]
        return text


def _keys(plain: dict[str, Any]) -> list[str]:
    """All keys of a recipe, as "ppo.updates"."""
    keys = []
    for name, value in plain.items():
        keys += [f"{name}.{key}" for key in value] if isinstance(value, dict) else [name]
    return keys
