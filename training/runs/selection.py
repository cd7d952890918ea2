"""Selection: which weights of a training run become its policy, chosen by problems that it does not learn from.

Greedy plans swing from one checkpoint to the next, on other problems more than on those of training. So the weights may
be averaged over the updates (Polyak and Juditsky 1992), and those are kept that place the validation problems best:
random ones, of kinds that are held out. By problems to evaluate on nothing may be chosen: there the last are kept.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import torch
from torch import Tensor

from envs.prepared_problem import PreparedProblem
from graphs.problem import Problem
from placers.learned.policy import SavedPolicy
from training.learning.ranks import ALONE, Ranks
from training.learning.trainer import below
from training.recipe import Validation

NOT_FITTING = 3.0  # times its step time is what a plan counts that does not fit

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Validated:
    """What some weights make of the validation problems, by their greedy plans."""

    update: int
    step_over_bound: float  # geometric mean of step seconds over the lower bound; of what does not fit, three times it
    fitting: float  # share of the plans that fit
    kept: bool  # whether they were the best until then, and may be chosen

    @property
    def record(self) -> dict[str, float]:
        """What is logged of it."""
        return {"validation/step_over_bound": self.step_over_bound, "validation/fitting": self.fitting}


class Selection:
    """Follows a policy while it is trained; simulations of validation teach nothing, and are not counted."""

    def __init__(
        self, settings: Validation, problems: Sequence[Problem], ranks: Ranks = ALONE, *, chooses: bool = True
    ) -> None:
        self.settings, self._chooses = settings, chooses
        self.validated: list[Validated] = []
        self._ranks = ranks
        self._problems = [PreparedProblem(problem) for problem in problems[ranks.rank :: ranks.count]]
        self._averaged: Weights = {}
        self._kept: Weights = {}

    def follow(self, policy: SavedPolicy, updates: int, *, is_last: bool) -> bool:
        """Take the weights after an update into account, and validate them when it is time; returns whether it was."""
        if not self.settings.every:
            return False
        share, now = self.settings.averaging, policy.state_dict()
        for key, value in now.items():
            before = self._averaged.get(key)
            self._averaged[key] = value.clone() if before is None else torch.lerp(value, before.to(value.device), share)
        is_due = is_last or updates % self.settings.every == 0
        if is_due:
            self._validate(policy, updates)
        return is_due

    def weights(self, policy: SavedPolicy) -> Weights:
        """The best that were validated, if they may be chosen, or those that the policy has now."""
        now = policy.state_dict()
        return self._kept or (now if self._chooses else self._averaged or now)

    def state(self) -> Weights:
        """Tensors from which a run is resumed."""
        if not self.settings.every:
            return {}
        tensors = {f"averaged.{key}": value for key, value in self._averaged.items()}
        tensors |= {f"kept.{key}": value for key, value in self._kept.items()}
        lines = [(each.update, each.step_over_bound, each.fitting, each.kept) for each in self.validated]
        return tensors | {"validated": torch.tensor(lines, dtype=torch.float64).reshape(-1, 4)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take a `state`, or that of a run that has validated nothing yet."""
        self._averaged, self._kept = below("averaged.", tensors), below("kept.", tensors)
        lines = tensors["validated"].tolist() if "validated" in tensors else []
        self.validated = [Validated(int(line[0]), line[1], line[2], bool(line[3])) for line in lines]

    def _validate(self, policy: SavedPolicy, updates: int) -> None:
        tested = copy.deepcopy(policy)
        tested.load_state_dict(self._averaged)
        of_ranks = self._ranks.gathered([tested.greedy(each) for each in self._problems])
        outcomes = [
            each for row in zip_longest(*of_ranks) for each in row if each is not None
        ]  # as they were dealt out
        mean = float(np.exp(np.mean([np.log(ratio * (1.0 if fits else NOT_FITTING)) for ratio, fits in outcomes])))
        is_best = self._chooses and mean < min((each.step_over_bound for each in self.validated), default=np.inf)
        if is_best:
            self._kept = {key: value.clone() for key, value in self._averaged.items()}
        fitting = float(np.mean([fits for _, fits in outcomes]))
        self.validated.append(Validated(updates, mean, fitting, is_best))
