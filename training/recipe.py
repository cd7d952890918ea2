"""Recipe: everything that decides a training run, read from TOML; an unknown key is an error."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import tomli_w

from graphs.foundation import by_name
from graphs.foundation.documents import read_document
from graphs.foundation.errors import InputError
from graphs.foundation.wrong_documents import explained
from graphs.runtime import IDEAL, LONGEST_PATH, Runtime, runtime_of
from graphs.transforms.mixed_precision import AS_IT_IS
from placers.learned.lookup import trainer_of
from placers.learned.settings import EpisodeRules, Imitation, Positive, Ppo, Reinforce, Settings, Share, WholePlans
from training.problems.random.settings import Chains, World

RECIPES = Path(__file__).resolve().parent / "recipes"
VERSION = 1  # of recipe files, which need not give it

SECTIONS = {  # which each trainer reads
    "ppo": ("ppo", "imitation", "order"),
    "reinforce": ("reinforce", "rules"),
    "whole_plans": ("whole_plans",),
}
OWN_SECTION = "trainer"  # read by trainers of users' own
OF_TRAINERS = (*(section for each in SECTIONS.values() for section in each), OWN_SECTION)
RENAMED = {"placeto_ppo": "placeto_clipped", "policy2": "released"}  # recipes that were called otherwise
FAMILIES = ("rnnlm", "inception", "transformer")


OneOrSome = str | tuple[str, ...]  # of several, as often as it is listed


class ProblemSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to train on, graphs on some clusters and random problems, and what to evaluate on.

    Without graphs, suites and random problems, and if no families are named, three families are trained on. Raises
    InputError if nothing is left to train on.
    """

    families: tuple[str, ...] = FAMILIES  # whose training splits are trained on
    mixed: Annotated[int, msgspec.Meta(ge=0)] = 0  # further graphs of each family, of its training graphs' knobs
    graphs: tuple[str, ...] = ()  # any others: graph files, specs such as "rnnlm:layers=4", "my_model.py:model"
    suites: tuple[str, ...] = ()  # whose problems are trained on, each on its own cluster
    test_graphs: tuple[str, ...] = ()  # to evaluate on, in addition to the families' test splits
    clusters: tuple[str, ...] = ("p100:devices=2", "p100:devices=3", "p100:devices=4", "p100:devices=8")
    test_clusters: tuple[str, ...] = ("p100:devices=2", "p100:devices=4")  # to evaluate on
    randomised: Annotated[int, msgspec.Meta(ge=0)] = 0  # copies of each training cluster with other speeds and memory
    spread: Annotated[float, msgspec.Meta(ge=1, le=1e9)] = 5.0  # by which those are at most multiplied or divided
    unequal: Share = 0.0  # of those copies, with devices that differ from each other
    slow: Share = 0.0  # of the devices of those, slow and with much memory as processors, the others with less
    forward: Share = 0.0  # of the training problems, the forward pass alone, as in inference
    frozen: Share = 0.0  # of the training problems that are whole steps, the first layers are not trained
    calibrated: Share = 0.0  # of the training problems, timed by the shares of their peaks that GPUs were measured at
    measured: Share = 0.0  # of the training problems, ops of each kind take other times, as on another machine
    scarce: Share = 0.0  # of the training problems, with little more memory than any plan needs
    groups: tuple[Positive, ...] = (64,)  # into which training graphs are tied, each graph into all of these
    variants: Annotated[int, msgspec.Meta(ge=0)] = 0  # of groups, clusters and copies, kept of each graph; 0: all
    test_groups: Positive = 64  # into which test graphs are tied
    optimizer: str = "adam"  # whose state occupies memory
    runtime: OneOrSome = IDEAL.name  # how plans are run (`graphs.runtime`); of several, each problem draws one
    order: str = LONGEST_PATH.name  # by which devices choose among the ops that are ready, if not the runtime's
    precision: OneOrSome = AS_IT_IS  # that of models (`graphs.transforms.mixed_precision`); likewise, each graph
    world: World = World()  # random problems, next to all others
    chains: Chains = Chains()  # random chains of layers, for a policy of whole plans

    @property
    def named(self) -> tuple[str, ...]:
        """The specs that may name code."""
        clusters = *self.clusters, *self.test_clusters
        return (*self.families, *self.graphs, *self.test_graphs, *clusters, *some(self.runtime), self.order)

    @property
    def held_out(self) -> tuple[str, ...]:
        """Kinds of random problems to validate on."""
        return self.chains.held_out or self.world.held_out

    @property
    def runtimes(self) -> tuple[Runtime, ...]:
        """Those that problems are run by, with the order. Raises InputError as `runtime_of`."""
        return tuple(runtime_of(spec, order=self.order) for spec in some(self.runtime))

    @property
    def precisions(self) -> tuple[str, ...]:
        """Those of models."""
        return some(self.precision)

    def __post_init__(self) -> None:
        random = self.world.problems or self.chains.problems
        if self.families is FAMILIES and (self.graphs or self.suites or random):
            msgspec.structs.force_setattr(self, "families", ())  # not named: the default is for want of anything else
        if not (self.families or self.graphs or self.suites or random):
            raise InputError("there is nothing to train on; name families, graphs or suites, or set world.problems")
        if {*self.precisions} != {AS_IT_IS} and not (self.families or self.graphs or self.suites or self.test_graphs):
            raise InputError("precision is that of models, and there are random problems alone; leave it out")
        needed = {"groups": True, "runtime": True, "precision": True, "clusters": self.families or self.graphs}
        needed["test_clusters"] = self.families or self.test_graphs
        for what, is_needed in needed.items():
            if is_needed and not getattr(self, what):
                raise InputError(f"{what} is empty; give at least one, or leave it out")


def some(given: OneOrSome) -> tuple[str, ...]:
    """One as several."""
    return (given,) if isinstance(given, str) else given


class Validation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Greedy plans of problems that a run does not learn from, now and then (`training.runs.selection`).

    Of kinds that are held out (`problems.world.held_out`, `problems.chains.held_out`) they choose the weights that are
    kept. Where a recipe holds none out the problems are those to evaluate on, which choose nothing.
    """

    every: Annotated[int, msgspec.Meta(ge=0)] = 0  # updates; 0: nothing is validated
    problems: Positive = 48  # kinds taking turns, or of those to evaluate on as many; the same for every seed
    averaging: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0  # share of the mean that stays at each update, such as
    # 0.99: the weights are averaged over some 100 updates; 0: those of each update alone


class OrderStage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The last stage of a training (`training.runs.order_stage`), with the settings of PPO but for these."""

    updates: Annotated[int, msgspec.Meta(ge=0)] = 0  # 0: there is none, and PPO trains an order head with all the rest


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A training run, but for its seed. Raises InputError for settings of a trainer that is not the placer's."""

    placer: str = "gdp"  # the learned placer to train, a folder of placers/learned
    network: str = "graphsage_transformer"  # a file in placers/learned/gdp/networks; of others, "hdp:devices=2"
    problems: ProblemSet = ProblemSet()
    validation: Validation = Validation()
    ppo: Ppo = Ppo()
    imitation: Imitation = Imitation()
    order: OrderStage = OrderStage()
    reinforce: Reinforce = Reinforce()  # in place of ppo, where the placer is trained so
    rules: EpisodeRules = EpisodeRules()  # likewise
    whole_plans: WholePlans = WholePlans()  # likewise
    trainer: dict[str, Any] = {}  # of a trainer in the placer's own file, which says what is in it

    def __post_init__(self) -> None:
        self.check_sections(self._used)
        if self.problems.world.problems and trainer_of(self.placer) != "ppo":
            raise InputError(f"placer {self.placer!r} learns from problems that stay; set world.problems to 0")
        if self.problems.chains.problems and trainer_of(self.placer) != "whole_plans":
            raise InputError(f"placer {self.placer!r} learns nothing from chains; set problems.chains.problems to 0")
        tested = self.problems.families or self.problems.test_graphs
        if self.validation.every and not (self.problems.held_out or tested):
            raise InputError("there is nothing to validate on; name kinds in problems.world.held_out, or test_graphs")

    @property
    def chooses_weights(self) -> bool:
        """Whether validation chooses the weights that a run keeps; otherwise these are the last."""
        return bool(self.validation.every and self.problems.held_out)

    @property
    def settings(self) -> Settings:
        """What the trainer is given."""
        return Settings(
            ppo=self.ppo,
            imitation=self.imitation,
            reinforce=self.reinforce,
            rules=self.rules,
            whole_plans=self.whole_plans,
        )

    @property
    def _used(self) -> Collection[str]:
        """Sections of the trainer; all of them for one of a user's own, which is asked when it is there, and for none.

        A placer without a trainer is refused for that alone.
        """
        return SECTIONS.get(trainer_of(self.placer), OF_TRAINERS)

    def check_sections(self, used: Collection[str]) -> None:
        """Raise InputError for a section of trainers that says something, and is not used."""
        for section in OF_TRAINERS:
            if section not in used and not self._is_default(section):
                own = f", and set {', '.join(f'[{each}]' for each in used)} instead" if used else ""
                raise InputError(f"[{section}] says nothing to placer {self.placer!r}; remove that section{own}")

    def _is_default(self, section: str) -> bool:
        value = getattr(self, section)
        return bool(value == type(value)())

    def changed(self, changes: Sequence[str]) -> Recipe:
        """The recipe with other values of keys, "ppo.updates=200". Raises InputError as `load_recipe`."""
        recipe = self
        for change in changes:
            recipe = _changed(recipe, change)
        return recipe

    def to_toml(self) -> str:
        """The file that `load_recipe` reads."""
        return tomli_w.dumps(self.to_plain())

    def to_plain(self) -> dict[str, Any]:
        """The settings as plain data, without those of other trainers."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        for section in OF_TRAINERS:
            is_own = trainer_of(self.placer) not in SECTIONS  # it may read any, and so those that say something
            if section not in self._used or (is_own and self._is_default(section)):
                del plain[section]
        if "rules" in plain:
            plain["rules"] = {name: value for name, value in plain["rules"].items() if value is not None}
        return plain


def recipe_names() -> tuple[str, ...]:
    """The recipes that come with placelab."""
    return tuple(sorted(path.stem for path in RECIPES.glob("*.toml")))


def load_recipe(what: str, changes: Sequence[str] | str = ()) -> Recipe:
    """A recipe by name, or from a TOML file, with changes to its keys such as "ppo.updates=200".

    Raises InputError, naming the key, for what is unknown or out of range.
    """
    path = Path(what) if what.endswith(".toml") else RECIPES / f"{what}.toml"
    if not path.is_file():
        if what.endswith(".toml"):
            raise InputError(f"recipe file {what} does not exist; recipes by name: {', '.join(recipe_names())}")
        now = f"; it is now called {RENAMED[what]!r}" if what in RENAMED else ""
        raise InputError(by_name.unknown("recipe", what, recipe_names()) + now)
    remedy = "`placelab list recipes` names those that come with placelab"
    recipe = read_document(path, Recipe, version=VERSION, remedy=remedy)
    return recipe.changed([changes] if isinstance(changes, str) else changes)


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
    is_known = isinstance(place, dict) and (name in place or sections == [OWN_SECTION])
    if not is_known or isinstance(place.get(name), dict):
        known = [(name, value if isinstance(value, dict) else ()) for name, value in plain.items()]
        keys = [each for name, section in known for each in ([f"{name}.{key}" for key in section] or [name])]
        raise InputError(by_name.unknown("key of a recipe", key, keys))
    place[name] = _value(text)
    try:
        return msgspec.convert(plain, Recipe)
    except msgspec.ValidationError as error:
        raise InputError(f"{change}: {explained(error, plain, Recipe).removeprefix(f'{key}: ')}") from error


def _value(text: str) -> Any:  # of a key, whichever type it has
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        if text.startswith("[") and text.endswith("]"):  # words without their quotes
            return [part.strip() for part in by_name.specs(text[1:-1])]
        return text
