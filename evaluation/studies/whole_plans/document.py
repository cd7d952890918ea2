"""The document of the study of whole plans: where the policy is behind the planner, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evaluation.statistics import Estimate, estimate, geometric_mean
from evaluation.studies.document import save_document
from evaluation.studies.whole_plans.cases import CLUSTERS, MODELS, SPLITS
from evaluation.studies.whole_plans.measure import REACHED, SEVERAL, Found, Measured, OfSeed

CLOSE = 1.05  # times the planner's step: what is asked of a policy without a simulation


@dataclass(frozen=True)
class WholePlansFindings:
    """What is measured."""

    cases: Sequence[Measured]

    @property
    def splits(self) -> list[str]:
        """Those that have cases."""
        return [split for split in SPLITS if self.of(split)]

    def of(self, split: str) -> list[Measured]:
        """The cases of a split."""
        return [case for case in self.cases if case.split == split]

    def ratios(self, case: Measured, which: str) -> list[float]:
        """Of each seed, its step over the planner's; infinite where it does not fit and the planner's does."""
        found: list[Found] = [getattr(each, which) for each in case.policies]
        return [each.seconds / case.planner.seconds if each.fits or not case.planner.fits else np.inf for each in found]

    def step(self, split: str, which: str) -> Estimate:
        """Geometric mean of the ratios, of what fits; the interval is over models, a model's cases counting as one."""
        return self._over_models(split, lambda case: [each for each in self.ratios(case, which) if np.isfinite(each)])

    def took(self, split: str, which: str) -> Estimate:
        """The same of processor seconds of planning."""

        def shares(case: Measured) -> list[float]:
            found: list[Found] = [getattr(each, which) for each in case.policies]
            return [max(each.took, 1e-4) / max(case.planner.took, 1e-4) for each in found]

        return self._over_models(split, shares)

    def fewer(self, split: str) -> Estimate:
        """The same of simulations until the planner's result, without the policy's pipelines over with them."""

        def shares(case: Measured) -> list[float]:
            return [
                case.reached / each.reached for each in case.policies if case.reached and each.reached
            ]  # fmt: skip

        return self._over_models(split, shares)

    def never(self, split: str) -> int:
        """How often the planner with the policy's pipelines did not come to the planner's result."""
        return sum(each.reached is None for case in self.of(split) for each in case.policies)

    def plans(self, split: str) -> int:
        """Cases times seeds."""
        return sum(len(case.policies) for case in self.of(split))

    def unfit(self, split: str, which: str) -> int:
        """How many plans do not fit where the planner's does."""
        return sum(each == np.inf for case in self.of(split) for each in self.ratios(case, which))

    def far(self, split: str) -> list[tuple[Measured, OfSeed, float]]:
        """Where the unsimulated plan is more than `CLOSE` of the planner's, the farthest first."""
        found = [
            (case, seed, ratio)
            for case in self.of(split)
            for seed, ratio in zip(case.policies, self.ratios(case, "alone"), strict=True)
            if ratio > CLOSE
        ]
        return sorted(found, key=lambda each: -each[2])

    def _over_models(self, split: str, of_case: Callable[[Measured], list[float]]) -> Estimate:
        return estimate([np.array(list(self._of_models(split, of_case)))])

    def _of_models(self, split: str, of_case: Callable[[Measured], list[float]]) -> Iterator[float]:
        models = dict.fromkeys(case.model for case in self.of(split))
        for model in models:
            values = [value for case in self.of(split) if case.model == model for value in of_case(case)]
            if values:
                yield float(geometric_mean(np.array(values)))


def save(found: WholePlansFindings, folder: Path, command: str) -> Path:
    """Write `whole_plans.md` into a folder."""
    return save_document(
        "whole_plans", "whole_plans.md", folder, {}, command=command, found=found, models=MODELS, clusters=CLUSTERS,
        close=CLOSE, reached=REACHED, several=SEVERAL, budget=found.cases[0].budget,
        seeds=max(len(case.policies) for case in found.cases),
    )  # fmt: skip
