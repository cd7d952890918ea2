"""What the policies of the study of trainings place, and the journals that keep it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from evaluation.journal import records
from evaluation.record import Failure, Record
from evaluation.studies.captures import Problems, problems_of
from evaluation.studies.journals import do_what_is_left, suite_problems
from evaluation.studies.released_parts import CHEAP, GROUPS, PROFILES, profile_problems
from evaluation.studies.trainings_runs import Training
from graphs.suites import heldout

SUITES = ("heldout", "newfamilies", "clusters", PROFILES)  # that every seed places; suites, but for the profiles
SPECIAL = "specialists"  # held-out graphs on the specialists' clusters
RIVALS = "cheap"  # whose journals are those of the cheap placers

Places = Mapping[str, Problems]  # by suite, or SPECIAL


def seed_places(data: Path) -> Places:
    """What is placed with every seed; without profiles if there are none in the folder."""
    places = {name: profile_problems(data) if name == PROFILES else suite_problems(name, GROUPS) for name in SUITES}
    return {name: problems for name, problems in places.items() if problems}


def special_places(*clusters: str) -> Places:
    """The held-out graphs on some clusters."""
    graphs = dict.fromkeys(graph for graph, _ in heldout())
    return {SPECIAL: problems_of([(graph, cluster) for graph in graphs for cluster in clusters], GROUPS)}


def place(out: Path, places: Places, training: Training) -> list[Failure]:
    """Let the policy of a training place what it has not placed yet; who failed is tried again each time."""
    return _place(out, places, training.name, training.placers, workers=1)


def place_cheaply(out: Path, places: Places, workers: int) -> list[Failure]:
    """The same of the cheap placers."""
    return _place(out, places, RIVALS, dict.fromkeys(CHEAP, 1), workers)


def records_of(out: Path, name: str, who: str) -> list[Record]:
    """What is placed of a suite, by a training's policy or the cheap placers. Raises InputError if damaged."""
    return records(_journal(out, name, who))


def special_names(cluster: str) -> list[str]:
    """The problems that a specialist is judged by."""
    return list(special_places(cluster)[SPECIAL])


def _place(out: Path, places: Places, who: str, allowed: Mapping[str, int], workers: int) -> list[Failure]:
    failures: list[Failure] = []
    for name, problems in places.items():
        about = f"{name}, {who}"
        failures += do_what_is_left(_journal(out, name, who), allowed, problems, about=about, workers=workers)
    return failures


def _journal(out: Path, name: str, who: str) -> Path:
    return out / f"{name}-{who}.jsonl"
