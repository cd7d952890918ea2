"""The evaluations of several runs as one: their policies under the runs' names, on the problems that all have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from evaluation.comparing.comparison import Comparison, short_name
from evaluation.drawing.sections import Sheet
from evaluation.records.formatting import NOTHING, ratio, seconds
from evaluation.records.record import Record
from evaluation.records.statistics import geometric_mean
from evaluation.reporting.findings import SAME, than
from evaluation.reporting.rules import best_rules, rules_like, speedup_over_rules
from evaluation.reporting.run_data import RunData
from graphs.op_graph import Floats


@dataclass(frozen=True)
class JoinedRuns:
    """Runs that were evaluated, and the problems that all of these were evaluated on."""

    names: tuple[str, ...]  # of all runs
    comparison: Comparison  # of those that were evaluated, and the other placers
    remarks: tuple[str, ...]

    @classmethod
    def of(cls, runs: Sequence[RunData], names: Sequence[str]) -> JoinedRuns | None:
        """None where fewer than two runs were evaluated, or on no common problem."""
        learned: dict[str, list[Record]] = {}
        others: list[list[Record]] = []
        for name, run in zip(names, runs, strict=True):
            if run.evaluation is None or not run.evaluation.notes.learned:
                continue
            own = run.evaluation.notes.learned
            learned[name] = [replace(each, placer=name) for each in run.evaluation.records if each.placer == own]
            others.append([each for each in run.evaluation.records if not _is_of(each.placer, own)])
        learned = {name: records for name, records in learned.items() if records}
        sets = [{each.problem for each in records} for records in learned.values()]
        common = set.intersection(*sets) if sets else set()
        if len(learned) < 2 or not common:
            return None
        rivals: dict[tuple[str, str, int], Record] = {}
        for each in (record for records in others for record in records):
            rivals.setdefault(each.case, each)  # of those that several runs met, as the first of these says
        records = [*(each for some in learned.values() for each in some), *rivals.values()]
        kept = tuple(each for each in records if each.problem in common)
        return cls(tuple(names), Comparison(kept), tuple(_remarks(learned, sets, common)))

    @cached_property
    def runs_only(self) -> Comparison:
        """The runs without other placers."""
        return Comparison(tuple(each for each in self.comparison.records if each.placer in self.names))

    @property
    def means(self) -> tuple[float, ...]:
        """(runs,) geometric mean of the step time over that of the best of these runs, where the plan fits."""
        return self._by_run(lambda column: _mean(self.runs_only.over_best[:, column]))

    @property
    def wins(self) -> tuple[float, ...]:
        """(runs,) problems on which it is the fastest of these runs, alone or with others."""
        return self._by_run(lambda column: float((self.runs_only.over_best[:, column] == 1.0).sum()))

    @property
    def fitting(self) -> tuple[float, ...]:
        """(runs,) share of the problems on which its plans fit."""
        return self._by_run(lambda column: float(self.runs_only.fits[:, column].mean()))

    @property
    def speedups(self) -> tuple[float, ...]:
        """(runs,) geometric mean of how many times as fast as the best rule of each problem for plans of its kind."""
        return tuple(
            speedup_over_rules(self.comparison, name, rules_like(self.comparison, name)).value
            if name in self.runs_only.placers
            else np.nan
            for name in self.names
        )

    @cached_property
    def families(self) -> tuple[str, ...]:
        """The families of the problems, in their order."""
        return tuple(dict.fromkeys(_family(problem) for problem in self.runs_only.problems))

    def families_led_by(self, run: int) -> list[str]:
        """The families on which a run is faster in the mean than all other runs, if there are several families."""
        if len(self.families) < 2:
            return []
        by_family = [self._of_family(family) for family in self.families]
        return [
            family
            for family, means in zip(self.families, by_family, strict=True)
            if np.isfinite(means[run]) and means[run] < np.nanmin(np.append(np.delete(means, run), np.inf)) - SAME
        ]

    def gain(self, run: int) -> str:
        """A sentence: the problem on which a run gains most against the best of the others; "" if it does on none."""
        name = self.names[run]
        if name not in self.runs_only.placers:
            return " It is not evaluated on these graphs."
        column, found = self.runs_only.placers.index(name), self.runs_only.fitting_seconds
        others = np.delete(np.where(np.isnan(found), np.inf, found), column, axis=1).min(axis=1)
        over = found[:, column] / others
        known = np.flatnonzero(np.isfinite(over) & (over > 0))
        if not len(known) or over[known].min() >= 1 - SAME:
            return ""
        row = known[over[known].argmin()]
        return f" It gains most on {self.runs_only.problems[row]}: {than(over[row], 'the best other run')}."

    def family_sheet(self) -> Sheet:
        """Geometric means by family: a row per family, a column per run."""
        rows = []
        for family in self.families:
            means = self._of_family(family)
            best = np.nanmin(means) if np.isfinite(means).any() else np.nan
            cells = (f"{ratio(mean)}{' *' if mean == best else ''}" for mean in means.tolist())
            count = sum(_family(problem) == family for problem in self.runs_only.problems)
            rows.append((family, str(count), *cells))
        note = "Geometric means of the step time over that of the best of these runs, where the plan fits. * the best."
        return Sheet(("family", "problems", *self.names), tuple(rows), note=note, title="By family")

    def problem_sheet(self) -> Sheet:
        """Step times: a row per problem, a column per run, and that of the best rule."""
        runs = self.runs_only
        rules = best_rules(self.comparison, rules_like(self.comparison, *runs.placers))
        rows = []
        for row, problem in enumerate(runs.problems):
            cells = [self._cell(row, name) for name in self.names]
            rule = rules[self.comparison.problems.index(problem)]
            ruled = NOTHING if rule is None else f"{seconds(rule.seconds)} ({rule.placer})"
            rows.append((problem, *cells, ruled, seconds(runs.lower_bound_seconds[row])))
        note = (
            "* the fastest of these runs that fits; in brackets: does not fit in memory. A rule is no search or policy."
        )
        return Sheet(("problem", *self.names, "best rule", "lower bound"), tuple(rows), note=note)

    def _cell(self, row: int, name: str) -> str:
        runs = self.runs_only
        if name not in runs.placers:
            return NOTHING
        column = runs.placers.index(name)
        text = seconds(runs.step_seconds[row, column])
        if not runs.fits[row, column] and text != NOTHING:
            return f"({text})"
        return f"{text} *" if runs.over_best[row, column] == 1.0 else text

    def _of_family(self, family: str) -> Floats:
        """(runs,) as `means`, of one family."""
        rows = [row for row, problem in enumerate(self.runs_only.problems) if _family(problem) == family]
        return np.array(self._by_run(lambda column: _mean(self.runs_only.over_best[rows, column])))

    def _by_run(self, value: Callable[[int], float]) -> tuple[float, ...]:
        """(runs,) a value of each run's column; NaN of those that were not evaluated."""
        placers = self.runs_only.placers
        return tuple(value(placers.index(name)) if name in placers else np.nan for name in self.names)


def _remarks(learned: dict[str, list[Record]], sets: Sequence[set[str]], common: set[str]) -> list[str]:
    """What has to be known to compare them."""
    said = [f"{len(common)} problems that all evaluated runs have."]
    if left := len(set.union(*sets)) - len(common):
        said.append(f"{left} more, which only some of them have, are left out.")
    budgets = {name: max(each.simulations for each in records) for name, records in learned.items()}
    if len(set(budgets.values())) > 1:
        each = ", ".join(f"{name} {count:,}" for name, count in budgets.items())
        said.append(f"They were evaluated with unlike numbers of simulations, which favours those with more: {each}.")
    return said


def _is_of(placer: str, learned: str) -> bool:
    """Whether a placer is the policy, or another use of it, such as its greedy plan."""
    return placer.startswith(learned) or short_name(placer).partition(":")[0] == short_name(learned).partition(":")[0]


def _family(problem: str) -> str:
    return problem.partition("@")[0].partition(":")[0]


def _mean(ratios: Floats) -> float:
    known = ratios[np.isfinite(ratios)]
    return float(geometric_mean(known)) if len(known) else np.nan
