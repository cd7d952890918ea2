"""What is measured: METIS, a policy, annealing from cheap plans and from the policy; and the reference."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path

import numpy as np

from evaluation.studies.frame import Frame
from evaluation.studies.grain.measure import OPS, Measured, Size, jobs, measured
from evaluation.studies.pieces import PIECES, SavedJob, load_pieces
from evaluation.studies.problems import captured
from graphs.op_graph import Floats
from graphs.problem import DEFAULT_ORDER
from graphs.suites import suite_specs

GRAINS = (64, 256, OPS)
FEW, SHORT = 16, 1000  # simulations: of samples, and of short searches


class Who(StrEnum):
    """Who places; each has a folder of that name."""

    METIS = "metis"
    POLICY = "policy"
    FROM_CHEAP = "annealing"
    FROM_POLICY = "annealing-policy"
    REFERENCE = "reference"  # annealing in 64 groups, first come, first served


def sizes(policy: str, suites: str, searching: int, seeds: int) -> Mapping[Who, Size]:
    """By folder, who places, and with how many simulations."""
    searches = (SHORT, searching)
    return {
        Who.METIS: Size(suites, "metis", (1,), seeds),
        Who.POLICY: Size(suites, policy, (1, FEW), seeds),
        Who.FROM_CHEAP: Size(suites, "annealing", searches, seeds),
        Who.FROM_POLICY: Size(suites, f"annealing:policy={policy}", searches, seeds),
        Who.REFERENCE: Size(suites, "annealing", (searching,), seeds),
    }


def all_jobs(out: Path, chosen: Mapping[Who, Size]) -> Iterator[SavedJob]:
    """A job per problem, placer and grain. Raises InputError for an unknown suite."""
    for who, size in chosen.items():
        if who != Who.REFERENCE:
            yield from jobs(out / who, size, GRAINS, [DEFAULT_ORDER])
            continue
        for number, pair in enumerate(suite_specs(size.suites)):
            yield SavedJob(out / who / PIECES / f"{number:03d}.json", partial(reference, *pair, size))


def reference(graph: str, cluster: str, size: Size) -> Measured:
    """Place in 64 groups, or in as many units as a smaller graph has."""
    grain = GRAINS[0] if captured(graph).num_units > GRAINS[0] else OPS
    return measured(graph, cluster, "fifo", grain, size)


def frame_of(out: Path, chosen: Mapping[Who, Size]) -> Frame:
    """Step times by who places, grain and simulations, where all jobs are done; the reference is one in 64 groups.

    A graph of fewer units than groups is placed op by op. Raises InputError for damaged pieces.
    """
    done = {who: {(each.problem, each.grain): each for each in load_pieces(out / who, Measured)} for who in chosen}
    problems = tuple(dict.fromkeys(problem for problem, _ in done[Who.METIS]))
    seconds: dict[Hashable, dict[int, Floats]] = {}
    for who, found in done.items():
        for column, problem in enumerate(problems):
            for grain in _grains(who):
                piece = found.get((problem, grain))
                for trial in (piece if piece and piece.trials else found[problem, OPS]).trials:
                    rows = seconds.setdefault((who, grain, trial.budget), {})
                    row = rows.setdefault(trial.seed, np.full(len(problems), np.nan))
                    row[column] = trial.step_seconds if trial.fits else np.inf
    return Frame(problems, seconds)


def _grains(who: Who) -> tuple[int, ...]:
    return GRAINS[:1] if who == Who.REFERENCE else GRAINS
