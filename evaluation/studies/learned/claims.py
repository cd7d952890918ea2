"""The claims of the papers of GDP and Placeto: what was asked before it was measured, and whether it holds here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from evaluation.studies.document import estimated
from evaluation.studies.learned.suite import EXPERT, SuiteFindings

GDP, HDP, COLOCRL, PLACETO = (f"{name}+finetuned" for name in ("gdp", "hdp", "colocrl", "placeto"))

Holds = Literal["met", "met in part", "not met", "not measured"]


class Measured(NamedTuple):
    """What was measured of a claim, and whether it holds."""

    measured: str
    verdict: Holds


Measure = Callable[[SuiteFindings, str, str], Measured]  # of a placer and a rival


@dataclass(frozen=True)
class Claim:
    """That a placer is in some way better than a rival on a suite."""

    suite: str
    asked: str
    placer: str
    rival: str
    measure: Measure

    def measured(self, suite: SuiteFindings) -> Measured:
        """What was measured, if both have tried any problem."""
        if not suite.frame.against(self.placer, self.rival).problems:
            return Measured("-", "not measured")
        return self.measure(suite, self.placer, self.rival)

    def is_complete(self, suite: SuiteFindings) -> bool:
        """Whether nothing of the two is left to be done."""
        return not suite.missing(self.placer) and not suite.missing(self.rival)


def on_problems(least: int, *, or_equal: bool = False) -> Measure:
    """The mean over seeds is faster on at least `least` problems, or fits where the rival's plans do not."""

    def measure(suite: SuiteFindings, placer: str, rival: str) -> Measured:
        count, problems = suite.wins(placer, rival, or_equal=or_equal), suite.frame.against(placer, rival).problems
        return Measured(f"{count} of {problems}", "met" if count >= least else "not met")

    return measure


def less_time(most: float) -> Measure:
    """The geometric mean of the ratio of step times is at most that, in part if some plans are in no ratio."""

    def measure(suite: SuiteFindings, placer: str, rival: str) -> Measured:
        ratio = suite.frame.ratio(placer, rival)
        unfit = suite.unfit(placer, rival)
        failed = sum(failure.placer == placer for failure in suite.failed)
        apart = (f", {count} {what}" for count, what in ((unfit, "do not fit"), (failed, "failed")) if count)
        return Measured(estimated(ratio) + "".join(apart), _verdict(ratio.value <= most, unfit + failed == 0))

    return measure


def fewer_simulations(least: float) -> Measure:
    """`least` times fewer simulations until the rival's best, in part if it did not always reach that."""

    def measure(suite: SuiteFindings, placer: str, rival: str) -> Measured:
        fewer = suite.fewer(placer, rival)
        if not fewer.pairs:
            return Measured("-", "not measured")
        times = f"{estimated(fewer.ratio, digits=1)} times, " if fewer.reached else ""
        measured = f"{times}reached in {fewer.reached} of {fewer.pairs}"
        return Measured(measured, _verdict(fewer.ratio.value >= least, fewer.reached == fewer.pairs))

    return measure


def _verdict(holds: bool, everywhere: bool) -> Holds:
    if not holds:
        return "not met"
    return "met" if everywhere else "met in part"


CLAIMS = (
    Claim("gdp12", "GDP is faster than the human expert on 11 of 12 problems", GDP, EXPERT, on_problems(11)),
    Claim("gdp12", "GDP takes 15% less time than the human expert: at most 0.85", GDP, EXPERT, less_time(0.85)),
    Claim("gdp12", "GDP reaches HDP's best with 15 times fewer simulations", GDP, HDP, fewer_simulations(15)),
    Claim("placeto", "Placeto is at least as fast as ColocRL's RNN on 5 of 6 problems", PLACETO, COLOCRL,
          on_problems(5, or_equal=True)),
    Claim("placeto", "Placeto reaches the RNN's best with 2.5 times fewer simulations", PLACETO, COLOCRL,
          fewer_simulations(2.5)),
    Claim("placeto", "Placeto takes 5% less time than the human expert where that fits: at most 0.95", PLACETO, EXPERT,
          less_time(0.95)),
)  # fmt: skip
