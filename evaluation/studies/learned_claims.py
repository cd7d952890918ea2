"""The claims of the papers of GDP and Placeto: what was asked before it was measured, and whether it holds here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from evaluation.studies.learned_results import EXPERT, Results
from evaluation.studies.markdown import estimated

GDP, HDP, COLOCRL, PLACETO = (f"{name}+finetuned" for name in ("gdp", "hdp", "colocrl", "placeto"))

Verdict = Literal["met", "met in part", "not met", "not measured"]


class Judged(NamedTuple):
    """What was measured of a claim, and whether it holds."""

    measured: str
    verdict: Verdict


Judge = Callable[[Results, str, str], Judged]  # of a placer and a rival


@dataclass(frozen=True)
class Claim:
    """That a placer is in some way better than a rival on a suite."""

    suite: str
    asked: str
    placer: str
    rival: str
    judge: Judge

    def judged(self, results: Results) -> Judged:
        """What was measured, if both have tried any problem."""
        if not results.both(self.placer, self.rival):
            return Judged("-", "not measured")
        return self.judge(results, self.placer, self.rival)

    def is_complete(self, results: Results) -> bool:
        """Whether nothing of the two is left to be done."""
        return not results.missing(self.placer) and not results.missing(self.rival)


def on_problems(least: int, *, or_equal: bool = False) -> Judge:
    """The mean over seeds is faster on at least so many problems, or fits where the rival's plans do not."""

    def judge(results: Results, placer: str, rival: str) -> Judged:
        count = results.wins(placer, rival, or_equal=or_equal)
        both = len(results.both(placer, rival))
        return Judged(f"{count} of {both}", "met" if count >= least else "not met")

    return judge


def less_time(most: float) -> Judge:
    """The geometric mean of the ratio of step times is at most that, in part if some plans are in no ratio."""

    def judge(results: Results, placer: str, rival: str) -> Judged:
        ratio = results.over(placer, rival)
        rival_fits = np.isfinite(results.seconds(rival))
        unfit = int((results.unfit(placer) & rival_fits).sum())
        failed = sum(failure.placer == placer for failure in results.failed)
        apart = (f", {count} {what}" for count, what in ((unfit, "do not fit"), (failed, "failed")) if count)
        return Judged(estimated(ratio) + "".join(apart), _verdict(ratio.value <= most, unfit + failed == 0))

    return judge


def fewer_simulations(least: float) -> Judge:
    """So many times fewer simulations until the rival's best, in part if it did not always come so far."""

    def judge(results: Results, placer: str, rival: str) -> Judged:
        fewer = results.fewer(placer, rival)
        if not fewer.pairs:
            return Judged("-", "not measured")
        times = f"{estimated(fewer.ratio, digits=1)} times, " if fewer.reached else ""
        measured = f"{times}reached in {fewer.reached} of {fewer.pairs}"
        return Judged(measured, _verdict(fewer.ratio.value >= least, fewer.reached == fewer.pairs))

    return judge


def _verdict(holds: bool, everywhere: bool) -> Verdict:
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
