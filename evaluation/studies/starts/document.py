"""The document of the study of starts: what every candidate finds and takes, the order, and the searches from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from evaluation.statistics import geometric_mean
from evaluation.studies.document import save_document
from evaluation.studies.frame import Against, Frame
from evaluation.studies.starts import order
from evaluation.studies.starts.measure import BUDGET, CLUSTERS, GRAPHS, SUITE, Measured
from evaluation.studies.starts.order import Order
from evaluation.studies.starts.searches import ALL, BUDGETS, Searched
from graphs.op_graph import Floats
from placers.search import starts
from placers.search.starts import STARTS


@dataclass(frozen=True)
class Candidate:
    """A placer over all problems that decide about the order."""

    placer: str
    seconds: float  # geometric mean, of the processor
    largest_seconds: float  # of all problems, those of the suite included
    cost: float  # in simulations
    ratio: float  # geometric mean over the best of all, where it fits
    fits: float  # share of the problems
    best: float  # share of the problems where no other is faster by more than 0.1%
    gain: float  # in addition to all starts


@dataclass(frozen=True)
class StartsFindings:
    """What is done of a study."""

    pieces: Sequence[Measured]
    searches: Sequence[Searched]

    @cached_property
    def order(self) -> Order:
        """What follows from the measurements."""
        return Order(self.pieces)

    @property
    def kinds(self) -> Counter[str]:
        """How many problems there are of each kind."""
        return Counter(piece.kind for piece in self.pieces)

    @property
    def is_current(self) -> bool:
        """Whether the starts of the source are those that follow."""
        return [start.spec for start in STARTS] == [start.placer for start in self.order.starts]

    @cached_property
    def candidates(self) -> list[Candidate]:
        """All of them, the cheapest first."""
        order = self.order
        chosen = [start.placer for start in order.starts]
        found = []
        for index, placer in enumerate(order.placers):
            ratios = order.ratios[order.deciding, index]
            found.append(
                Candidate(
                    placer, float(geometric_mean(order.seconds[order.deciding, index])),
                    float(order.seconds[:, index].max()), order.cost_of(placer),
                    float(geometric_mean(ratios[np.isfinite(ratios)])), float(np.isfinite(ratios).mean()),
                    float((ratios <= 1.001).mean()), order.gain(placer, chosen),
                )
            )  # fmt: skip
        return sorted(found, key=lambda candidate: candidate.cost)

    @cached_property
    def frame(self) -> Frame:
        """Of the searches; its placers are pairs of a budget and whether the starts were chosen."""
        problems = tuple(dict.fromkeys(search.problem for search in self.searches))
        seconds: dict[Hashable, dict[int, Floats]] = {}
        for search in self.searches:
            rows = seconds.setdefault((search.budget, search.chosen), {})
            row = rows.setdefault(search.seed, np.full(len(problems), np.nan))
            row[problems.index(search.problem)] = search.step_seconds if search.fits else np.inf
        return Frame(problems, seconds)

    def against(self, budget: int) -> Against:
        """Searches from the chosen starts against those from all, over seeds and problems."""
        return self.frame.against_of_each_seed((budget, True), (budget, False))

    def seconds(self, budget: int, *, chosen: bool, problem: str = "") -> tuple[float, float]:
        """Mean processor seconds of the starts and of the rest of a search, on all problems or one."""
        some = [
            (search.starts_seconds, search.search_seconds)
            for search in self.searches
            if (search.budget, search.chosen) == (budget, chosen) and problem in ("", search.problem)
        ]
        starts, rest = np.mean(some, axis=0)
        return float(starts), float(rest)

    def number_of_starts(self, budget: int, problem: str) -> int:
        """How many a search takes."""
        return next(s.starts for s in self.searches if s.chosen and (s.budget, s.problem) == (budget, problem))


def save(found: StartsFindings, folder: Path, command: str) -> Path:
    """Write `starts.md` into a folder."""
    placers = [*(start.placer for start in found.order.starts), None]
    return save_document(
        "starts", "starts.md", folder, {},
        command=command, found=found, starts=found.order.starts, why={start.spec: start.why for start in STARTS},
        estimates={placer or "one simulation": found.order.estimate(placer) for placer in placers},
        all_starts=ALL, budget=BUDGET, budgets=BUDGETS, suite=SUITE, graphs=GRAPHS, clusters=CLUSTERS,
        unfit=order.UNFIT, first=order.FIRST, least_gain=order.LEAST_GAIN, share=starts.TIME_SHARE,
        least_time=starts.LEAST_TIME,
    )  # fmt: skip
