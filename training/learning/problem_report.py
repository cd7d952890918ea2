"""How the samples of an update did, problem by problem, and means of that over all, over a kind and over a runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from graphs.op_graph import Bools, Floats
from graphs.problem import Problem


@dataclass(frozen=True)
class ProblemReport:
    """What the samples of one problem took in an update."""

    kind: str  # the family of its graph, or the kind of a random one: "rnnlm", "random-fan"
    runtime: str  # "parallelize"
    over_bound: float  # mean of log(step seconds / lower bound), of samples that fit; NaN if none does
    over_best: float  # likewise, over the fastest step known that fits, these samples' included
    fitting: float  # share of the samples
    reward: float  # mean; NaN, as `over_best`, where a trainer does not tell it

    @classmethod
    def of(
        cls, problem: Problem, seconds: Floats, fits: Bools, *, bound: float, best: float = np.nan,
        reward: float = np.nan,
    ) -> ProblemReport:  # fmt: skip
        """The report of (samples,) step seconds, and whether each fits; `bound` and `best` are seconds, too."""
        logs = float(np.log(seconds[fits]).mean()) if fits.any() else np.nan
        over_best = float(logs - np.log(best)) if fits.any() else np.nan
        kind, runtime = problem.graph.name.partition(":")[0], problem.runtime.name.partition(":")[0]
        return cls(kind, runtime, float(logs - np.log(bound)), over_best, float(fits.mean()), reward)


def mean_over_bound(reports: Sequence[ProblemReport]) -> float:
    """Geometric mean over problems of step seconds over the lower bound; NaN if nothing fits."""
    return _geometric([each.over_bound for each in reports])


def mean_over_best(reports: Sequence[ProblemReport]) -> float:
    """Geometric mean over problems of step seconds over the fastest that is known; NaN if nothing fits."""
    return _geometric([each.over_best for each in reports])


def mean_fitting(reports: Sequence[ProblemReport]) -> float:
    """Mean over problems of the share of samples that fit."""
    return float(np.mean([each.fitting for each in reports]))


def mean_reward(reports: Sequence[ProblemReport]) -> float:
    """Mean reward of a sample."""
    return float(np.mean([each.reward for each in reports]))


MEANS: dict[str, Callable[[Sequence[ProblemReport]], float]] = {
    "step_over_bound": mean_over_bound,
    "step_over_best": mean_over_best,
    "fitting": mean_fitting,
    "ep_rew_mean": mean_reward,
}


def by_kind(reports: Sequence[ProblemReport]) -> dict[str, float]:
    """The means over the problems of each kind, and of each runtime: "step_over_bound/rnnlm", "fitting/parallelize".

    What is no number, such as the step of a kind of which nothing fits, is left out.
    """
    kinds: dict[str, list[ProblemReport]] = {}
    for each in reports:
        for kind in (each.kind, each.runtime):
            kinds.setdefault(kind, []).append(each)
    found = {f"{name}/{kind}": mean(kinds[kind]) for name, mean in MEANS.items() for kind in sorted(kinds)}
    return {name: value for name, value in found.items() if np.isfinite(value)}


def _geometric(logs: Sequence[float]) -> float:
    finite = [each for each in logs if np.isfinite(each)]
    return float(np.exp(np.mean(finite))) if finite else float("nan")
