"""What the study of scaling found: how good policies get over the length of their trainings, and curves through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evaluation.records.statistics import OUTSIDE, RESAMPLES, Estimate
from evaluation.studies.scaling.fits import FORMS, Form, Parameters, likelier
from evaluation.studies.scaling.trainings import BEST, GREEDY, SEARCH, Outcome, kinds_tested_on
from graphs.op_graph import Floats
from training.runs.selection import NOT_FITTING

MORE = 10  # times the longest training, for which curves are continued


@dataclass(frozen=True)
class Curve:
    """A kind of curve, fitted to the means and to those of each draw of seeds and problems."""

    form: Form
    lengths: Floats  # (lengths,) updates
    parameters: Parameters  # (1 + draws,) each; first that of the means

    def at(self, updates: Floats) -> Floats:
        """(1 + draws, updates) step times over the best known."""
        return np.asarray(np.exp(self.form.at(self.parameters, updates / self.lengths[0])))

    def parameter(self, name: str) -> Estimate:
        """One of the parameters, with its interval."""
        return _with_interval(self.parameters[name], len(self.lengths))

    def ratio(self, times: float) -> Estimate:
        """Step times after so many times the longest training, over those after the longest."""
        longest = self.lengths[-1:]
        values = self.at(longest * times)[:, 0] / self.at(longest)[:, 0]
        return _with_interval(values, len(self.lengths))


@dataclass(frozen=True)
class ScalingFindings:
    """Trainings of the same number of seeds for each length, and searches."""

    lengths: Sequence[int]
    tested: Mapping[tuple[int, int], Outcome]  # by length and seed

    @classmethod
    def of(cls, every: Sequence[Outcome]) -> ScalingFindings:
        """Of all that is done, the lengths of which as many seeds are done as of any."""
        done = {(each.updates, each.seed): each for each in every if each.updates}
        seeds = {updates: sum(1 for length, _ in done if length == updates) for updates, _ in done}
        lengths = sorted(updates for updates, some in seeds.items() if some == max(seeds.values()))
        searches = {(0, each.seed): each for each in every if not each.updates}
        return cls(lengths, {key: each for key, each in done.items() if key[0] in lengths} | searches)

    @cached_property
    def problems(self) -> int:
        """How many problems are tested on."""
        return len(next(iter(next(iter(self.tested.values())).step_seconds.values())))

    @cached_property
    def best_known(self) -> Floats:
        """(problems,) seconds, the least of all that fits."""
        found = [row for each in self.tested.values() for row in _seconds(each).values()]
        return np.asarray(np.min(found, axis=0))

    def logs(self, way: str) -> Floats:
        """(lengths, seeds, problems) logarithms of step times over the best known; plans that do not fit count 3."""
        return np.array([[self._logs(each, way) for each in self._of(length)] for length in self.lengths])

    def over_best(self, way: str) -> Sequence[Estimate]:
        """Of each length, step times over the best known: geometric means over seeds and problems."""
        return [_with_interval(np.exp(row), self.problems) for row in self._drawn(way).T]

    @cached_property
    def search(self) -> float:
        """What the search has over the best known, geometric mean."""
        logs = [self._logs(each, SEARCH) for (length, _), each in self.tested.items() if not length]
        return float(np.exp(np.mean(logs)))

    def unfit(self, way: str) -> Sequence[float]:
        """Of each length, the share of plans that do not fit."""
        return [
            float(np.mean([[each is None for each in one.step_seconds[way]] for one in self._of(length)]))
            for length in self.lengths
        ]

    def update_seconds(self, length: int) -> float:
        """Processor seconds of an update, mean over the seeds of which they are known."""
        known = [each.update_seconds for each in self._of(length) if each.update_seconds]
        return float(np.mean(known)) if known else np.nan

    def simulations(self, length: int) -> int:
        """Of a training, mean over seeds."""
        return round(float(np.mean([each.simulations for each in self._of(length)])))

    @cached_property
    def seeds(self) -> int:
        """Trainings of each length."""
        return len(self._of(self.lengths[0]))

    @cached_property
    def curves(self) -> Mapping[str, Curve]:
        """By how plans are made, the curve of the likelier form."""
        return {way: self.curve(way, self._likelier(way)) for way in (GREEDY, BEST)}

    def curve(self, way: str, form: Form) -> Curve:
        """A curve of a form through means, and through each draw."""
        lengths = np.array(self.lengths, float)
        return Curve(form, lengths, form.fitted(lengths / lengths[0], self._drawn(way)))

    def _likelier(self, way: str) -> Form:
        """Of both forms, by the means of each training over its problems."""
        means = self.logs(way).mean(axis=2)
        lengths = np.repeat(np.array(self.lengths, float) / self.lengths[0], means.shape[1])
        return likelier(lengths, means.ravel(), FORMS)

    def _of(self, length: int) -> list[Outcome]:
        return [each for (updates, _), each in sorted(self.tested.items()) if updates == length]

    def _logs(self, each: Outcome, way: str) -> Floats:
        """(problems,) as `logs`."""
        over = _seconds(each)[way] / self.best_known
        return np.asarray(np.log(np.where(np.isfinite(over), over, NOT_FITTING)))

    def _drawn(self, way: str) -> Floats:
        """(1 + draws, lengths) means over seeds and problems; the first of all, the others of draws with replacement.

        The seeds of each length are drawn by themselves, and the problems of each kind, the same for all lengths.
        """
        logs, rng = self.logs(way), np.random.default_rng(0)
        lengths, seeds, _ = logs.shape
        kinds = np.array(kinds_tested_on(self.problems))
        of_kinds = [np.flatnonzero(kinds == kind) for kind in dict.fromkeys(kinds)]
        drawn = [logs.mean(axis=(1, 2))]
        for _ in range(RESAMPLES):
            some = np.concatenate([rng.choice(of_kind, len(of_kind)) for of_kind in of_kinds])
            mine = rng.integers(seeds, size=(lengths, seeds))
            drawn.append(logs[:, :, some].mean(axis=2)[np.arange(lengths)[:, None], mine].mean(axis=1))
        return np.array(drawn)


def _seconds(each: Outcome) -> Mapping[str, Floats]:
    """(problems,) by how plans are made; infinite where a plan does not fit."""
    return {
        way: np.array([np.inf if seconds is None else seconds for seconds in some])
        for way, some in each.step_seconds.items()
    }


def _with_interval(values: Floats, count: int) -> Estimate:
    """The first value, and the interval of the others."""
    low, high = np.quantile(values[1:], OUTSIDE)
    return Estimate(float(values[0]), float(low), float(high), count)
