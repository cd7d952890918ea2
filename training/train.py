"""Train a learned placer over graph families, into a run folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.interrupts import Interrupts
from graphs.foundation.machine import library_versions, processor_name
from graphs.foundation.progress import progress_bar
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.lookup import learned_placers, trainer_of
from placers.learned.policy_meta import Meta
from training.checkpoint import restore_trainer, save_trainer
from training.loggers import Logger, check_access, check_loggers, flat, opened
from training.metrics_file import DEFAULT_LOGGERS, appended_metrics, write_validated
from training.ppo import PpoTrainer
from training.problem_sets import check_problems, load_problems, renewed_problems, validation_problems
from training.ranks import Ranks, is_restarted, joined
from training.recipe import Recipe, load_recipe
from training.reinforce import ReinforceTrainer
from training.resources import PLAIN, Resources
from training.run_folder import CONFIG, check_free, check_resumable, cut_metrics, finish_run, held, start_run
from training.selection import Selection
from training.trainer import Trainer

CHECKPOINT_EVERY = 100  # updates
TRAINERS: dict[str, type[Trainer]] = {"ppo": PpoTrainer, "reinforce": ReinforceTrainer}  # by what placers declare


def train(
    recipe: Recipe | str = "gdp",
    problems: Sequence[Problem] | None = None,
    *,
    out: Path,
    seed: int = 0,
    resume: bool = False,
    command: str = "",
    capture: Callable[[str], OpGraph] | None = None,
    loggers: Sequence[str] = DEFAULT_LOGGERS,
    resources: Resources = PLAIN,
) -> LearnedPlacer:
    """Train a placer, by the trainer that it declares, and return it; the folder `out` then holds the run.

    Without problems, those of the recipe: the training split of its families on its clusters, captured by `capture` as
    `load_problems` says, and random ones. With `resume` the run in `out` resumes from its last checkpoint, to the same
    end as if it had not stopped; processes of torchrun do so by themselves when one of them has died. Metrics go to
    `loggers`, too (`training.loggers`). What it is computed with is no part of a run, which may be resumed with other
    `resources`. Ctrl-C stops after the current update, saves, and raises KeyboardInterrupt.
    Raises InputError for a recipe or folder that does not fit.
    """
    check_loggers(loggers)
    recipe = load_recipe(recipe) if isinstance(recipe, str) else recipe
    kind = trainer_class(recipe.placer)
    if resources.workers != 1 and not kind.shares_work:
        raise InputError(f"placer {recipe.placer!r} learns in one process; leave out other workers")
    if seed < 0:
        raise InputError(f"the seed is {seed}; expected 0 or more")
    resume = resume or (is_restarted() and (out / CONFIG).is_file())
    if not resume:
        check_free(out)
    resumes = resume and check_resumable(out, recipe)
    check_access(loggers)
    resources.check()
    with joined() as ranks:
        ranks.wait()  # nobody writes before all have looked
        trainer, selection = _made(recipe, problems, seed, capture, ranks)
        resources.place_encoder(trainer.policy)
        with resources.engine() as trainer.engine, held(out) if ranks.is_first else nullcontext():
            if resumes:
                restore_trainer(out, trainer, selection)
            elif ranks.is_first:
                check_free(out)  # again: another process may have begun in the meantime
                start_run(out, recipe, command)
            if resumes and ranks.is_first:
                cut_metrics(out, trainer.updates)
            save_trainer(out, trainer, selection)  # to resume from, however early the run is stopped
            settings = flat(recipe.to_plain() | {"seed": seed})
            with opened(loggers if ranks.is_first else (), out, settings) as open_loggers:
                _run(trainer, selection, recipe, out, open_loggers)
        ranks.wait()
    placer: LearnedPlacer = by_name.module("placers", recipe.placer).build(checkpoint=str(out))
    return placer


def _made(
    recipe: Recipe,
    problems: Sequence[Problem] | None,
    seed: int,
    capture: Callable[[str], OpGraph] | None,
    ranks: Ranks,
) -> tuple[Trainer, Selection]:
    """A trainer of a new policy, and what is to select among its weights."""
    policy = by_name.module("placers", recipe.placer).new_policy(recipe.network, seed)
    renewed, selection = None, Selection(recipe.validation, validation_problems(recipe), ranks)
    if not problems:
        check_recipe(recipe)
        problems = load_problems(recipe.problems, seed=seed, capture=capture)
        renewed = renewed_problems(recipe.problems, seed)
    return trainer_class(recipe.placer).of(policy, problems, recipe.settings, seed, renewed, ranks), selection


def trainer_class(placer: str) -> type[Trainer]:
    """What trains a placer's policies. Raises InputError for a placer that cannot be trained."""
    declared = trainer_of(placer)
    if declared not in TRAINERS:
        raise InputError(f"placer {placer!r} cannot be trained; there are: {', '.join(learned_placers())}")
    return TRAINERS[declared]


def check_recipe(recipe: Recipe) -> None:
    """Raise InputError, before anything is captured, for what a recipe names and there is not."""
    check_problems(recipe.problems, "train")
    check_problems(recipe.problems, "test")
    by_name.check("training.ppo_rewards", recipe.ppo.reward)
    by_name.check("envs.rewards", recipe.rules.reward)


def _run(trainer: Trainer, selection: Selection, recipe: Recipe, out: Path, loggers: Sequence[Logger]) -> None:
    """All updates that are left, those of imitation first; saves the policy at the end, or when the run is stopped."""
    save = partial(save_trainer, out, trainer, selection)
    if trainer.imitated < (goal := trainer.imitation_goal):
        _repeat(
            "imitating what search finds", lambda: trainer.imitated, goal,
            lambda: f"log-probability per unit {trainer.imitate():.2f}", save, trainer.ranks,
        )  # fmt: skip
        if (done := trainer.imitated) < goal:
            raise KeyboardInterrupt(f"stopped after update {done} of {goal} of imitation; saved in {out}")
    first = trainer.ranks.is_first
    with appended_metrics(out, loggers) if first else nullcontext() as metrics:

        def improve() -> str:
            line = trainer.update()
            if metrics is not None:
                metrics.write(line.update, vars(line))
            if selection.follow(trainer.policy, line.update, is_last=line.update == trainer.goal) and first:
                write_validated(out, selection.validated)
            return f"step/bound {line.step_over_bound:.2f}, fitting {line.fitting:.0%}"

        _repeat("training", lambda: trainer.updates, trainer.goal, improve, save, trainer.ranks)
    meta = Meta(
        placer=recipe.placer,
        network=recipe.network,
        seed=trainer.seed,
        simulations=trainer.simulations,
        updates=trainer.updates,
        decoder_features=trainer.policy.decoder_features,
        order_features=trainer.policy.order_features,
        versions=library_versions() | {"cpu": processor_name()},
    )
    if first:
        finish_run(out, recipe, meta, selection.weights(trainer.policy))
    if trainer.updates < trainer.goal:
        raise KeyboardInterrupt(f"stopped after update {trainer.updates} of {trainer.goal}; saved in {out}")


def _repeat(
    what: str, done: Callable[[], int], goal: int, improve: Callable[[], str], save: Callable[[], None], ranks: Ranks
) -> None:
    """Improve until the goal is reached or the user interrupts any rank, and save now and then, and at the end."""
    bar = progress_bar(what, unit="update", total=goal, initial=done())
    with Interrupts() as interrupts, bar:
        while done() < goal and not ranks.any(interrupts.requested):
            bar.set_postfix_str(improve(), refresh=False)
            bar.update()
            if done() % CHECKPOINT_EVERY == 0:
                save()
    save()
