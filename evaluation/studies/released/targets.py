"""The targets of the released policy: what was asked of it before it was measured, and whether it does that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from evaluation.studies.frame import Against, Frame
from evaluation.studies.released.parts import (
    ANNEALING,
    BEST,
    BEST_CHEAP,
    CURVES,
    GREEDY,
    LONG_SEARCH,
    PROFILES,
    SEARCH,
    Entry,
    is_kept_aside,
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A ratio of step times that is not to be exceeded."""

    asked: str
    part: str
    entry: Entry
    rival: Entry
    most: float = 1.0
    may_equal: bool = False  # whether exactly the most will do
    trained: bool = False  # only on families that the policy was trained on

    @property
    def bound(self) -> str:
        """As "≤ 0.84"."""
        return f"{'≤' if self.may_equal else '<'} {self.most:.2f}"

    def measured(self, parts: Mapping[str, Frame]) -> Against | None:
        """The ratio, if anything of it is done."""
        if (part := parts.get(self.part)) is None:
            return None
        chosen = [problem for problem in part.problems if not (self.trained and is_kept_aside(problem))]
        against = part.against(self.entry, self.rival, chosen) if chosen else None
        return against if against and against.problems else None

    def verdict(self, against: Against | None) -> Literal["met", "met where it fits", "not met", "not measured"]:
        """Whether the measured geometric mean is within the target; plans that do not fit are in no mean."""
        if against is None:
            return "not measured"
        value = against.ratio.value
        if not (value < self.most or (self.may_equal and value == self.most)):
            return "not met"
        return "met where it fits" if against.unfit else "met"


_GREEDY, _BEST = Entry(GREEDY), Entry(BEST)
TARGETS = (
    Target("greedy, held-out graphs: 16% less time than the human expert", "heldout", _GREEDY, Entry("human_expert"),
           0.84, may_equal=True),
    Target("greedy, held-out graphs: 13% less time than HEFT", "heldout", _GREEDY, Entry("heft"), 0.87, may_equal=True),
    Target("greedy, held-out graphs: faster than the best cheap placer of each graph", "heldout", _GREEDY, BEST_CHEAP),
    Target("greedy, trained families: within 5% of annealing with 20,000", CURVES, _GREEDY, LONG_SEARCH, 1.05,
           may_equal=True, trained=True),
    Target("best of 16, trained families: within 2% of annealing with 20,000", CURVES, _BEST, LONG_SEARCH, 1.02,
           may_equal=True, trained=True),
    Target("greedy, families kept aside: faster than the best cheap placer of each graph", "newfamilies", _GREEDY,
           BEST_CHEAP),
    Target("best of 16, families kept aside: faster than the best cheap placer of each graph", "newfamilies", _BEST,
           BEST_CHEAP),
    Target("greedy, profiles: faster than the best cheap placer of each graph", PROFILES, _GREEDY, BEST_CHEAP),
    Target("best of 16, profiles: faster than the best cheap placer of each graph", PROFILES, _BEST, BEST_CHEAP),
    Target("policy and search, 1,000: faster than annealing with 1,000", CURVES, Entry(SEARCH, 1000),
           Entry(ANNEALING, 1000)),
    Target("policy and search, 1,000: within 1% of annealing with 20,000", CURVES, Entry(SEARCH, 1000), LONG_SEARCH,
           1.01, may_equal=True),
    Target("policy and search, 2,000: as fast as annealing with 20,000", CURVES, Entry(SEARCH, 2000), LONG_SEARCH,
           may_equal=True),
    Target("policy and search, 20,000: faster than annealing with 20,000", CURVES, Entry(SEARCH, 20_000), LONG_SEARCH),
)  # fmt: skip
