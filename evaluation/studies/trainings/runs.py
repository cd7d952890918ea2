"""The trainings of the study: the released recipe with other seeds, and for one cluster alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from evaluation.studies.comparisons import trained
from evaluation.studies.problems import training_problems
from evaluation.studies.released.parts import BEST, FEW, GREEDY
from placers import default
from placers.learned.policy_file import META, load_meta
from training.recipe import Recipe, load_recipe

CLUSTERS = ("p100:devices=2", "p100:devices=4", "p100:devices=8", "cpu_gpu:gpus=2")  # that have a specialist
RUNS = "runs"
RELEASED_NAME = "released"


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
        return (self.folder / META).is_file() and load_meta(self.folder).updates == self.recipe.ppo.updates

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
    """A recipe without any variety but that of graphs and groups, with fewer updates in the same proportions."""
    problems = replace(
        recipe.problems, clusters=(cluster,), test_clusters=(cluster,), randomised=0, variants=0, forward=0.0,
        measured=0.0,
    )  # fmt: skip
    imitated = round(recipe.imitation.updates * updates / recipe.ppo.updates)
    return replace(
        recipe,
        problems=problems,
        ppo=replace(recipe.ppo, updates=updates),
        imitation=replace(recipe.imitation, updates=imitated),
    )
