"""Samples that do not fit in memory, made to fit: a policy is paid for the plan that its own becomes when it places.

A placer changes what does not fit until it does (`placers.search.first_fit`). If all such samples are paid as failures,
a policy learns to keep away from full devices, where the fastest plans are; paid for what they become it learns which
plans are near good ones. Its gradients are of its own decisions, and how full it would have made the fullest device is
a small part of what it is paid (`training.learning.advantage.rewards`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from envs.prepared_problem import PreparedProblem
from envs.simulation.simulator import Outcomes
from graphs.foundation.engine import Engine
from graphs.foundation.items import in_order
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.search.first_fit import first_fit
from placers.search.starts import SIMULATION

MOST_OPS = 1_000_000  # simulated for a sample: those of large graphs have fewer simulations


@dataclass(frozen=True, eq=False)
class FirstFit:
    """A sample to be changed until it fits under the problem's rule; an order of its own is left out."""

    problem: Problem
    placement: Ints  # (units,)
    simulations: int

    @property
    def seconds(self) -> float:
        """What it takes at most, by estimate."""
        return self.simulations * SIMULATION.seconds(self.problem)

    def do(self) -> tuple[Ints | None, int]:
        """(units,) the placement that it becomes, None if none that fits is found; and the simulations that it took."""
        found = first_fit(self.problem, self.placement, self.simulations, reorder=False)
        return (found.best if found.curve else None), found.simulations


def made_to_fit(
    problems: Sequence[PreparedProblem], samples: Sequence[Ints], drawn: Sequence[Outcomes], simulations: int,
    engine: Engine,
) -> tuple[list[Outcomes], int]:  # fmt: skip
    """What the samples of each problem, (samples, units), cost once each is changed until it fits; and simulations.

    At most `simulations` are spent on a sample, and one more counts for each that is changed. Those that fit, and those
    with which it fails, cost what they did when `drawn`; the others keep their peaks. The problems remember what fits.
    """
    if not simulations:
        return list(drawn), 0
    asked = [
        (index, row, FirstFit(each.problem, placements[row], min(simulations, MOST_OPS // len(each.problem.graph))))
        for index, (each, placements, outcomes) in enumerate(zip(problems, samples, drawn, strict=True))
        for row in np.flatnonzero(~outcomes.fits).tolist()
    ]
    found = in_order(engine, FirstFit.do, [each for _, _, each in asked])
    paid = [replace(each, step_seconds=each.step_seconds.copy(), fits=each.fits.copy()) for each in drawn]
    for (index, row, _), (placement, _) in zip(asked, found, strict=True):
        if placement is not None:
            outcomes = problems[index].evaluate(placement[None])
            paid[index].step_seconds[row], paid[index].fits[row] = outcomes.step_seconds[0], True
    return paid, sum(spent + (placement is not None) for placement, spent in found)
