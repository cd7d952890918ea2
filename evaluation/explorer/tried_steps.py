"""TriedSteps: the plans that a user has looked at, one after another, each with its simulated step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from envs.plans.placer_result import PlacerResult
from evaluation.commands.load_placer import load_placer
from evaluation.commands.problems import runtime_for
from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.explorer.moved_modules import moved
from graphs.files.graph_source import GraphSource
from graphs.foundation.code_in_files import named_in_file
from graphs.foundation.errors import InputError, located
from graphs.problem import Problem
from placers.contract.placer import Placer

MOST = 40  # steps that are kept: bounds the memory
BY_HAND = "by hand"  # who decided on a plan after a module was moved


@dataclass(frozen=True, eq=False)
class TriedStep:
    """A plan, its step, and what it came from."""

    number: int
    title: str
    placed: SimulatedPlan
    before: int = 0  # number of the step that it was made from; 0 if none


@dataclass(eq=False)
class TriedSteps:
    """Steps by their numbers, from 1. What makes a new one returns it; all raise InputError for what cannot be."""

    source: GraphSource  # of the model, for exports
    tied: Problem  # with op groups, as placers place it
    steps: dict[int, TriedStep] = field(default_factory=dict)
    given: tuple[object, object, int | None] = (
        None,
        None,
        None,
    )  # graph, cluster and batch, as the verb was given them

    def begin(self, title: str, placed: SimulatedPlan) -> TriedStep:
        """Add a plan that is given."""
        return self._add(title, placed, 0)

    def begin_with(self, placer: Placer, problem: Problem, *, budget: int, seed: int) -> TriedStep:
        """Add what a placer finds for the problem, without op groups as steps are simulated."""
        return self._placed(placer, problem, 0, budget=budget, seed=seed)

    @property
    def last(self) -> TriedStep:
        """The newest."""
        return next(reversed(self.steps.values()))

    def __getitem__(self, number: int) -> TriedStep:
        if number not in self.steps:
            raise InputError(f"there is no step {number}; there are {', '.join(map(str, self.steps))}")
        return self.steps[number]

    def file_name(self, step: TriedStep) -> str:
        """What the plan file of a step is called when it is downloaded."""
        return f"step{step.number}.plan.json"

    def commands(self, step: TriedStep) -> tuple[str, ...]:
        """The lines that run a step's plan once it is downloaded; none for a graph or a cluster that is an object."""
        graph, cluster, batch = self.given
        return step.placed.with_commands(graph, cluster, self.file_name(step), batch).to_run

    def move(self, number: int, module: str, device: str) -> TriedStep:
        """Step `number` with a module, or one op, on another device (`moved`)."""
        before = self[number].placed
        plan = moved(before.problem, before.plan, module, device)
        conditions = before.conditions
        result = PlacerResult(plan, BY_HAND, before.result.seed, made_for=conditions)
        return self._add(f"{module or 'all'} to {device}", SimulatedPlan.of(before.problem, result), number)

    def place(self, number: int, placer: str, *, budget: int, seed: int) -> TriedStep:
        """What a placer finds, under the runtime of step `number`."""
        with located("placer"):
            chosen = load_placer(named_in_file(placer))
        return self._placed(chosen, self[number].placed.problem, number, budget=budget, seed=seed)

    def run_as(self, number: int, runtime: str) -> TriedStep:
        """The plan of step `number` under another runtime."""
        with located("runtime"):
            before, way = self[number].placed, runtime_for(self.tied, named_in_file(runtime))
        result = replace(before.result, made_for=None)
        placed = SimulatedPlan.of(replace(before.problem, runtime=way), result)
        return self._add(f"under {way.name}", placed, number)

    def _placed(self, placer: Placer, problem: Problem, before: int, *, budget: int, seed: int) -> TriedStep:
        tied = self.tied if self.tied.runtime == problem.runtime else replace(self.tied, runtime=problem.runtime)
        found = SimulatedPlan.by(placer, tied, seed=seed, budget=budget)
        return self._add(placer.name, SimulatedPlan.of(problem, found.result, found.search_seconds), before)

    def _add(self, title: str, placed: SimulatedPlan, before: int) -> TriedStep:
        step = TriedStep(max(self.steps, default=0) + 1, title, placed, before)
        self.steps[step.number] = step
        if len(self.steps) > MOST:
            del self.steps[sorted(self.steps)[1]]  # the first one stays, to compare with
        return step
