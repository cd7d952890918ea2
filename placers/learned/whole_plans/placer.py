"""Whole plans from a policy: stages, devices, replicas, micro-batches and recomputation, decision by decision (ours).

A pipeline is made without any simulation, in a moment: the best by a formula of a few that are drawn, the most likely
one among them. Of several the best by simulation is taken. A plan that seems not to fit, by formula, computes stages
again; if that does not suffice, others are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np

from envs.pipelines.pipeline import LayerPipeline
from envs.placer_result import PlacerResult
from envs.plan import Plan
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.problem import Problem
from placers.learned.policy_file import load_policy
from placers.learned.policy_meta import META
from placers.learned.whole_plans.decision_features import Seeing
from placers.learned.whole_plans.estimate import estimated
from placers.learned.whole_plans.filled import MARGIN, filled, made_to_fit
from placers.learned.whole_plans.policy import KIND, WholePlansPolicy

LEARNED = True  # is compared with the classical placers, not as one of them
RELEASED = Path(__file__).resolve().parent / "released"  # weights that come with placelab, if any do
DRAWN = 8  # pipelines of which the best by formula is taken, where none is simulated; ours
TRIES = 16  # pipelines that are drawn until one seems to fit; ours


@dataclass(frozen=True, eq=False)
class WholePlansPlacer:
    """A policy's best pipeline by formula, or the best of several by simulation."""

    divides_batch: ClassVar[bool] = True

    policy: WholePlansPolicy
    name: str
    samples: int = 0  # pipelines to simulate; 0: as many as the budget allows

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The best pipeline by formula, unsimulated, if one is asked for; else the best of several by simulation.

        They are simulated at the grain of stages. Raises InputError for a problem for which only op placements make
        sense.
        """
        choices = max(1, min(self.samples or budget, budget))
        seeing, several = self._drawn(problem, choices, seed)
        layers = seeing.view.pipelines.layers
        if choices == 1:
            return PlacerResult(several[0].plan(problem, layers), self.name, seed)
        outcomes = [seeing.view.pipelines.outcome(one) for one in several]
        best = min(range(choices), key=lambda each: (not outcomes[each].fits, outcomes[each].step_seconds))
        return PlacerResult(several[best].plan(problem, layers), self.name, seed, choices)

    def proposals(self, problem: Problem, count: int, seed: int) -> list[Plan]:
        """So many plans, the best by formula first, none of them simulated. Raises InputError as `place` does."""
        seeing, several = self._drawn(problem, count, seed)
        return [one.plan(problem, seeing.view.pipelines.layers) for one in several]

    def _drawn(self, problem: Problem, count: int, seed: int) -> tuple[Seeing, list[LayerPipeline]]:
        limit_torch_threads()
        seeing = self.policy.see(problem)
        return seeing, promising(self.policy, seeing, count, seed)


def promising(policy: WholePlansPolicy, seeing: Seeing, count: int, seed: int) -> list[LayerPipeline]:
    """So many candidates, the best by formula first, of at least `DRAWN`."""
    view = seeing.view
    drawn = list(islice(candidates(policy, seeing, seed), max(count, DRAWN)))
    return sorted(drawn, key=lambda one: (filled(view, one).max() > MARGIN, estimated(view, one)))[:count]


def candidates(policy: WholePlansPolicy, seeing: Seeing, seed: int) -> Iterator[LayerPipeline]:
    """Pipelines without end, the most likely first, then drawn ones; each seems to fit, if one of some tries does."""
    rng = np.random.default_rng(seed)
    is_first = True
    while True:
        tried = list[tuple[float, LayerPipeline]]()
        while len(tried) < TRIES and not (tried and tried[-1][0] <= MARGIN):
            one = made_to_fit(seeing.view, policy.draw(seeing, None if is_first else rng)[0])
            tried.append((float(filled(seeing.view, one).max()), one))
            is_first = False
        yield min(tried, key=lambda each: max(each[0], MARGIN))[1]


def build(*, checkpoint: str = "", samples: int = 0, untrained: bool = False) -> WholePlansPlacer:
    """A policy of whole plans: that in a run folder, `checkpoint`, or the one that comes with placelab.

    Raises InputError where there is none, and as `load_policy` does.
    """
    if checkpoint and untrained:
        raise InputError(f"{KIND}: give checkpoint={checkpoint} or untrained=yes, and not both")
    knobs = {"checkpoint": checkpoint, "samples": samples, "untrained": untrained and "yes"}
    name = by_name.spec_of(KIND, {knob: value for knob, value in knobs.items() if value})
    if untrained:
        return WholePlansPlacer(WholePlansPolicy.new(KIND, 0), name, samples)
    if not checkpoint and not (RELEASED / META).is_file():
        raise InputError(
            f"placer {KIND!r} has no trained policy; give {KIND}:checkpoint=RUN with a folder of "
            f"`python -m training.whole_plans`; {KIND}:untrained=yes plans at random"
        )
    folder = Path(checkpoint) if checkpoint else RELEASED
    return WholePlansPlacer(load_policy(folder, WholePlansPolicy)[0], name, samples)
