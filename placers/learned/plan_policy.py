"""Policies that rate whole plans of a problem: what the trainer of whole plans asks of them."""

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from envs.plans.plan import Plan
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.learned.finite import check_outputs
from placers.learned.policy import SavedPolicy


class RatedPlans(Protocol):
    """A problem as a policy sees it: the plans that it may have, numbered."""

    @property
    def problem(self) -> Problem:
        """What is to be planned."""
        ...

    @property
    def rows(self) -> Tensor:
        """(plans, features) what is known of each."""
        ...

    @property
    def forms(self) -> Sequence[Hashable]:
        """(plans,) equal ones of plans that are alike."""
        ...

    @property
    def bound(self) -> float:
        """Seconds that no plan can beat, above 0."""
        ...

    def plan(self, number: int) -> Plan | None:
        """A plan by its number; None for one that the problem does not take."""
        ...

    def judged(self, number: int) -> tuple[float, bool]:
        """Step seconds by simulation, and whether it fits; infinite for one that the problem does not take."""
        ...


class PlanPolicy(SavedPolicy):
    """A distribution over plans of a problem."""

    trainer = "whole_plans"

    @abstractmethod
    def view(self, problem: Problem) -> RatedPlans:
        """What it sees of a problem, made once. Raises InputError if only op placements make sense for it."""

    @abstractmethod
    def logits(self, rows: Tensor) -> Tensor:
        """(plans,) of rows, (plans, features); differentiable."""

    @torch.no_grad()
    def ranked(self, view: RatedPlans) -> Ints:
        """(plans,) their numbers: the best rated of each form, then the others.

        The best rated of all is the first, and those after it differ: what is wrong for one is so for those like it.
        Raises NotFiniteError for weights that are no use.
        """
        scores = self.logits(view.rows)
        check_outputs(scores)
        order = np.argsort(-scores.double().numpy(), kind="stable").tolist()
        first = dict[Hashable, int]()
        for number in order:
            first.setdefault(view.forms[number], number)
        return np.array(list(dict.fromkeys([*first.values(), *order])), np.int64)
