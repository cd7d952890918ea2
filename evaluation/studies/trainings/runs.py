"""The trainings of the study, with other seeds and for one cluster alone, and what their policies place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from evaluation.record import Failure
from evaluation.studies.cheap_placers import CHEAP
from evaluation.studies.comparisons import compared, trained
from evaluation.studies.problems import Problems, problems_of, training_problems
from evaluation.studies.released.parts import BEST, FEW, GREEDY, GROUPS, PROFILES, problems_of_part
from graphs.foundation.engine import Workers
from graphs.suites import heldout
from placers import default
from placers.learned.policy_meta import META, load_meta
from training.recipe import Recipe, Validation, load_recipe
from training.world.settings import World

CLUSTERS = ("p100:devices=2", "p100:devices=4", "p100:devices=8", "cpu_gpu:gpus=2")  # that have a specialist
RUNS = "runs"
RELEASED_NAME, CHEAP_NAME = "released", "cheap"  # of the journals of the released policy and of the cheap placers
SUITES = ("heldout", "newfamilies", "clusters", PROFILES)  # that every seed places; suites, but for the profiles
SPECIAL = "specialists"  # held-out graphs on the specialists' clusters

Places = Mapping[str, Problems]  # by suite, or SPECIAL


@dataclass(frozen=True)
class TrainingsSize:
    """What all trainings of a study's folder follow from."""

    recipe: Recipe
    specialist_updates: int  # of PPO


@dataclass(frozen=True)
class Training:
    """A recipe with a seed, and the folder of its run."""

    name: str  # of its journals
    folder: Path
    recipe: Recipe
    seed: int

    @property
    def is_done(self) -> bool:
        """Whether the folder holds the policy after the last update. Raises InputError if it is damaged."""
        if not (self.folder / META).is_file():
            return False
        meta, recipe = load_meta(self.folder), self.recipe
        return (meta.updates, meta.order_updates) == (recipe.ppo.updates, recipe.order.updates)

    def do(self) -> None:
        """Train, from where it was stopped; each model is captured once in a process."""
        trained(self.recipe, training_problems(self.recipe.problems, self.seed), self.folder, self.seed)

    @property
    def placers(self) -> dict[str, int]:
        """Its greedy placement and the best of 16, by spec, and how much each may simulate."""
        if self.folder == default.RELEASED:
            return {GREEDY: FEW, BEST: FEW}
        best = f"{self.recipe.placer}:checkpoint={self.folder}"
        return {f"{best},samples=1": FEW, best: FEW}


def released() -> Training:
    """The training of the released policy. Raises InputError if it is not there."""
    recipe = load_recipe(str(default.RELEASED / "config.toml"))
    return Training(RELEASED_NAME, default.RELEASED, recipe, load_meta(default.RELEASED).seed)


def is_released(recipe: Recipe, seed: int) -> bool:
    """Whether the released policy is what a recipe gives with a seed."""
    there = released()
    return there.recipe == recipe and there.seed == seed and there.is_done


def of_seed(settings: TrainingsSize, seed: int, out: Path) -> Training:
    """The recipe with a seed; the released policy is not trained again."""
    name = f"seed-{seed}"
    folder = default.RELEASED if is_released(settings.recipe, seed) else out / RUNS / name
    return Training(name, folder, settings.recipe, seed)


def specialist(settings: TrainingsSize, cluster: str, seed: int, out: Path) -> Training:
    """The recipe for a cluster alone."""
    name = f"{cluster.replace(':', '-').replace('=', '-')}-{seed}"
    return Training(name, out / RUNS / name, specialised(settings.recipe, cluster, settings.specialist_updates), seed)


def specialised(recipe: Recipe, cluster: str, updates: int) -> Recipe:
    """A recipe for one cluster, varied only in graphs and groups, with fewer updates in the same proportions."""
    problems = replace(
        recipe.problems, clusters=(cluster,), test_clusters=(cluster,), randomised=0, variants=0, forward=0.0,
        measured=0.0, world=World(),
    )  # fmt: skip
    imitated, ordered = (
        round(stage.updates * updates / recipe.ppo.updates) for stage in (recipe.imitation, recipe.order)
    )
    return replace(
        recipe,
        problems=problems,
        validation=Validation(),  # random problems are on other clusters
        ppo=replace(recipe.ppo, updates=updates),
        imitation=replace(recipe.imitation, updates=imitated),
        order=replace(recipe.order, updates=ordered),
    )


def seed_places(data: Path | None) -> Places:
    """What is placed with every seed; without profiles if there is no folder of them."""
    places = {name: problems_of_part(name, data) for name in SUITES}
    return {name: problems for name, problems in places.items() if problems}


def special_places(*clusters: str) -> Places:
    """The held-out graphs on some clusters."""
    graphs = dict.fromkeys(graph for graph, _ in heldout())
    return {SPECIAL: problems_of([(graph, cluster) for graph in graphs for cluster in clusters], GROUPS)}


def special_names(cluster: str) -> list[str]:
    """The names of the test problems of a specialist."""
    return list(special_places(cluster)[SPECIAL])


def place(out: Path, places: Places, training: Training) -> list[Failure]:
    """Let the policy of a training place what it has not placed yet; failures are tried again each time."""
    return _place(out, places, training.name, training.placers, workers=1)


def place_cheaply(out: Path, places: Places, workers: Workers) -> list[Failure]:
    """The same for the cheap placers."""
    return _place(out, places, CHEAP_NAME, dict.fromkeys(CHEAP, 1), workers)


def _place(out: Path, places: Places, who: str, allowed: Mapping[str, int], workers: Workers) -> list[Failure]:
    return [
        failure for name, problems in places.items()
        for failure in compared(journal_of(out, name, who), allowed, problems, about=f"{name}, {who}", workers=workers)
    ]  # fmt: skip


def journal_of(out: Path, name: str, who: str) -> Path:
    """The journal of one policy, or of the cheap placers, on a suite."""
    return out / f"{name}-{who}.jsonl"
