"""Train a learned placer over graph families, into a run folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import asdict
from tqdm import tqdm

from envs.gym.iterative import Rules
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.interrupts import Interrupts
from graphs.problem import Problem
from placers.learned.colocrl.placer import ColocRl
from placers.learned.colocrl.policy import new_colocrl
from placers.learned.gdp.placer import Gdp
from placers.learned.hdp.placer import Hdp
from placers.learned.hdp.policy import new_hdp
from placers.learned.placeto.placer import Placeto
from placers.learned.placeto.policy import PlacetoPolicy, new_placeto
from placers.learned.policy_file import Meta, new_policy
from placers.learned.sequential.decoder_features import FEATURES
from placers.learned.sequential.placer import Sequential
from placers.learned.sequential.policy import SequentialPolicy, new_sequential
from training.checkpoint import restore_trainer, save_trainer
from training.ppo import PpoTrainer
from training.problem_sets import check_problems, load_problems
from training.recipe import Recipe, load_recipe
from training.reinforce import ReinforceTrainer
from training.reinforce_run import restore_reinforce, save_reinforce
from training.rollouts import Arena
from training.run_folder import RunFolder, check_free, check_resumable, held, library_versions

CHECKPOINT_EVERY = 100  # updates
Learned = Gdp | Sequential | ColocRl | Hdp | Placeto
Trainer = PpoTrainer | ReinforceTrainer
NEW: dict[str, tuple[Callable[[str, int], Any], Callable[[Any, str], Learned]]] = {
    "gdp": (new_policy, Gdp),
    "sequential": (new_sequential, Sequential),
    "colocrl": (new_colocrl, ColocRl),
    "hdp": (new_hdp, Hdp),
    "placeto": (new_placeto, Placeto),
}  # how an untrained policy is made of a network's spec and a seed, and the placer that acts with it


def train(
    recipe: Recipe | str = "gdp",
    problems: Sequence[Problem] | None = None,
    *,
    out: Path,
    seed: int = 0,
    resume: bool = False,
    command: str = "",
) -> Learned:
    """Train a placer, Placeto by its REINFORCE and others by PPO, and return it; the folder `out` then holds the run.

    Without problems, those of the recipe: the training split of its families on its clusters. With `resume` the run
    in `out` goes on from its last checkpoint, to the same end as if it had not stopped. Ctrl-C stops after the
    current update, saves, and raises KeyboardInterrupt. Raises InputError for a recipe or folder that does not fit.
    """
    recipe = load_recipe(recipe) if isinstance(recipe, str) else recipe
    if recipe.placer not in NEW:
        raise InputError(f"placer {recipe.placer!r} cannot be trained; there are: {', '.join(NEW)}")
    if seed < 0:
        raise InputError(f"the seed is {seed}; expected 0 or more")
    if not resume:
        check_free(out)
    resumes = resume and check_resumable(out, recipe)
    new, placer = NEW[recipe.placer]
    policy = new(recipe.network, seed)
    if not problems:
        check_recipe(recipe)
    trainer = _trainer(recipe, policy, problems or load_problems(recipe.problems, seed=seed), seed)
    with held(out):
        if resumes:
            restore_reinforce(out, trainer) if isinstance(trainer, ReinforceTrainer) else restore_trainer(out, trainer)
            folder = RunFolder.reopen(out, trainer.updates)
        else:
            check_free(out)  # again: another process may have begun in the meantime
            folder = RunFolder.create(out, recipe, command)
            _save(folder, trainer)  # so that there is a state to resume from, however early the run is stopped
        _run(trainer, recipe, folder)
    return placer(policy, f"{recipe.placer}:checkpoint={out}")


def check_recipe(recipe: Recipe) -> None:
    """Raise InputError, before anything is captured, for what a recipe names and there is not."""
    check_problems(recipe.problems, "train")
    check_problems(recipe.problems, "test")
    by_name.check("training.ppo_rewards", recipe.ppo.reward)
    by_name.check("envs.rewards", recipe.rules.reward)


def _trainer(recipe: Recipe, policy: Any, problems: Sequence[Problem], seed: int) -> Trainer:
    """What improves a policy by the recipe's settings."""
    if not isinstance(policy, PlacetoPolicy):
        return PpoTrainer(policy, [Arena(problem) for problem in problems], recipe.ppo, seed, recipe.imitation)
    rules = Rules(order=policy.shape.order, **asdict(recipe.rules))
    return ReinforceTrainer(policy, problems, recipe.reinforce, rules=rules, seed=seed)


def _run(trainer: Trainer, recipe: Recipe, folder: RunFolder) -> None:
    """All updates that are left, imitation first; the policy is saved at the end, or when the run is stopped."""
    if isinstance(trainer, PpoTrainer):
        _imitate(trainer, folder)
    with folder.metrics() as metrics:

        def improve() -> str:
            line = trainer.update()
            metrics.write(line.update, line.to_record())
            return f"step/bound {line.step_over_bound:.2f}, fitting {line.fitting:.0%}"

        goal = trainer.settings.updates
        _go_on("training", lambda: trainer.updates, goal, improve, partial(_save, folder, trainer))
    meta = Meta(
        placer=recipe.placer,
        network=recipe.network,
        seed=trainer.seed,
        simulations=trainer.simulations,
        updates=trainer.updates,
        decoder_features=FEATURES if isinstance(trainer.policy, SequentialPolicy) else (),
        versions=library_versions(),
    )
    folder.save_policy(trainer.policy.state_dict(), meta)
    if trainer.updates < goal:
        raise KeyboardInterrupt(f"stopped after update {trainer.updates} of {goal}; saved in {folder.path}")


def _imitate(trainer: PpoTrainer, folder: RunFolder) -> None:
    """What comes before PPO, if the recipe asks for it."""
    goal = trainer.imitation.updates
    if trainer.imitated >= goal:
        return

    def imitate() -> str:
        return f"log-probability per unit {trainer.imitate():.2f}"

    save = partial(_save, folder, trainer)
    _go_on("imitating what search finds", lambda: trainer.imitated, goal, imitate, save)
    if trainer.imitated < goal:
        raise KeyboardInterrupt(
            f"stopped after update {trainer.imitated} of {goal} of imitation; saved in {folder.path}"
        )


def _go_on(what: str, done: Callable[[], int], goal: int, improve: Callable[[], str], save: Callable[[], None]) -> None:
    """Improve until the goal is reached or the user interrupts, and save now and then, and at the end."""
    bar = tqdm(total=goal, initial=done(), desc=what, unit="update", disable=None)
    with Interrupts() as interrupts, bar:
        while done() < goal and not interrupts.requested:
            bar.set_postfix_str(improve(), refresh=False)
            bar.update()
            if done() % CHECKPOINT_EVERY == 0:
                save()
    save()


def _save(folder: RunFolder, trainer: Trainer) -> None:
    """Write everything the trainer needs to go on."""
    if isinstance(trainer, ReinforceTrainer):
        save_reinforce(folder.path, trainer)
    else:
        save_trainer(folder.path, trainer)
