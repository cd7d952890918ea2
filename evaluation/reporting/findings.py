"""Findings: what a comparison shows, in plain sentences computed from its records, whoever wins."""

from __future__ import annotations

import numpy as np

from evaluation import formatting
from evaluation.comparison import Comparison

SAME = 0.005  # ratios this close to one are called equal


def findings(comparison: Comparison, learned: str) -> list[str]:
    """Where a placer, one of those compared, wins and where it loses against the others."""
    if len(comparison.placers) < 2:
        return ["There is no other placer to compare with."]
    return [*_standing(comparison, learned), *_rivals(comparison, learned), *_extremes(comparison, learned)]


def tuning_findings(comparison: Comparison, before: str, after: str) -> list[str]:
    """What fine-tuning gained, and whether another placer is faster still."""
    change = comparison.relative(after, before)
    label = comparison.labels
    if change.count == 0:
        said = ["Before or after fine-tuning no plan fits, so that there is no gain to state."]
    elif len(comparison.problems) == 1:
        first, last = (comparison.step_seconds[0, comparison.placers.index(placer)] for placer in (before, after))
        said = [
            f"On {comparison.problems[0]} fine-tuning with {_simulations(comparison, after)} brings the "
            f"step from {formatting.seconds(first)} to {formatting.seconds(last)}: {than(change.value, 'before')}."
        ]
    else:
        said = [f"After fine-tuning a step takes {than(change.value, 'before')}, in geometric mean."]
    for rival in _by_speed(comparison, [placer for placer in comparison.placers if placer not in (before, after)])[:1]:
        against = comparison.relative(after, rival)
        said.append(
            f"The fastest other placer is {label[rival]}, with {_simulations(comparison, rival)}; beside "
            f"it the fine-tuned policy takes {than(against.value)}."
        )
    return said


def than(ratio: float, other: str = "") -> str:
    """A ratio of times in words: "12% less time than metis"."""
    if np.isnan(ratio):
        return "a time that cannot be compared, because no problem has a fitting plan of both"
    tail = f" than {other}" if other else ""
    if abs(ratio - 1) < SAME:
        return f"the same time as {other}" if other else "the same time"
    if ratio >= 2:
        return f"{ratio:.1f} times as long" + (f" as {other}" if other else "")
    return f"{abs(ratio - 1):.0%} {'less' if ratio < 1 else 'more'} time{tail}"


def _standing(comparison: Comparison, learned: str) -> list[str]:
    column = comparison.placers.index(learned)
    wins = int((comparison.over_best[:, column] == 1.0).sum())
    fits, problems = int(comparison.fits[:, column].sum()), len(comparison.problems)
    label = comparison.labels[learned]
    first = f"{label} is the fastest of {len(comparison.placers)} placers on {wins} of {problems} problems"
    if fits == problems:
        return [f"{first}, and its plan always fits in memory."]
    failed = [problem for row, problem in enumerate(comparison.problems) if not comparison.fits[row, column]]
    return [f"{first}.", f"Its plan does not fit in memory on {_some(failed)}."]


def _rivals(comparison: Comparison, learned: str) -> list[str]:
    """How it stands against each of the others; nobody wins where the interval of the ratio includes one."""
    ratio = {placer: comparison.relative(learned, placer) for placer in comparison.placers if placer != learned}
    groups = {
        "faster than": [placer for placer, r in ratio.items() if r.high < 1 - SAME],
        "not clearly apart from": [placer for placer, r in ratio.items() if r.low <= 1 + SAME and r.high >= 1 - SAME],
        "slower than": [placer for placer, r in ratio.items() if r.low > 1 + SAME],
        "not comparable with": [placer for placer, r in ratio.items() if r.count == 0],
    }
    parts = [
        f"{how} {', '.join(f'{comparison.labels[p]} ({formatting.ratio(ratio[p].value)})' for p in group)}"
        for how, group in groups.items()
        if group
    ]
    if not parts:
        return []
    return [
        f"Over the problems where both fit, it is {'; '.join(parts)}. The numbers are geometric means of its step time "
        "over theirs: below 1 it is ahead."
    ]


def _extremes(comparison: Comparison, learned: str) -> list[str]:
    """The problems on which it gains and loses most against the best of the others."""
    column = comparison.placers.index(learned)
    others = np.delete(np.where(comparison.fits, comparison.step_seconds, np.inf), column, axis=1).min(axis=1)
    ratio = comparison.fitting_seconds[:, column] / others
    known = np.flatnonzero(np.isfinite(ratio) & np.isfinite(others))
    said = []
    if len(known) and ratio[known].min() < 1 - SAME:
        best = known[ratio[known].argmin()]
        said.append(f"It gains most on {comparison.problems[best]}: {than(ratio[best], 'the best other placer')}.")
    if len(known) and ratio[known].max() > 1 + SAME:
        worst = known[ratio[known].argmax()]
        said.append(f"It loses most on {comparison.problems[worst]}: {than(ratio[worst], 'the best other placer')}.")
    return said


def _by_speed(comparison: Comparison, placers: list[str]) -> list[str]:
    """Those that fit most often first, among them the fastest."""
    return [row.placer for row in comparison.summary() if row.placer in placers and row.fits]


def _simulations(comparison: Comparison, placer: str) -> str:
    count = max(record.simulations for record in comparison.records if record.placer == placer)
    return f"{count:,} simulation{'' if count == 1 else 's'}"


def _some(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
