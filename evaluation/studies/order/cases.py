"""The problems of the study, and its parts: what is done with each, as pieces that are kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from evaluation.studies.frame import family_of
from evaluation.studies.order.defaults import defaults
from evaluation.studies.order.rules import under_rules
from evaluation.studies.order.searches import searched
from evaluation.studies.pieces import PIECES, SavedJob
from graphs.suites import suite_specs

OF_RULES, OF_SEARCHES, OF_DEFAULT = "rules", "searches", "default"
PARTS = (OF_RULES, OF_SEARCHES, OF_DEFAULT)
ALL_SUITES = ("gdp12", "placeto", "heldout")
FAMILIES = ("curves",)  # of every family, for the rules alone: the families kept aside from training are in no other
BUDGETS = (1000, 20_000)
LONG, FEW = 5000, 2  # from so many simulations on, so many problems of each family have to do

Pairs = Sequence[tuple[str, str]]


class Size(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all pieces of a folder have in common."""

    groups: int  # op groups, but for the default of `place`
    seeds: int  # of searches


def jobs(part: str, out: Path, suites: Sequence[str], budget: int, size: Size, most: int | None) -> list[SavedJob]:
    """A job per problem of a part; `most` is how many problems of each family and suite to take."""
    folder = folder_of(part, out) / PIECES
    wanted = (*suites, *FAMILIES) if part == OF_RULES else suites
    pairs = dict.fromkeys(pair for suite in wanted for pair in few(suite_specs(suite), most))
    prefix = "" if part == OF_RULES else f"{budget}-"
    return [
        SavedJob(folder / f"{prefix}{_file_name(f'{graph}@{cluster}')}.json", _work(part, graph, cluster, budget, size))
        for graph, cluster in pairs
    ]


def folder_of(part: str, out: Path) -> Path:
    """Where the pieces of a part are kept."""
    return out / part


def few(pairs: Pairs, most: int | None) -> list[tuple[str, str]]:
    """At most so many problems of each family, from the first to the last of them; all without a limit."""
    families: dict[str, list[tuple[str, str]]] = {}
    for graph, cluster in pairs:
        families.setdefault(family_of(f"{graph}@{cluster}"), []).append((graph, cluster))
    taken = []
    for some in families.values():
        numbers = range(len(some)) if most is None else np.linspace(0, len(some) - 1, min(most, len(some))).astype(int)
        taken += [some[number] for number in numbers]
    return taken


def _work(part: str, graph: str, cluster: str, budget: int, size: Size) -> Callable[[], msgspec.Struct]:
    if part == OF_RULES:
        return partial(under_rules, graph, cluster, size.groups)
    if part == OF_SEARCHES:
        return partial(searched, graph, cluster, size.groups, budget, size.seeds)
    return partial(defaults, graph, cluster, budget, size.seeds)


def _file_name(problem: str) -> str:
    return re.sub(r"[^A-Za-z0-9_=@+.,-]+", "_", problem)
