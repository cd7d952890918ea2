"""PolicyPlacer: a policy as a placer; LearnedPlacer: one that places op by op, whichever policy that is."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial, reduce
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, SupportsIndex, TypeVar

import numpy as np

from envs.objectives import Evaluator, evaluator_of
from envs.plans.placer_result import PlacerResult
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.foundation.user_code import has_users_class
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.learned.candidate import Candidate
from placers.learned.lookup import learned_module
from placers.learned.policy import LearnedPolicy, SavedPolicy
from placers.learned.policy_file import load_policy
from placers.learned.policy_meta import load_meta
from placers.learned.rounds import ENCODING, rounds
from placers.search.starts import baseline

P = TypeVar("P", bound=SavedPolicy)
NEXT_ROUND = 1 << 24  # added to the seed of each round after the first


@dataclass(frozen=True, eq=False)
class PolicyPlacer(ABC, Generic[P]):
    """What all placers have in common that act with a policy, and can be fine-tuned."""

    divides_batch: ClassVar[bool] = False  # whether plans may divide the batch (`placers.contract.placer`)
    makes_fit: ClassVar[bool] = False  # whether it changes plans that do not fit in memory until they do

    policy: P | None
    name: str
    samples: int = 0  # plans to choose from, the greedy one among them; 0: as many as the budget allows
    untrained: Callable[[Problem], P] | None = None  # without a policy: what makes one for a problem
    seconds: float = math.inf  # a limit of processor seconds; the samples are as many as fit
    of_programs: P | None = None  # in place of `policy`, for plans that the ideal machine does not run

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
        seconds: float = math.inf,
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
            placer = cls(load_policy(Path(checkpoint), policy)[0], name, samples)
        elif policy.any_cluster:
            placer = cls(policy.new(network, 0), name, samples)
        else:
            placer = cls(None, name, samples, partial(_new_for, policy, network))
        return placer if math.isinf(seconds) else placer.within(seconds)

    @classmethod
    def with_network(
        cls,
        policy: type[P],
        *,
        checkpoint: str = "",
        network: str,
        samples: int = 0,
        untrained: bool = False,
        seconds: float = math.inf,
    ) -> Self:
        """The same, with the network as a knob: partially applied, the `build` of a learned placer."""  # fmt: skip
        return cls.of(policy, network, checkpoint=checkpoint, samples=samples, untrained=untrained, seconds=seconds)

    def policy_for(self, problem: Problem) -> P:
        """The policy that places a problem."""
        if self.of_programs is not None and not problem.runtime.is_ideal:
            return self.of_programs
        if self.policy is not None:
            return self.policy
        assert self.untrained is not None
        return self.untrained(problem)

    def within(self, seconds: float) -> Self:
        """As `placers.contract.time_limit.Stoppable.within`. Raises InputError for what is no time."""
        if not seconds > 0:
            raise InputError(f"{self.name}: seconds is {seconds}; expected a number > 0")
        if self.samples == 1 and not self.makes_fit:  # there is nothing to leave out
            return self
        name, knobs = by_name.parse(self.name)
        return replace(self, seconds=seconds, name=by_name.spec_of(name, {**knobs, "seconds": f"{seconds:g}"}))

    def sample_seconds(self, problem: Problem) -> float:  # noqa: ARG002 - for placers of which it was measured
        """An estimate of the processor seconds of a sample beyond the first, of any problem; 0 if there is none."""
        return 0.0

    def least_seconds(self, problem: Problem) -> float:
        """As `placers.contract.time_limit.Estimated.least_seconds`."""
        return (1 + ENCODING) * self.sample_seconds(problem)

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Another process does not find the classes of a user's file: it loads the policy from its folder."""
        checkpoint = by_name.parse(self.name)[1].get("checkpoint")
        if checkpoint is None or not has_users_class(self.policy):
            return super().__reduce_ex__(protocol)
        others = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "policy"}
        return _loaded_again, (checkpoint, others)

    @abstractmethod
    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """As `Placer.place`."""


@dataclass(frozen=True, eq=False)
class LearnedPlacer(PolicyPlacer[LearnedPolicy]):
    """A policy's most likely placement, or the best of several of its candidates."""

    order: bool = True  # whether a plan has the order that the policy chooses, if it chooses one
    beside_baseline: bool = False  # whether it chooses from METIS's plan, too, of problems of many units

    def candidates(self, policy: LearnedPolicy, problem: Problem, count: int, seed: int) -> Ints:
        """At most `count` placements to choose from, (count, units); the first is the most likely one."""
        return policy.candidates(problem, count, seed)

    def orders(self, policy: LearnedPolicy, problem: Problem, placements: Ints) -> Floats | None:
        """(plans, ops) priorities that the policy chooses for (plans, units) placements; None: the problem's rule."""
        return policy.likely_orders(problem, placements)

    def best(self, evaluator: Evaluator, placements: Ints, orders: Floats | None) -> Candidate:
        """The best of (plans, units) placements by simulation, under their (plans, ops) orders if they have some."""
        return Candidate.best_of(evaluator, placements, orders)

    def made_to_fit(
        self,
        evaluator: Evaluator,  # noqa: ARG002 - for placers that make plans fit
        candidate: Candidate,
        simulations: int,  # noqa: ARG002 - as well
        seconds: float,  # noqa: ARG002 - as well
    ) -> Candidate:
        """What at most so many simulations, and processor seconds, make of a candidate that does not fit in memory."""
        return candidate  # as it is

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The most likely placement, if there is but one to choose from; else the best by simulation.

        Without a choice nothing is simulated, but by a placer that makes plans fit, with a budget above 1.

        The plan has an order of its own if the policy chooses one, and placements are compared under theirs. The last
        simulation then is of the best placement under the problem's rule, or under its order if it was not simulated
        so, which is kept if it is faster. Within a limit of seconds it is so in each round of samples.
        Where METIS's plan is among what it chooses from, that is simulated first, under the problem's rule.
        Raises InputError if the policy is not for such a problem.
        """
        limit_torch_threads()
        began = time.process_time()
        choices = max(1, min(self.samples or budget, budget))
        policy, simulations, notes = self.policy_for(problem), 0, tuple[str, ...]()
        if choices == 1 and not (self.makes_fit and budget > 1):
            placements, orders = self._drawn(policy, problem, 1, seed)
            chosen, order = placements[0], None if orders is None else orders[0]
        else:
            evaluator = evaluator_of(problem)
            others, notes = self._others(evaluator, choices, seed)
            left = self.seconds - (time.process_time() - began)
            several = (
                self._fitting(policy, evaluator, count, seed + number * NEXT_ROUND, budget, began)
                for number, count in enumerate(rounds(left, choices - len(others), self.sample_seconds(problem)))
            )
            best = reduce(Candidate.or_other, chain(others, several))
            chosen, order, simulations = best.placement, best.order, evaluator.simulations
        return PlacerResult.of_units(
            problem, chosen, self.name, seed, simulations=simulations, notes=notes, order=order
        )

    def _others(self, evaluator: Evaluator, choices: int, seed: int) -> tuple[list[Candidate], tuple[str, ...]]:
        """The one candidate that is not the policy's, METIS's plan, if there is to be one; and notes."""
        if not self.beside_baseline or choices == 1:
            return [], ()
        known = baseline(evaluator.problem, seed, self.seconds)
        return [Candidate.best_of(evaluator, each[None], None) for each in known.placements], known.notes

    def _fitting(
        self, policy: LearnedPolicy, evaluator: Evaluator, count: int, seed: int, budget: int, began: float
    ) -> Candidate:
        """The best of some samples; where none fits, what the rest of the budget and of the time makes of it."""
        best = self._best(policy, evaluator, *self._drawn(policy, evaluator.problem, count, seed))
        left = self.seconds - (time.process_time() - began)
        return best if best.outcome.fits else self.made_to_fit(evaluator, best, budget - evaluator.simulations, left)

    def _drawn(self, policy: LearnedPolicy, problem: Problem, count: int, seed: int) -> tuple[Ints, Floats | None]:
        """At most `count` placements, (plans, units), and their orders, (plans, ops), if plans have some."""
        placements = problem.made_allowed(self.candidates(policy, problem, count, seed))
        return placements, self.orders(policy, problem, placements) if self.order else None

    def _best(self, policy: LearnedPolicy, evaluator: Evaluator, placements: Ints, orders: Floats | None) -> Candidate:
        """The best of some placements, in as many simulations."""
        if orders is None or len(placements) == 1:
            return self.best(evaluator, placements, orders)
        kept = np.arange(len(placements)) != max(1, len(placements) - 2)  # not the last: it fills least of the memory
        best = self.best(evaluator, placements[kept], orders[kept])
        if best.order is not None:
            return best.or_by(evaluator, None)
        other = self.orders(policy, evaluator.problem, best.placement[None])
        return best if other is None else best.or_by(evaluator, other[0])


def _loaded_again(checkpoint: str, others: dict[str, Any]) -> PolicyPlacer[Any]:
    """A placer from a user's file, with the policy in a folder, which the process that sends it was allowed to load."""
    placer: PolicyPlacer[Any] = learned_module(load_meta(Path(checkpoint)).spec).build(checkpoint=checkpoint)
    return replace(placer, **others)


def _new_for(policy: type[P], network: str, problem: Problem) -> P:
    """An untrained policy for as many devices as a problem has; by its name, as other processes are given it."""
    return policy.new(f"{network},devices={len(problem.cluster)}", 0)
