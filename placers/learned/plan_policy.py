"""Policies that make whole plans, pipelines, decision by decision: what the trainer of whole plans asks of them."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
from torch import Tensor

from envs.costs.costs import costs_of
from envs.pipelines.pipeline import LayerPipeline
from envs.plans.plan import Plan
from envs.prepared_problem import PreparedProblem
from envs.simulation.bounds import work_bound
from graphs.problem import Problem
from placers.learned.policy import SavedPolicy, View

Decision = TypeVar("Decision")
Label = tuple[int, ...]  # the actions that construct the best pipeline that is known; none if none is known that fits


class PlanPolicy(SavedPolicy, Generic[View, Decision]):
    """A distribution over the actions of each decision of a pipeline's construction."""

    trainer = "whole_plans"

    @abstractmethod
    def view(self, problem: Problem) -> View:
        """What it sees of a problem, made once. Raises InputError if only op placements make sense for it."""

    @abstractmethod
    def draw(self, view: View, rng: np.random.Generator | None = None) -> tuple[LayerPipeline, list[Decision]]:
        """A pipeline of the most likely actions or, with a generator, of drawn ones; and what was decided."""

    @abstractmethod
    def promising(self, view: View, count: int, seed: int) -> list[LayerPipeline]:
        """At most `count` pipelines, none of them simulated, the most promising first."""

    @abstractmethod
    def judge(self, view: View, pipeline: LayerPipeline) -> tuple[float, bool]:
        """Step seconds of a pipeline that was drawn, as it is planned, and whether that fits."""

    @abstractmethod
    def seconds_alone(self, view: View) -> float:
        """Seconds of a step on the fastest device alone, above 0."""

    @abstractmethod
    def plan(self, view: View, pipeline: LayerPipeline) -> Plan:
        """The plan of a pipeline that was drawn."""

    @abstractmethod
    def score(self, decisions: Sequence[Decision]) -> tuple[Tensor, Tensor]:
        """(decisions,) log-probability of each, and entropy in nats; differentiable."""

    @classmethod
    @abstractmethod
    def search(cls, problem: Problem, simulations: int) -> Label:
        """The label of a problem, found by a search of `simulations` simulations that does not use a policy."""

    @abstractmethod
    def decisions_of(self, view: View, label: Label) -> list[Decision]:
        """Those that lead to a label."""

    def greedy(self, known: PreparedProblem) -> tuple[float, bool]:
        """As `SavedPolicy.greedy`."""
        view = self.view(known.problem)
        seconds, fits = self.judge(view, self.promising(view, 1, 0)[0])
        return seconds / bound_of_plans(known.problem), fits


def bound_of_plans(problem: Problem) -> float:
    """Seconds that no plan can beat, whether it divides the batch or not, and a nanosecond at least."""
    return max(work_bound(problem, costs_of(problem).op_seconds), 1e-9)
