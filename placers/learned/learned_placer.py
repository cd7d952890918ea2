"""LearnedPlacer: a policy as a placer, whichever policy that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from envs.objectives import evaluator_of
from envs.placer_result import PlacerResult
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.problem import Problem
from placers.learned.policy import LearnedPolicy
from placers.learned.policy_file import load_policy


@dataclass(frozen=True, eq=False)
class LearnedPlacer:
    """A policy's most likely placement, or the best of several of its candidates."""

    policy: LearnedPolicy | None
    name: str
    samples: int = 0  # placements to choose from, the greedy one among them; 0: as many as the budget allows
    untrained: Callable[[Problem], LearnedPolicy] | None = None  # without a policy: what makes one for a problem

    @classmethod
    def of(
        cls,
        placer: str,
        new: Callable[[str, int], LearnedPolicy],
        network: str,
        *,
        checkpoint: str,
        samples: int,
        untrained: bool,
        per_cluster: bool = False,
        hidden: int = 0,
    ) -> LearnedPlacer:
        """With the policy in a checkpoint folder; with an untrained one over a network only if that is asked for.

        `per_cluster`: a policy is for one number of devices, so that an untrained one is made for each problem.
        `hidden` is part of the placer's name. Raises InputError for both or neither, and as `load_policy` does.
        """
        if checkpoint and untrained:
            raise InputError(f"{placer}: give checkpoint={checkpoint} or untrained=yes, and not both")
        if not checkpoint and not untrained:
            raise InputError(
                f"placer {placer!r} has no trained policy; give {placer}:checkpoint=RUN with a run folder of `placelab "
                f"train`, or take 'default', the policy that comes with placelab; {placer}:untrained=yes places at "
                "random"
            )
        knobs = {
            "checkpoint": checkpoint,
            "samples": samples,
            "hidden": hidden,
            "untrained": "yes" if untrained else "",
        }
        name = by_name.spec_of(placer, {knob: value for knob, value in knobs.items() if value})
        if checkpoint:
            return cls(load_policy(Path(checkpoint), placer, new)[0], name, samples)
        if per_cluster:
            return cls(None, name, samples, partial(_for_cluster, new, network))
        return cls(new(network, 0), name, samples)

    def policy_for(self, problem: Problem) -> LearnedPolicy:
        """The policy that places a problem."""
        if self.policy is not None:
            return self.policy
        assert self.untrained is not None
        return self.untrained(problem)

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The most likely placement, unsimulated, if there is but one to choose from; else the best by simulation.

        Raises InputError if the policy is not for such a problem.
        """
        limit_torch_threads()
        choices = max(1, min(self.samples or budget, budget))
        placements = problem.made_allowed(self.policy_for(problem).candidates(problem, choices, seed))
        evaluator = evaluator_of(problem)
        best = evaluator.run_batch(placements).best() if len(placements) > 1 else 0
        return PlacerResult.of_units(problem, placements[best], self.name, seed, simulations=evaluator.simulations)


def _for_cluster(new: Callable[[str, int], LearnedPolicy], network: str, problem: Problem) -> LearnedPolicy:
    """An untrained policy for the problem's number of devices."""
    return new(f"{network},devices={len(problem.cluster)}", 0)
