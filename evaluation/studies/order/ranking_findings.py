"""How placers rank under each rule, and which of them change places."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import kendalltau

from envs.orders import GIVEN
from evaluation.statistics import Estimate, estimate
from evaluation.studies.frame import Against
from evaluation.studies.order.rule_findings import BEST_CHEAP, METIS, RuleFindings, Run, flipped
from evaluation.studies.order.rules import PLACERS, POLICY, RULES
from graphs.op_graph import Floats
from graphs.problem import DEFAULT_ORDER, FIFO

LEAST_CHANGE = 0.01  # pairs of placers whose ratio changes less are not listed
RIVALS = {"METIS": METIS, "human expert": "human_expert", "HEFT": "heft", "best cheap": BEST_CHEAP}


@dataclass(frozen=True)
class Likeness:
    """Two rules, by how they rank placers; every placer makes its plan under the rule."""

    rules: tuple[str, str]
    overall: float  # Kendall's tau of the rankings by geometric means over all problems
    each: Estimate  # ... by problem: mean, and the quartiles in place of an interval
    flips: float  # share of the pairs of placers and problems


@dataclass(frozen=True)
class Pair:
    """Two placers, of which one is faster under one rule, the other under another."""

    placers: tuple[str, str]
    ratios: dict[str, Against]  # by rule, of the first over the second


@dataclass(frozen=True)
class RankingFindings:
    """Rankings of the placers under each rule."""

    found: RuleFindings

    def over_best(self, placer: str, rule: str) -> Estimate:
        """A placer's steps over those of the best of all under the same rule, where its plan fits.

        With GIVEN, its steps under the order that it handed on over the best of all under the default rule.
        """
        run = Run(placer, DEFAULT_ORDER, GIVEN) if rule == GIVEN else Run(placer, rule, rule)
        ratios = self.found.frame.means[run] / self._best(DEFAULT_ORDER if rule == GIVEN else rule)
        return estimate([ratios[np.isfinite(ratios)]])

    def rank(self, placer: str, rule: str) -> int:
        """Its place by `over_best`, from 1 on."""
        own = self.over_best(placer, rule).value
        return 1 + sum(self.over_best(other, rule).value < own for other in PLACERS)

    def has_order(self, placer: str) -> bool:
        """Whether it hands an order on."""
        return Run(placer, DEFAULT_ORDER, GIVEN) in self.found.frame.seconds

    @property
    def likenesses(self) -> list[Likeness]:
        """Every two rules."""
        return [self._likeness(*rules) for rules in combinations(RULES, 2)]

    @property
    def changed(self) -> list[Pair]:
        """Pairs of placers whose order changes from first come, first served to the default rule, the most first."""
        pairs = []
        for placers in combinations(PLACERS, 2):
            ratios = {rule: self.against(placers[0], placers[1], rule) for rule in RULES}
            logs = [np.log(ratios[rule].ratio.value) for rule in (FIFO, DEFAULT_ORDER)]
            if logs[0] * logs[1] < 0 and abs(logs[0] - logs[1]) > LEAST_CHANGE:
                pairs.append((abs(logs[0] - logs[1]), Pair(placers, ratios)))
        return [pair for _, pair in sorted(pairs, key=lambda each: -each[0])]

    def against(self, placer: str, rival: str, rule: str) -> Against:
        """Two placers, each under the same rule."""
        return self.found.frame.against(Run(placer, rule, rule), Run(rival, rule, rule))

    def against_handed_on(self, placer: str, rival: str) -> Against:
        """A placer under the default rule against a rival under the order that this handed on."""
        return self.found.frame.against(Run(placer, DEFAULT_ORDER, DEFAULT_ORDER), Run(rival, DEFAULT_ORDER, GIVEN))

    def _likeness(self, one: str, other: str) -> Likeness:
        means = [[self.over_best(placer, rule).value for placer in PLACERS] for rule in (one, other)]
        tables = [self._table(rule) for rule in (one, other)]
        taus = []
        for first, second in zip(tables[0].T, tables[1].T, strict=True):
            there = np.isfinite(first) & np.isfinite(second)
            if there.sum() > 1 and not np.isnan(tau := kendalltau(first[there], second[there]).statistic):
                taus.append(float(tau))
        low, high = np.quantile(taus, (0.25, 0.75)) if taus else (np.nan, np.nan)
        each = Estimate(float(np.mean(taus)) if taus else np.nan, float(low), float(high), len(taus))
        return Likeness((one, other), float(kendalltau(*means, nan_policy="omit").statistic), each, flipped(*tables))

    def _table(self, rule: str) -> Floats:
        """(placers, problems) seconds under a rule where plans fit, else NaN."""
        seconds = np.array([self.found.frame.means[Run(placer, rule, rule)] for placer in PLACERS])
        return np.where(np.isfinite(seconds), seconds, np.nan)

    def _best(self, rule: str) -> Floats:
        runs: list[Hashable] = [Run(placer, rule, rule) for placer in PLACERS]
        return self.found.frame.best(runs)


def policy_rows() -> list[tuple[str, str, str]]:
    """The policy's placers against each rival: the placer, what the rival is called, and the rival."""
    return [(placer, shown, rival) for placer in POLICY for shown, rival in RIVALS.items()]
