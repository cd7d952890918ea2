"""Train a learned placer over graph families, into a run folder."""

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from graphs.files.load import load_graph
from graphs.foundation import by_name
from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError
from graphs.foundation.interrupts import Interrupts
from graphs.foundation.machine import library_versions, processor_name
from graphs.foundation.progress import progress_bar
from graphs.foundation.user_code import user_code
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.learned.learned_placer import PolicyPlacer
from placers.learned.policy_meta import Meta
from training.learning.ranks import Ranks, is_restarted, joined
from training.learning.trainer import Trainer, record_of
from training.loggers import DEFAULT_LOGGERS, Logger, check_access, check_loggers, flat
from training.recipe import Recipe, Validation
from training.runs import order_stage
from training.runs.problem_sets import LearnedProblems, training_problems, validation_problems
from training.runs.resources import PLAIN, Resources
from training.runs.run_folder import RunFolder
from training.runs.selection import Selection, Weights
from training.runs.trainers import settings_of, trainer_and_module

_log = logging.getLogger("placelab")

CHECKPOINT_EVERY = 100  # updates


def train(
    recipe: Recipe,
    problems: Sequence[Problem] = (),
    *,
    out: Path,
    seed: int = 0,
    resume: bool = False,
    command: str = "",
    capture: Callable[..., OpGraph] = load_graph,
    loggers: Sequence[str] = DEFAULT_LOGGERS,
    resources: Resources = PLAIN,
) -> PolicyPlacer[Any]:
    """Train a placer, by the trainer that it declares, and return it; the folder `out` then holds the run.

    Without problems they are those of the recipe (`training_problems`), whose graphs `capture` makes of their specs.
    With `resume` the run in `out` resumes from its last checkpoint, to the same end as if it had not stopped; processes
    of torchrun do so by themselves when one of them has died. It may be resumed with other `resources`. Metrics go to
    `loggers`, too (`training.loggers`). Ctrl-C stops after the current update, saves, and raises KeyboardInterrupt.
    Raises InputError for a recipe or folder that does not fit.
    """
    check_loggers(loggers)
    kind, extension = trainer_and_module(recipe.placer)
    settings = settings_of(recipe, kind)
    mine = by_name.own(recipe.placer)
    _check_workers(recipe.placer, resources.workers, can_help=kind.shares_work and mine is None)
    if seed < 0:
        raise InputError(f"the seed is {seed}; expected 0 or more")
    folder = RunFolder(out)
    resume = resume or (is_restarted() and folder.is_begun)
    if not resume:
        folder.check_free()
    resumes = resume and folder.check_resumable(recipe)
    check_access(loggers)
    resources.check()
    with joined() as ranks, user_code(mine.file) if mine else nullcontext():
        ranks.wait()  # nobody writes before all have looked
        folder = RunFolder(out, ranks)
        policy = extension.new_policy(recipe.network, seed)
        if recipe.order.updates:
            order_stage.learn("devices", policy, recipe)
        capture = partial(capture, with_law=True) if kind.divides_batch else capture
        given = (problems, None) if problems else training_problems(recipe, seed, capture)
        unseen = validation_problems(recipe, capture)
        trainer = kind.of(policy, given[0], settings, seed, given[1], ranks)
        selection = Selection(recipe.validation, unseen, ranks, chooses=recipe.chooses_weights)
        resources.place_encoder(trainer.policy)
        with resources.engine() as trainer.engine, folder.held():
            if resumes:
                folder.restore(trainer, selection)
            else:
                folder.start(recipe, command)
            folder.save(trainer, selection)  # to resume from, however early the run is stopped
            with folder.metrics(loggers, flat(recipe.to_plain() | {"seed": seed})) as metrics:
                _run(trainer, selection, folder, metrics)
            _finish(recipe, [trainer], selection.weights(trainer.policy), folder)
            if recipe.order.updates:
                _learn_order(recipe, trainer, selection, given, folder)
        ranks.wait()
    placer: PolicyPlacer[Any] = extension.build(checkpoint=str(out))
    return placer


def _check_workers(placer: str, workers: Workers, *, can_help: bool) -> None:
    """Raise InputError for workers that cannot help: they could not import the classes of a user's file."""
    if workers != 1 and not can_help:
        raise InputError(f"placer {placer!r} learns in one process; leave out other workers")


def _run(
    trainer: Trainer, selection: Selection, folder: RunFolder, metrics: Sequence[Logger], what: str = "training"
) -> None:
    """All updates that are left, those of imitation first; the state is saved at the end, or when it is stopped."""
    save = partial(folder.save, trainer, selection)
    if trainer.updates >= trainer.goal and folder.ranks.is_first:
        _log.warning("%s: %s is finished already, after %d updates", folder.path, what, trainer.updates)
    if trainer.imitated < (goal := trainer.imitation_goal):
        _repeat(
            "imitating what search finds", lambda: trainer.imitated, goal,
            lambda: f"log-probability {trainer.imitate():.2f}", save, trainer.ranks,
        )  # fmt: skip
        if (done := trainer.imitated) < goal:
            raise KeyboardInterrupt(f"stopped after update {done} of {goal} of imitation; saved in {folder.path}")

    def improve() -> str:
        began = perf_counter()
        line = trainer.update()
        record = record_of(line, perf_counter() - began)
        if selection.follow(trainer.policy, line.update, is_last=line.update == trainer.goal):
            folder.write_validated(selection)
            record |= selection.validated[-1].record
        for each in metrics:
            each.write(line.update, record)
        return f"steps {line.step_over_bound:.2f} times their lower bounds, {line.fitting:.0%} of plans fit"

    _repeat(what, lambda: trainer.updates, trainer.goal, improve, save, trainer.ranks)


def _learn_order(
    recipe: Recipe, placing: Trainer, selection: Selection, given: LearnedProblems, folder: RunFolder
) -> None:
    """The last stage of a run, from where it was stopped."""
    trainer = order_stage.order_trainer(recipe, placing, selection.weights(placing.policy), *given)
    stage = folder.order_stage
    stage.restore(trainer)
    with stage.metrics((), {}) as metrics:
        _run(trainer, Selection(Validation(), ()), stage, metrics, "learning to order")
    _finish(recipe, [placing, trainer], trainer.policy.state_dict(), folder)


def _finish(recipe: Recipe, stages: Sequence[Trainer], weights: Weights, folder: RunFolder) -> None:
    """Save the policy after some stages. Raises KeyboardInterrupt if the last of them was stopped."""
    placing, *ordering = stages
    is_own = by_name.own(recipe.placer) is not None
    meta = Meta(
        placer=placing.policy.kind,
        file=recipe.placer if is_own else "",
        file_sha256=folder.file_sha256("placer"),
        network_sha256=folder.file_sha256("network"),
        network=recipe.network,
        seed=placing.seed,
        simulations=sum(stage.simulations for stage in stages),
        updates=placing.updates,
        order_updates=sum(stage.updates for stage in ordering),
        decoder_features=placing.policy.decoder_features,
        order_features=placing.policy.order_features,
        versions=library_versions() | {"cpu": processor_name()},
    )
    folder.finish(recipe, meta, weights)
    last = stages[-1]
    if last.updates < last.goal:
        raise KeyboardInterrupt(f"stopped after update {last.updates} of {last.goal}; saved in {folder.path}")


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
