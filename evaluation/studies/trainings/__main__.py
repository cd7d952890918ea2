"""The study of trainings: how much of the released policy is luck of its seed, and what one cluster alone would give.

    python -m evaluation.studies.trainings --out runs/studies/trainings --seeds 3 --specialist-seeds 1 --workers 2

Ctrl-C stops it, and the same command resumes. The parts can be done by separate commands, one after another; the
document is written of all that the folder holds. It needs the released policy (`placers/released`), and trains its
recipe again and again: a day of a core and more.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import cyclopts

from evaluation.record import Failure
from evaluation.studies.command import names_in, report, run
from evaluation.studies.comparisons import check_policy
from evaluation.studies.pieces import keep_size, load_size, pieces_done
from evaluation.studies.trainings.document import save
from evaluation.studies.trainings.results import (
    Places,
    load_findings,
    place,
    place_cheaply,
    seed_places,
    special_places,
)  # fmt: skip
from evaluation.studies.trainings.runs import CLUSTERS, Training, TrainingsSize, of_seed, released, specialist
from graphs.foundation.errors import InputError
from training.recipe import load_recipe

RECIPE = "released"
SEEDS, SPECIALISTS = PARTS = ("seeds", "specialists")
Works = Sequence[tuple[Training, Places]]  # each training, and what its policy places


def study(
    *,
    parts: str = ",".join(PARTS),
    seeds: int = 3,
    specialist_seeds: int = 1,
    specialist_updates: int = 2000,
    out: Path = Path("runs/studies/trainings"),
    data: Path | None = None,
    workers: int = 1,
    document: Path | None = None,
    write_only: Annotated[bool, cyclopts.Parameter(negative="")] = False,
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
        works: list[tuple[Training, Places]] = []
        if SEEDS in named:
            works += _seeds(settings, out, data, seeds, workers)
        if SPECIALISTS in named:
            works += _specialists(settings, out, specialist_seeds)
        report(_done(works, out, workers))
    found = load_findings(out, settings, seeds, specialist_seeds)
    if found.is_empty:
        raise InputError(f"{out}: nothing is done yet of {parts}")
    command = ["python", "-m", "evaluation.studies.trainings", "--seeds", str(seeds)]
    command += ["--specialist-seeds", str(specialist_seeds), "--specialist-updates", str(settings.specialist_updates)]
    return save(found, settings, out, document or out, shlex.join(command))


def _seeds(settings: TrainingsSize, out: Path, data: Path | None, seeds: int, workers: int) -> Works:
    """The recipe's trainings, once the cheap placers have placed what their policies are going to place."""
    places = seed_places(data)
    report(place_cheaply(out, places, workers))
    return [(of_seed(settings, seed, out), places) for seed in range(seeds)]


def _specialists(settings: TrainingsSize, out: Path, seeds: int) -> Works:
    """The specialists' trainings, all clusters once before any twice, and the released policy on all clusters."""
    wanted = [(seed, cluster) for seed in range(seeds) for cluster in CLUSTERS]
    own = [(specialist(settings, cluster, seed, out), special_places(cluster)) for seed, cluster in wanted]
    return [(released(), special_places(*CLUSTERS)), *own]


def _done(works: Works, out: Path, workers: int) -> list[Failure]:
    """Train, and place whenever a training is done; what failed of the latter."""
    places = {training.name: places for training, places in works}
    failures: list[Failure] = []
    with closing(pieces_done([training for training, _ in works], workers)) as trainings:
        for training in trainings:
            failures += place(out, places[training.name], training)
    return failures


if __name__ == "__main__":
    run(study, "trainings", __doc__)
