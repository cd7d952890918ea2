"""Sequential decoder: a learned placer that places unit by unit, looking at every device each time. Ours, no paper's.

GraphSAGE and a Transformer layer encode the problem, as in GDP (Zhou et al. 2019); the devices are then chosen one
after another, in HEFT's order (Topcuoglu et al. 2002) unless the policy has another, as a list scheduler with a
learned rule.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from envs.objectives import Evaluator
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.learned.candidate import Candidate
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.policy import LearnedPolicy
from placers.learned.sequential.cheap_plans import candidates_with_cheap_plans
from placers.learned.sequential.coarse import (
    GROUPS,
    MOST_UNITS,
    candidates_by_levels,
    grains,
    in_groups,
    placed_in_groups,
)
from placers.learned.sequential.fitting import best_by_simulation, made_to_fit
from placers.learned.sequential.policy import SequentialPolicy

TRAINER = "ppo"
OP_SECONDS, PAIR_SECONDS = 6.5e-7, 1.1e-6  # of a processor and a sample: for each op, and for each unit and device
new_policy = SequentialPolicy.new


@dataclass(frozen=True, eq=False)
class SequentialPlacer(LearnedPlacer):
    """A policy's most likely placement, or the best of several candidates."""

    makes_fit: ClassVar[bool] = True

    cheap: bool = False  # among them are plans of cheap placers
    groups: int = GROUPS  # of units, in which large problems are placed first; 0: all are placed unit by unit at once

    def orders(self, policy: LearnedPolicy, problem: Problem, placements: Ints) -> Floats | None:
        """As `LearnedPlacer.orders`; a large problem is ordered by its groups: each is on one device."""
        if not self._is_tied(problem):
            return policy.likely_orders(problem, placements)
        coarse = in_groups(problem)
        return policy.likely_orders(coarse, placements[:, problem.graph.units[coarse.units.first_op]])

    def best(self, evaluator: Evaluator, placements: Ints, orders: Floats | None) -> Candidate:
        """As `LearnedPlacer.best`; where no placement fits, the nearest to it, with simulations left to change it."""
        return best_by_simulation(evaluator, placements, orders)

    def made_to_fit(self, evaluator: Evaluator, candidate: Candidate, simulations: int, seconds: float) -> Candidate:
        """As `LearnedPlacer.made_to_fit`, by what the simulator says of its peaks."""
        problem = evaluator.problem
        coarse = in_groups(problem) if self._is_tied(problem) else None
        return made_to_fit(evaluator, candidate, simulations, coarse, seconds)

    def sample_seconds(self, problem: Problem) -> float:
        """As `PolicyPlacer.sample_seconds`, as measured of the released policies on up to 50,000 ops."""
        units = min(len(problem.units), MOST_UNITS) if self.groups else len(problem.units)
        return OP_SECONDS * len(problem.graph) + PAIR_SECONDS * units * len(problem.cluster)

    def _is_tied(self, problem: Problem) -> bool:
        """Whether a problem is too large to be placed unit by unit."""
        return bool(self.groups) and len(problem.units) > MOST_UNITS

    def candidates(self, policy: LearnedPolicy, problem: Problem, count: int, seed: int) -> Ints:
        """As `LearnedPlacer.candidates`."""
        assert isinstance(policy, SequentialPolicy)

        def of(problem: Problem) -> Ints:
            if self.cheap:
                return candidates_with_cheap_plans(policy, problem, count, seed, self.groups)
            return candidates_by_levels(policy, grains(problem, self.groups), count, seed)

        return placed_in_groups(problem, of) if self.groups else of(problem)


def build(
    *, checkpoint: str = "", network: str = "sequential", samples: int = 0, untrained: bool = False,
    cheap: bool = False, groups: int = GROUPS, order: bool = True, seconds: float = math.inf,
) -> SequentialPlacer:  # fmt: skip
    """A policy that places unit by unit, large problems in `groups` first; with `cheap`, cheap plans are candidates.

    Without `order`, ops run by the problem's rule though the policy may choose an order.
    """
    placer = SequentialPlacer.of(
        SequentialPolicy, network, checkpoint=checkpoint, samples=samples, untrained=untrained, seconds=seconds
    )
    knobs = {"cheap=yes": cheap, f"groups={groups}": groups != GROUPS, "order=no": not order}
    name = ",".join([placer.name, *(knob for knob, is_given in knobs.items() if is_given)])
    return replace(placer, name=name, cheap=cheap, groups=groups, order=order)
