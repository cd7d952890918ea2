"""A training run of a policy of whole plans, in a folder: labels, imitation, REINFORCE; stopped, it is resumed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec

from graphs.foundation.engine import Killed, Workers
from graphs.foundation.errors import InputError, located
from graphs.foundation.files import locked, write_whole
from graphs.foundation.interrupts import Interrupts
from graphs.foundation.items import check_workers, results
from graphs.foundation.machine import library_versions, processor_name
from graphs.foundation.progress import progress_bar
from graphs.foundation.torch_threads import limit_torch_threads
from placers.learned.policy_file import save_policy
from placers.learned.policy_meta import Meta
from placers.learned.whole_plans.decision_features import FEATURES
from placers.learned.whole_plans.placer import WholePlansPlacer, build
from placers.learned.whole_plans.policy import KIND, WholePlansPolicy
from training.appended_file import AppendedFile
from training.checkpoint import TRAINER, read_state, write_state
from training.metrics_file import VALIDATION, appended_metrics
from training.run_folder import check_free, check_writable, held
from training.whole_plans.labels import LABELS, LabelSearch, read_labels
from training.whole_plans.settings import WholePlans
from training.whole_plans.trainer import WholePlansTrainer

SETTINGS = "settings.json"


def train_whole_plans(
    settings: WholePlans, *, out: Path, seed: int = 0, labels: Path | None = None, resume: bool = False,
    workers: Workers = 1,
) -> WholePlansPlacer:  # fmt: skip
    """Train a policy and return it as a placer; the folder `out` then holds the run.

    `labels` is a file of labels, which is added to, and which several seeds may share; without it, one in the folder.
    Several `workers`, or those of a dask scheduler at an address, search for labels: the same ones. With `resume` the
    run in `out` resumes, with the same result as if it had not stopped. Ctrl-C stops after the label or update under
    way, saves, and raises KeyboardInterrupt. Raises InputError for a folder or labels that do not fit.
    """
    limit_torch_threads()
    check_workers(workers)
    if seed < 0:
        raise InputError(f"the seed is {seed}; expected 0 or more")
    resumes = _check(settings, out, resume=resume)
    trainer = WholePlansTrainer(WholePlansPolicy.new(settings.network, seed), settings, seed)
    with held(out):
        write_whole(out / SETTINGS, msgspec.json.format(msgspec.json.encode(settings), indent=2))
        if resumes:
            with located(out / TRAINER):
                trainer.restore(*read_state(out))
        _label(trainer, labels or out / LABELS, workers)
        _learn(trainer, out)
        meta = Meta(
            placer=KIND, network=settings.network, seed=seed,
            simulations=trainer.simulations + settings.problems * settings.simulations, updates=trainer.updates,
            decoder_features=FEATURES, versions=library_versions() | {"cpu": processor_name()},
        )  # fmt: skip
        save_policy(out, trainer.weights, meta)
    return build(checkpoint=str(out))


def _check(settings: WholePlans, out: Path, *, resume: bool) -> bool:
    """Whether there is a state to resume from; raises InputError where the run cannot be begun, or resumed."""
    check_writable(out)
    if not resume:
        check_free(out)
        return False
    path = out / SETTINGS
    if not path.is_file():
        raise InputError(f"{out} holds no run to resume ({SETTINGS} is missing); start one without `resume`")
    if msgspec.json.decode(path.read_bytes(), type=WholePlans) != settings:
        raise InputError(f"{out} was started with other settings than these (see {path})")
    return (out / TRAINER).is_file()


def _label(trainer: WholePlansTrainer, path: Path, workers: Workers) -> None:
    """Search for the labels that a file does not have yet, and take all of them."""
    settings = trainer.settings
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path):
        known = read_labels(path, settings.simulations)
        missing = [number for number in range(settings.problems) if number not in known]
        searches = [LabelSearch(number, settings.simulations) for number in missing]
        bar = progress_bar("searching labels", unit="label", total=settings.problems, initial=len(known))
        with (
            Interrupts() as interrupts, bar, closing(AppendedFile(path)) as file,
            closing(results(LabelSearch.do, searches, workers)) as done,
        ):  # fmt: skip
            for search, label in done:
                if isinstance(label, Killed):
                    raise InputError(f"the label of problem {search.number}: {label.reason}; the same command resumes")
                known[search.number] = label
                file.write(msgspec.json.encode(label) + b"\n")
                bar.update()
                if interrupts.requested and len(known) < settings.problems:
                    raise KeyboardInterrupt(f"stopped; the labels so far are in {path}")
    trainer.learn_from(known[number] for number in range(settings.problems))


def _learn(trainer: WholePlansTrainer, out: Path) -> None:
    settings, every = trainer.settings, trainer.settings.every

    def imitate() -> str:
        likely = trainer.imitate()
        if trainer.imitated % every == 0 or trainer.imitated == settings.imitation:
            _validate(trainer, out)
        return f"log-probability {likely:.2f}"

    _repeat(trainer, out, "imitating what search finds", lambda: trainer.imitated, settings.imitation, imitate)
    _cut(out / "metrics.jsonl", trainer.updates)
    with appended_metrics(out) as metrics:

        def improve() -> str:
            line = trainer.update()
            metrics.write(line.update, vars(line))
            if trainer.updates % every == 0 or trainer.updates == settings.updates:
                _validate(trainer, out)
            return f"step over one device's {line.step_over_alone:.2f}, fitting {line.fitting:.0%}"

        _repeat(trainer, out, "training", lambda: trainer.updates, settings.updates, improve)


def _validate(trainer: WholePlansTrainer, out: Path) -> None:
    trainer.validate()
    lines = b"".join(msgspec.json.encode(msgspec.to_builtins(each)) + b"\n" for each in trainer.validated)
    write_whole(out / VALIDATION, lines)
    write_state(out, *trainer.state())


def _cut(path: Path, lines: int) -> None:
    """Cut the metrics of a run that is resumed back to the updates that its state holds."""
    if path.exists():
        write_whole(path, "".join(path.read_text().splitlines(keepends=True)[:lines]))


def _repeat(
    trainer: WholePlansTrainer, out: Path, what: str, done: Callable[[], int], goal: int, improve: Callable[[], str]
) -> None:  # fmt: skip
    """Improve until the goal is reached or the user interrupts, and save at the end."""
    with Interrupts() as interrupts, progress_bar(what, unit="update", total=goal, initial=done()) as bar:
        while done() < goal and not interrupts.requested:
            bar.set_postfix_str(improve(), refresh=False)
            bar.update()
    write_state(out, *trainer.state())
    if done() < goal:
        raise KeyboardInterrupt(f"stopped after update {done()} of {goal}; saved in {out}; resume it with --resume")
