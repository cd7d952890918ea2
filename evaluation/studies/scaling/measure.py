"""What is measured: updates by their parts in one process, and whole updates by one and two workers, and ranks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
from msgspec.structs import replace

from evaluation.studies.pieces import PIECES, SavedJob
from evaluation.studies.scaling.clock import LEARN, Clock, ClockedEngine, ClockedProblems, listen
from graphs.foundation.engine import Engine
from graphs.foundation.errors import InputError
from graphs.foundation.items import opened
from placers.learned.sequential.policy import SequentialPolicy
from training.ppo import PpoTrainer
from training.ranks import ALONE, Ranks
from training.recipe import Recipe, load_recipe
from training.resources import SHARED, Sending
from training.world.renewed import RenewedProblems

RECIPE = "released"
IMITATION, PPO = PHASES = ("imitation", "ppo")
SEED, WARMING = 0, 1  # of what is measured, and of what compiles before that
COUNTS = (1, 2)  # workers and ranks that are measured
EMPTY = 400  # items by which the engine's own cost is measured
ALL_REDUCES = 100
RANKS_MODULE = "evaluation.studies.scaling.ranks"


class Size(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The size of a study."""

    updates: int
    small: bool = False  # problems and searches for a try


class Update(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Processor seconds of one update in one process."""

    parts: dict[str, float]
    items: dict[str, list[float]]  # of these, of each item that is worth sending to a worker


class Split(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Updates of one phase by their parts."""

    phase: str
    problems: int  # of an update
    epochs: int  # steps of Adam in it, each after an all-reduce
    weight_bytes: int
    updates: tuple[Update, ...]


class Timed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Seconds by the wall clock of the same updates, shared by workers or ranks."""

    phase: str
    by: str  # "workers" or "ranks"
    count: int
    seconds: float  # of an update, the mean
    communicate: float = 0.0  # of these
    all_reduce: float = 0.0  # of the gradients of all weights, without waiting
    item: float = 0.0  # that the engine needs for an item that is no work


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a job measures."""

    split: Split | None = None
    timed: Timed | None = None


def jobs(out: Path, size: Size) -> list[SavedJob]:
    """All measurements of both phases."""
    found = []
    for phase in PHASES:
        works: dict[str, Callable[[], msgspec.Struct]] = {"split": partial(split, phase, size)}
        for count in COUNTS:
            works[f"workers-{count}"] = partial(by_workers, phase, size, count)
            works[f"ranks-{count}"] = partial(by_ranks, phase, size, count)
        found += [SavedJob(out / PIECES / f"{phase}-{name}.json", work) for name, work in works.items()]
    return found


def recipe_of(phase: str, size: Size) -> Recipe:
    """The recipe that comes with placelab, on its random problems alone; by PPO without labels, or by these alone."""
    recipe = load_recipe(RECIPE, ["problems.families=[]", "problems.mixed=0"])
    world, imitation, ppo = recipe.problems.world, recipe.imitation, replace(recipe.ppo, shards=COUNTS[-1])
    if size.small:
        world, imitation = replace(world, problems=6, units=(8, 12), devices=(2, 3)), replace(imitation, simulations=20)
        ppo = replace(ppo, problems_per_update=2, samples=4)
    if phase == PPO:
        imitation = type(imitation)()
    return replace(recipe, problems=replace(recipe.problems, world=world), imitation=imitation, ppo=ppo)


def trainer_of(
    phase: str, size: Size, seed: int, *, ranks: Ranks = ALONE, shards: int = 1, clock: Clock | None = None
) -> PpoTrainer:  # type: ignore[type-arg]
    """A trainer of a new policy; with a clock, it is listened to."""
    recipe = recipe_of(phase, size)
    policy = SequentialPolicy.new(recipe.network, seed)
    chosen = recipe.problems
    asked = (chosen.world, seed, chosen.optimizer, chosen.order)
    problems = RenewedProblems(*asked) if clock is None else ClockedProblems(*asked, clock=clock)
    if clock is not None:
        listen(clock, policy)
    ppo = replace(recipe.ppo, shards=shards)
    return PpoTrainer(policy, [], ppo, seed, recipe.imitation, problems, ranks)


def once(trainer: PpoTrainer, phase: str) -> None:  # type: ignore[type-arg]
    """One update."""
    trainer.imitate() if phase == IMITATION else trainer.update()


def split(phase: str, size: Size) -> Measured:
    """Processor seconds of updates by their parts, all in this process, by one thread."""
    clock = Clock(time.process_time)
    once(trainer_of(phase, size, WARMING), phase)
    trainer = trainer_of(phase, size, SEED, clock=clock)
    trainer.engine = ClockedEngine(clock)
    updates = []
    for _ in range(size.updates):
        clock.start()
        with clock.of(LEARN):  # whatever is nothing else
            once(trainer, phase)
        updates.append(Update(dict(clock.seconds), dict(clock.items)))
    weights = sum(weight.numel() * weight.element_size() for weight in trainer.policy.parameters())
    epochs = 1 if phase == IMITATION else trainer.settings.epochs
    return Measured(Split(phase, trainer.settings.problems_per_update, epochs, weights, tuple(updates)))


def by_workers(phase: str, size: Size, count: int) -> Measured:
    """Updates whose simulations and searches are done by some workers: one is this process."""
    with opened(count, SHARED) as own:
        engine = own if count == 1 else Sending(own)
        warm = trainer_of(phase, size, WARMING)
        warm.engine = engine
        for _ in range(2):
            once(warm, phase)
        trainer = trainer_of(phase, size, SEED)
        trainer.engine = engine
        seconds = wall_seconds(trainer, phase, size.updates)
        item = _item_seconds(own)
    return Measured(timed=Timed(phase=phase, by="workers", count=count, seconds=seconds, item=item))


def wall_seconds(trainer: PpoTrainer, phase: str, updates: int) -> float:  # type: ignore[type-arg]
    """Mean seconds of an update by the wall clock."""
    begin = time.perf_counter()
    for _ in range(updates):
        once(trainer, phase)
    return (time.perf_counter() - begin) / updates


def _item_seconds(engine: Engine) -> float:
    """Of an item that brings what samples of a problem are, and is no work."""
    placements = [np.zeros((16, 128), np.int64) for _ in range(EMPTY)]
    begin = time.perf_counter()
    list(engine.results(len, placements))
    return (time.perf_counter() - begin) / EMPTY


def by_ranks(phase: str, size: Size, count: int) -> Measured:
    """Updates of some ranks; the problems are in as many shards for one rank as for several."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "timed.json"
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"] if count > 1 else []
        asked = [phase, str(size.updates), str(int(size.small)), str(file)]
        done = subprocess.run(
            [sys.executable, *torchrun, "-m", RANKS_MODULE, *asked], env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if not file.exists():  # gloo may abort a process that ends, when all has been measured
            raise InputError(f"{count} ranks ended with an error: {done.stderr.strip()[-1000:]}")
        return Measured(timed=msgspec.json.decode(file.read_bytes(), type=Timed))
