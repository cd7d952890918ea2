"""Plans as verbs are given them, simulated as they were made for, unless other options are given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec.structs import asdict

from envs.files.plan_file import SavedPlan, read_plan
from envs.plans.conditions import Conditions
from evaluation.commands.arguments import AUTO, of_problem
from evaluation.commands.problems import problem_of
from evaluation.comparing.simulated_plan import SimulatedPlan
from graphs.foundation.errors import located
from graphs.foundation.files import check_readable

if TYPE_CHECKING:
    from evaluation.commands.arguments import ClusterLike, GraphLike, PlanLike, PlanOptions


def read_given(plan: PlanLike) -> PlanLike | SavedPlan:
    """What a plan file says, if it is one."""
    if not isinstance(plan, str | Path):
        return plan
    check_readable(Path(plan), "`placelab place GRAPH --out FILE` writes a plan")
    return read_plan(Path(plan))


def as_made(options: PlanOptions, plan: object) -> PlanOptions:
    """The options, with those that a plan was made for where none are given.

    Raises InputError if they name code in a file that was read (`named_in_file`).
    """
    made_for = getattr(plan, "made_for", None) or Conditions()
    said = {knob: value for knob, value in asdict(made_for).items() if value and options.get(knob, AUTO) == AUTO}
    if isinstance(plan, SavedPlan):
        with located(plan.path):
            Conditions(**said).check_no_code()
    return cast("PlanOptions", {**options, **said})


def options_for(saved: Sequence[PlanLike | SavedPlan], given: PlanOptions) -> PlanOptions:
    """The options that are given, and otherwise those that the first plan was made for."""
    options = as_made(given, saved[0])
    if given["groups"] == AUTO and not any(isinstance(each, SavedPlan) and each.is_of_groups for each in saved):
        options["groups"] = None
    return options


def simulated(
    graph: GraphLike, plan: PlanLike | SavedPlan, cluster: ClusterLike, objective: str, options: PlanOptions
) -> SimulatedPlan:
    """A plan, or one that was read, for the graph with the batch that is asked for, or else with its own."""
    problem = problem_of(graph, cluster, objective=objective, **of_problem(options))
    if not isinstance(plan, SavedPlan):
        found = plan
    elif options["batch"] is None or plan.is_for(problem):
        found = plan.of(problem)
    else:
        own = options.copy()
        own["batch"] = None
        found = plan.of(problem_of(graph, cluster, **of_problem(own)))
    own_order = options["order"] == AUTO
    placed = SimulatedPlan.of(problem, found, own_order=own_order, micro_batches=options["micro_batches"])
    if placed.plan.is_placement:
        return placed
    # parts of the batch, of whose costs the exact law is asked for here
    problem = problem_of(graph, cluster, objective=objective, with_law=True, **of_problem(options))
    return SimulatedPlan.of(problem, found, own_order=own_order, micro_batches=options["micro_batches"])
