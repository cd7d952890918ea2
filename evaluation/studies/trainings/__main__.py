"""The study of trainings: how much of the released policy is luck of its seed, and what one cluster alone would give.

    python -m evaluation.studies.trainings --out runs/studies/trainings --seeds 3 --specialist-seeds 1 --workers 2

Ctrl-C stops it, and the same command resumes. The parts can be done by separate commands, one after another; the
document is written of all that the folder holds. It needs the released policy (`placers/released`), and trains its
recipe again and again: a day of a core and more.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import product
from pathlib import Path

from evaluation.record import Failure
from evaluation.studies.command import WriteOnly, command_of, names_in, report, run
from evaluation.studies.comparisons import check_policy
from evaluation.studies.pieces import keep_size, load_size, pieces_done
from evaluation.studies.trainings import runs
from evaluation.studies.trainings.document import load_findings, save
from evaluation.studies.trainings.runs import CLUSTERS, Places, Training, TrainingsSize
from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError
from training.recipe import load_recipe

RECIPE = "released"
SEEDS, SPECIALISTS = PARTS = ("seeds", "specialists")


def study(
    *,
    parts: str = ",".join(PARTS),
    seeds: int = 3,
    specialist_seeds: int = 1,
    specialist_updates: int = 2000,
    out: Path = Path("runs/studies/trainings"),
    data: Path | None = None,
    workers: Workers = 1,
    document: Path | None = None,
    write_only: WriteOnly = False,
) -> Path:
    """Train the released recipe with other seeds and for single clusters, and compare what its policies place.

    Args:
        parts: seeds, specialists, with a comma between them.
        seeds: how many seeds to train the recipe with, the released policy's among them.
        specialist_seeds: how many seeds to train a specialist of each cluster with.
        specialist_updates: how many updates each specialist has, of PPO.
        out: the folder that keeps what is done.
        data: the folder with the profiles of PipeDream, DAPPLE and "Efficient Algorithms for Device Placement"; without
            it, they are left out.
        workers: how many processes to share the work among.
        document: a folder for the document; without it, `out`.
        write_only: write the document from what is done, and do nothing else.

    """
    named = names_in(parts, "part of the study", PARTS)
    if not named or min(seeds, specialist_seeds, specialist_updates) < 1:
        raise InputError("a study needs at least one part, one seed of each, and one update")
    settings = TrainingsSize(load_recipe(RECIPE), specialist_updates)
    if write_only:
        settings = load_size(out, TrainingsSize)
    keep_size(out, settings)
    check_policy(out)
    if not write_only:
        report(_do(settings, out, data, named, seeds, specialist_seeds, workers))
    found = load_findings(out, settings, seeds, specialist_seeds)
    if found.is_empty:
        raise InputError(f"{out}: nothing is done yet of {parts}")
    amounts = {"specialist_seeds": specialist_seeds, "specialist_updates": settings.specialist_updates}
    return save(found, settings, out, document or out, command_of("trainings", seeds=seeds, **amounts))


def _do(
    settings: TrainingsSize, out: Path, data: Path | None, parts: Sequence[str], seeds: int, specialist_seeds: int,
    workers: Workers,
) -> list[Failure]:  # fmt: skip
    """Train, and place whenever a training is done; returns the failures to place."""
    works: list[tuple[Training, Places]] = []  # each training, and what its policy places
    failures: list[Failure] = []
    if SEEDS in parts:  # the cheap placers first place what the policies are going to place
        places = runs.seed_places(data)
        report(runs.place_cheaply(out, places, workers))
        works += [(runs.of_seed(settings, seed, out), places) for seed in range(seeds)]
    if SPECIALISTS in parts:  # all clusters once before any twice, and the released policy on all clusters
        works.append((runs.released(), runs.special_places(*CLUSTERS)))
        for seed, cluster in product(range(specialist_seeds), CLUSTERS):
            works.append((runs.specialist(settings, cluster, seed, out), runs.special_places(cluster)))
    placed_by = {training.name: places for training, places in works}
    with closing(pieces_done([training for training, _ in works], workers)) as trainings:
        for training in trainings:
            failures += runs.place(out, placed_by[training.name], training)
    return failures


if __name__ == "__main__":
    run(study, "trainings", __doc__)
