"""Findings: what a comparison shows, in plain sentences computed from its records."""

import numpy as np

from evaluation.comparing.comparison import Comparison
from evaluation.records import formatting
from evaluation.records.statistics import FEWEST_PROBLEMS
from graphs.foundation.errors import listed

SAME = 0.005  # ratios this close to one are called equal
MOST = 3  # problems named where a plan does not fit


def findings(comparison: Comparison, learned: str) -> list[str]:
    """Where a placer of the comparison is faster than the others, and where it is slower."""
    if len(comparison.placers) < 2:
        return ["There is no other placer to compare with."]
    return [*_standing(comparison, learned), *_rivals(comparison, learned), *_extremes(comparison, learned)]


def tuning_findings(comparison: Comparison, before: str, after: str) -> list[str]:
    """What fine-tuning gained, and whether another placer is faster still."""
    change = comparison.relative(after, before)
    if change.count == 0:
        said = ["Before or after fine-tuning no plan fits, so that there is no gain to state."]
    elif len(comparison.problems) == 1:
        first, last = (comparison.step_seconds[0, comparison.placers.index(placer)] for placer in (before, after))
        tuning = f"On {comparison.problems[0]} fine-tuning with {_simulations(comparison, after)}"
        gain = f"brings the step from {formatting.seconds(first)} to {formatting.seconds(last)}: "
        if abs(change.value - 1) < SAME:
            said = [f"{tuning} finds nothing faster than before, {formatting.seconds(first)}."]
        else:
            said = [f"{tuning} {gain}{than(change.value, 'before')}."]
    else:
        said = [f"After fine-tuning a step takes {than(change.value, 'before')}, in geometric mean."]
    if (rival := fastest_other(comparison, before, after)) is not None:
        against = comparison.relative(after, rival)
        said.append(
            f"The fastest other placer is {comparison.labels[rival]}, with {_simulations(comparison, rival)}; next to "
            f"it the fine-tuned policy takes {than(against.value)}."
        )
    return said


def fastest_other(comparison: Comparison, *own: str) -> str | None:
    """The fastest placer whose plans fit, other than these; None if there is none."""
    fitting = [row.placer for row in comparison.summary() if row.fits]  # the fastest first
    return next((placer for placer in fitting if placer not in own), None)


def than(ratio: float, other: str = "") -> str:
    """A ratio of times in words: "12% less time than metis"."""
    if np.isnan(ratio):
        return "a time that cannot be compared, because no problem has a fitting plan of both"
    if abs(ratio - 1) < SAME:
        said, link = "the same time", "as"
    elif ratio >= 2:
        said, link = f"{ratio:.1f} times as long", "as"
    else:
        said, link = f"{abs(ratio - 1):.0%} {'less' if ratio < 1 else 'more'} time", "than"
    return f"{said} {link} {other}" if other else said


def _standing(comparison: Comparison, learned: str) -> list[str]:
    column = comparison.placers.index(learned)
    wins = int((comparison.over_best[:, column] == 1.0).sum())
    fits, problems = int(comparison.fits[:, column].sum()), len(comparison.problems)
    label = comparison.labels[learned]
    first = f"{label} is the fastest of {len(comparison.placers)} placers on {wins} of {problems} problems"
    if fits == problems:
        return [f"{first}, and its plan always fits in memory."]
    failed = [problem for row, problem in enumerate(comparison.problems) if not comparison.fits[row, column]]
    return [f"{first}.", f"Its plan does not fit in memory on {listed(failed, MOST)}."]


def _rivals(comparison: Comparison, learned: str) -> list[str]:
    """How it compares with each of the others; neither is ahead where the interval of the ratio includes one.

    On too few problems for an interval, means alone.
    """
    ratio = {placer: comparison.relative(learned, placer) for placer in comparison.placers if placer != learned}
    groups = {
        "faster than": [placer for placer, r in ratio.items() if r.high < 1 - SAME],
        "not clearly apart from": [placer for placer, r in ratio.items() if r.low <= 1 + SAME and r.high >= 1 - SAME],
        "slower than": [placer for placer, r in ratio.items() if r.low > 1 + SAME],
        "not comparable with": [placer for placer, r in ratio.items() if r.count == 0],
    }
    few = [placer for placer, r in ratio.items() if r.count and not r.has_interval]

    def named(group: list[str]) -> str:
        return ", ".join(f"{comparison.labels[each]} ({formatting.ratio(ratio[each].value)})" for each in group)

    said = []
    if parts := [f"{how} {named(group)}" for how, group in groups.items() if group]:
        said.append(f"Over the problems where both fit, it is {'; '.join(parts)}.")
    if few:
        most = f"Fewer than {FEWEST_PROBLEMS} problems, too few to say which is ahead, have fitting plans of it and of"
        said.append(f"{most} {named(few)}.")
    if said:
        said.append("The numbers are geometric means of its step time over theirs: below 1 it is ahead.")
    return said


def _extremes(comparison: Comparison, learned: str) -> list[str]:
    """The problems on which it gains and loses most against the best of the others."""
    column = comparison.placers.index(learned)
    others = np.delete(np.where(comparison.fits, comparison.step_seconds, np.inf), column, axis=1).min(axis=1)
    ratio = comparison.fitting_seconds[:, column] / others
    known = np.flatnonzero(np.isfinite(ratio) & np.isfinite(others))
    ends = [("gains", known[ratio[known].argmin()]), ("loses", known[ratio[known].argmax()])] if len(known) else []
    return [
        f"It {how} most on {comparison.problems[row]}: {than(ratio[row], 'the best other placer')}."
        for how, row in ends
        if (ratio[row] < 1 - SAME if how == "gains" else ratio[row] > 1 + SAME)
    ]


def _simulations(comparison: Comparison, placer: str) -> str:
    count = max(record.simulations for record in comparison.records if record.placer == placer)
    return f"{count:,} simulation{'' if count == 1 else 's'}"
