"""What searches of the order gain, and the default of `place` against the earlier one; and the targets."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from evaluation.statistics import Estimate, estimate
from evaluation.studies.frame import EQUAL_TIMES, Against, Frame, family_of
from evaluation.studies.order.defaults import EARLIER, NOW, Defaults, Placed
from evaluation.studies.order.searches import ALONE, JOINT, Searched
from graphs.op_graph import Floats
from graphs.suites import suite_specs

BEST_RULE = "earlier, best fixed rule"  # the same plans, each under the rule that suits it best


class Target(NamedTuple):
    """What was asked for, before anything was measured."""

    asked: str
    bound: float  # of a ratio
    measured: Against

    @property
    def verdict(self) -> str:
        """Whether it is met."""
        if not self.measured.problems:
            return "not measured"
        return "met" if self.measured.ratio.value <= self.bound else "not met"


class By(NamedTuple):
    """Plans by what made them and its simulations."""

    what: str
    budget: int


@dataclass(frozen=True)
class Fragile:
    """Plans under noise, and on links that do not queue, over their steps without."""

    median: Estimate
    worst: Estimate
    free: Estimate
    worst_of_all: float
    freest: float


@dataclass(frozen=True)
class SearchFindings:
    """Searches with and without the order."""

    pieces: Sequence[Searched]

    @property
    def budgets(self) -> list[int]:
        """Those that searches have."""
        return sorted({piece.budget for piece in self.pieces})

    @cached_property
    def frame(self) -> Frame:
        """Seconds of a step by `By`."""
        return _frame(
            (By(search.what, piece.budget), search.seed, piece.problem, search.seconds if search.fits else np.inf)
            for piece in self.pieces
            for search in piece.found
        )

    def against(self, own: str, rival: str, budget: int, problems: Collection[str] | None = None) -> Against:
        """One kind of search against another at equal simulations."""
        return self.frame.against(By(own, budget), By(rival, budget), problems)

    @property
    def families(self) -> dict[str, list[str]]:
        """The problems of each family."""
        return self.frame.apart(family_of)

    def lost_families(self, budget: int) -> list[tuple[str, float]]:
        """Families with a geometric mean above that of the placement alone, the worst first."""
        return _slower({name: self.against(JOINT, ALONE, budget, some) for name, some in self.families.items()})

    def losses(self, budget: int) -> list[tuple[str, float]]:
        """Problems on which a search of both takes longer than that of the placement alone, by more than 0.1%."""
        return _lost(self.frame, By(JOINT, budget), By(ALONE, budget))


@dataclass(frozen=True)
class DefaultFindings:
    """Both defaults of `place`."""

    pieces: Sequence[Defaults]

    @property
    def budgets(self) -> list[int]:
        """Those that are done."""
        return sorted({piece.budget for piece in self.pieces})

    @cached_property
    def frame(self) -> Frame:
        """Seconds of a step by `By`."""
        found = []
        for piece in self.pieces:
            for placed in piece.found:
                step = placed.seconds if placed.fits else np.inf
                found.append((By(placed.what, piece.budget), placed.seed, piece.problem, step))
                if placed.what == EARLIER:
                    least = min(placed.by_rule.values(), default=np.inf)
                    found.append((By(BEST_RULE, piece.budget), placed.seed, piece.problem, least))
        return _frame(found)

    @cached_property
    def cpu(self) -> Frame:
        """Seconds of the processor by `By`."""
        return _frame(
            (By(placed.what, piece.budget), placed.seed, piece.problem, placed.cpu_seconds)
            for piece in self.pieces
            for placed in piece.found
        )

    @property
    def families(self) -> dict[str, list[str]]:
        """The problems of each family."""
        return self.frame.apart(family_of)

    def suites(self, names: Sequence[str]) -> dict[str, list[str]]:
        """The problems of each suite that are done, and all of them."""
        found = {
            name: [problem for problem in self.frame.problems if problem in of_suite]
            for name in names
            if (of_suite := {f"{graph}@{cluster}" for graph, cluster in suite_specs(name)})
        }
        return {name: problems for name, problems in found.items() if problems} | {"all": list(self.frame.problems)}

    def over(self, rival: str, budget: int, problems: Collection[str] | None = None) -> Against:
        """The default of now against EARLIER or BEST_RULE."""
        return self.frame.against(By(NOW, budget), By(rival, budget), problems)

    def cpu_over(self, budget: int, problems: Collection[str] | None = None) -> Against:
        """Seconds of the processor of now against the earlier default's."""
        return self.cpu.against(By(NOW, budget), By(EARLIER, budget), problems)

    def mean_cpu(self, what: str, budget: int, problems: Collection[str]) -> float:
        """Mean seconds of the processor."""
        return float(np.nanmean(self.cpu.table(By(what, budget))[:, self.cpu.columns(problems)]))

    def robust(self, what: str, budget: int) -> Fragile:
        """Over all plans that fit."""
        some = [placed for _, placed in self._placed(what, budget) if placed.fits]
        step = np.array([placed.seconds for placed in some])
        median, worst, free = (
            np.array([getattr(placed, name) for placed in some]) / step for name in ("median", "worst", "free")
        )
        return Fragile(
            estimate([median]), estimate([worst]), estimate([free]), float(worst.max(initial=0.0)),
            float(free.max(initial=0.0)),
        )  # fmt: skip

    def units(self, what: str, budget: int) -> str:
        """How many units its problems have: the least, and the most."""
        some = [placed.units for _, placed in self._placed(what, budget)]
        return f"{min(some):,} to {max(some):,}" if some else "-"

    def lost_families(self, rival: str, budget: int) -> list[tuple[str, float]]:
        """Families with a geometric mean above the rival's, the worst first."""
        return _slower({name: self.over(rival, budget, some) for name, some in self.families.items()})

    def lost_problems(self, rival: str, budget: int) -> list[tuple[str, float]]:
        """Problems on which the default of now takes longer by more than 0.1%, the worst first."""
        return _lost(self.frame, By(NOW, budget), By(rival, budget))

    def _placed(self, what: str, budget: int) -> list[tuple[str, Placed]]:
        return [
            (piece.problem, placed)
            for piece in self.pieces if piece.budget == budget
            for placed in piece.found if placed.what == what
        ]  # fmt: skip


STEP_TARGETS = {1000: (0.85, 0.93), 20_000: (0.8, 0.9)}  # over the earlier default, and over BEST_RULE
ORDER_TARGET = 0.96


def targets(searches: SearchFindings, defaults: DefaultFindings) -> list[Target]:
    """All of them; they were set before anything was measured."""
    found = []
    for budget, (earlier, best_rule) in STEP_TARGETS.items():
        of = f"{budget:,} simulations: "
        found += [
            Target(f"{of}default of `place` over the earlier default", earlier, defaults.over(EARLIER, budget)),
            Target(f"{of}... over its plans under their best fixed rule", best_rule, defaults.over(BEST_RULE, budget)),
            Target(f"{of}... seconds of the processor over the earlier default's", 1.0, defaults.cpu_over(budget)),
            Target(f"{of}annealing of {JOINT} over {ALONE}", ORDER_TARGET, searches.against(JOINT, ALONE, budget)),
        ]
    return found


def _slower(found: Mapping[str, Against]) -> list[tuple[str, float]]:
    """What has a geometric mean above 1, the worst first."""
    slower = [(name, each.ratio.value) for name, each in found.items() if each.ratio.value > 1 + EQUAL_TIMES]
    return sorted(slower, key=lambda each: -each[1])


def _lost(frame: Frame, own: By, rival: By) -> list[tuple[str, float]]:
    """Problems on which one is slower than another by more than 0.1%, or does not fit, the worst first."""
    against = {problem: frame.against(own, rival, [problem]) for problem in frame.problems}
    lost = [
        (problem, each.ratio.value if each.ratio.count else np.inf) for problem, each in against.items() if each.losses
    ]
    return sorted(lost, key=lambda each: -each[1])


def _frame(found: Iterable[tuple[Hashable, int, str, float]]) -> Frame:
    """From what made a plan, its seed, its problem and seconds."""
    found = list(found)
    problems = tuple(dict.fromkeys(problem for _, _, problem, _ in found))
    column = {problem: number for number, problem in enumerate(problems)}
    seconds: dict[Hashable, dict[int, Floats]] = {}
    for who, seed, problem, value in found:
        row = seconds.setdefault(who, {}).setdefault(seed, np.full(len(problems), np.nan))
        row[column[problem]] = value
    return Frame(problems, seconds)
