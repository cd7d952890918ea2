"""PolicyPlacer: a policy as a placer; LearnedPlacer: one that places op by op, whichever policy that is."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Generic, Self, TypeVar

import numpy as np

from envs.objectives import Evaluator, evaluator_of
from envs.plans.placer_result import PlacerResult
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.learned.candidate import Candidate
from placers.learned.policy import LearnedPolicy, SavedPolicy
from placers.learned.policy_file import load_policy

P = TypeVar("P", bound=SavedPolicy)


@dataclass(frozen=True, eq=False)
class PolicyPlacer(ABC, Generic[P]):
    """What all placers have in common that act with a policy, and can be fine-tuned."""

    divides_batch: ClassVar[bool] = False  # whether plans may divide the batch (`placers.contract.placer`)

    policy: P | None
    name: str
    samples: int = 0  # plans to choose from, the greedy one among them; 0: as many as the budget allows
    untrained: Callable[[Problem], P] | None = None  # without a policy: what makes one for a problem

    @classmethod
    def of(
        cls,
        policy: type[P],
        network: str,
        *,
        checkpoint: str,
        samples: int,
        untrained: bool,
        hidden: int = 0,
    ) -> Self:
        """With the policy in a checkpoint folder; with an untrained one over a network only if that is asked for.

        An untrained policy for one number of devices is made for each problem. `hidden` is part of the placer's name.
        Raises InputError for both or neither, and as `load_policy` does.
        """  # fmt: skip
        if checkpoint and untrained:
            raise InputError(f"{policy.kind}: give checkpoint={checkpoint} or untrained=yes, and not both")
        if not checkpoint and not untrained:
            raise InputError(
                f"placer {policy.kind!r} has no trained policy; give {policy.kind}:checkpoint=RUN with a run folder of "
                "`placelab train`, or take 'default', the policy that comes with placelab; "
                f"{policy.kind}:untrained=yes places at random"
            )
        knobs = {"checkpoint": checkpoint, "samples": samples, "hidden": hidden, "untrained": untrained and "yes"}
        name = by_name.spec_of(policy.kind, {knob: value for knob, value in knobs.items() if value})
        if checkpoint:
            return cls(load_policy(Path(checkpoint), policy)[0], name, samples)
        if policy.any_cluster:
            return cls(policy.new(network, 0), name, samples)
        return cls(None, name, samples, partial(_new_for, policy, network))

    @classmethod
    def with_network(
        cls,
        policy: type[P],
        *,
        checkpoint: str = "",
        network: str,
        samples: int = 0,
        untrained: bool = False,
    ) -> Self:
        """The same, with the network as a knob: partially applied, the `build` of a learned placer."""  # fmt: skip
        return cls.of(policy, network, checkpoint=checkpoint, samples=samples, untrained=untrained)

    def policy_for(self, problem: Problem) -> P:
        """The policy that places a problem."""
        if self.policy is not None:
            return self.policy
        assert self.untrained is not None
        return self.untrained(problem)

    @abstractmethod
    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """As `Placer.place`."""


@dataclass(frozen=True, eq=False)
class LearnedPlacer(PolicyPlacer[LearnedPolicy]):
    """A policy's most likely placement, or the best of several of its candidates."""

    order: bool = True  # whether a plan has the order that the policy chooses, if it chooses one

    def candidates(self, policy: LearnedPolicy, problem: Problem, count: int, seed: int) -> Ints:
        """At most `count` placements to choose from, (count, units); the first is the most likely one."""
        return policy.candidates(problem, count, seed)

    def orders(self, policy: LearnedPolicy, problem: Problem, placements: Ints) -> Floats | None:
        """(plans, ops) priorities that the policy chooses for (plans, units) placements; None: the problem's rule."""
        return policy.likely_orders(problem, placements)

    def best(self, evaluator: Evaluator, placements: Ints, orders: Floats | None) -> Candidate:
        """The best of (plans, units) placements by simulation, under their (plans, ops) orders if they have some."""
        return Candidate.best_of(evaluator, placements, orders)

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The most likely placement, unsimulated, if there is but one to choose from; else the best by simulation.

        The plan has an order of its own if the policy chooses one, and placements are compared under theirs. The last
        simulation then is of the best placement under the problem's rule, or under its order if it was not simulated
        so, which is kept if it is faster.
        Raises InputError if the policy is not for such a problem.
        """
        limit_torch_threads()
        choices = max(1, min(self.samples or budget, budget))
        policy = self.policy_for(problem)
        placements = problem.made_allowed(self.candidates(policy, problem, choices, seed))
        orders = self.orders(policy, problem, placements) if self.order else None
        evaluator = evaluator_of(problem)
        if len(placements) == 1:
            chosen, order = placements[0], None if orders is None else orders[0]
        else:
            best = self._best(policy, evaluator, placements, orders)
            chosen, order = best.placement, best.order
        return PlacerResult.of_units(problem, chosen, self.name, seed, simulations=evaluator.simulations, order=order)

    def _best(self, policy: LearnedPolicy, evaluator: Evaluator, placements: Ints, orders: Floats | None) -> Candidate:
        """The best of two placements or more, in as many simulations."""
        if orders is None:
            return self.best(evaluator, placements, None)
        kept = np.arange(len(placements)) != max(1, len(placements) - 2)  # not the last: it fills least of the memory
        best = self.best(evaluator, placements[kept], orders[kept])
        if best.order is not None:
            return best.or_by(evaluator, None)
        other = self.orders(policy, evaluator.problem, best.placement[None])
        return best if other is None else best.or_by(evaluator, other[0])


def _new_for(policy: type[P], network: str, problem: Problem) -> P:
    """An untrained policy for as many devices as a problem has; by its name, as other processes are given it."""
    return policy.new(f"{network},devices={len(problem.cluster)}", 0)
