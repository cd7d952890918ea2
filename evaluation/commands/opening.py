"""The verb that opens a plan's step in the browser."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from evaluation.commands.arguments import AUTO, PLACERS, of_problem, tied_into
from evaluation.commands.switches import CACHE, CODE, switched
from evaluation.commands.verb_signatures import checked
from graphs.foundation.errors import InputError
from graphs.foundation.extras import check_extra

# Imported late, in the verb, as those of graph_verbs.
if TYPE_CHECKING:
    from typing import Unpack

    from envs.files.plan_file import SavedPlan
    from evaluation.commands.arguments import (
        ClusterLike,
        GraphLike,
        Groups,
        PlacerLike,
        PlanLike,
        PlanOptions,
        ProblemOptions,
    )
    from evaluation.comparing.simulated_plan import SimulatedPlan
    from graphs.files.graph_source import GraphSource
    from graphs.problem import Problem

MOST_PORT = 65_535


@switched(CACHE, CODE)
@checked
def open_page(
    graph: GraphLike,
    *,
    cluster: ClusterLike = "",
    plan: PlanLike | None = None,
    placer: PlacerLike | None = None,
    budget: int = 1000,
    seed: int = 0,
    port: int | None = None,
    browser: bool = True,
    **options: Unpack[ProblemOptions],
) -> SimulatedPlan:
    """Open a plan's step in the browser: what runs where and why it waits, and what changes when a module moves.

    The page answers who has the token of its address, until Ctrl-C; the plan that was made last is then shown.

    Args:
        graph: a graph file, a family spec such as `rnnlm:layers=4`, or `file.py:callable`.
        cluster: a cluster file or a preset, as `place` takes it.
        plan: a plan file to begin with, as `place --out` writes it; without it, the plan of the placer.
        placer: a placer to begin with; without it, that of `place --plans placement`. Others can be chosen on the page.
        budget: how many plans that placer may simulate.
        groups: the number of op groups that placers decide about, as `place` takes it. A module moves as a whole.
        optimizer: whose state occupies memory, as `place` takes it.
        precision: that of training, as `place` takes it.
        batch: samples of a step, as `place` takes it.
        training: a whole training step; without it, a forward pass.
        cost_model: what ops cost, as `place` takes it.
        runtime: how plans are run, as `place` takes it; others can be chosen on the page.
        order: in which order devices run what is ready, as `place` takes it.
        host: what it costs to issue ops, as `place` takes it.
        reserve: memory that tensors cannot have, as `place` takes it.
        seed: of everything random.
        port: the port of the page; without it, the first free one from 8760.
        browser: open the page in the browser; without it, only say where it is.

    """
    from evaluation.commands.given_plans import read_given
    from evaluation.commands.load_placer import load_placer
    from graphs.files.graph_source import graph_source

    _check(plan, placer, port)
    saved = None if plan is None else read_given(plan)
    chosen = load_placer(PLACERS["placement"] if placer is None else placer)
    problem = _problem(graph, cluster, saved, options)
    from evaluation.explorer.requests import Requests
    from evaluation.explorer.server import ExplorerServer, serve
    from evaluation.explorer.tried_steps import TriedSteps

    source = graph_source(graph)
    tried = TriedSteps(source, _tied(problem, source, options["groups"]), given=(graph, cluster, options["batch"]))
    if saved is not None:
        tried.begin(*_given(problem, saved))
    else:
        tried.begin_with(chosen, problem, budget=budget, seed=seed)
    serve(ExplorerServer(Requests(tried), port), browser=browser)
    return tried.last.placed


def _check(plan: PlanLike | None, placer: PlacerLike | None, port: int | None) -> None:
    """Raise InputError for two plans to begin with, and for a port that there cannot be."""
    check_extra("charts", "the page")
    if port is not None and port > MOST_PORT:
        raise InputError(f"port is {port}; expected a whole number from 1 to {MOST_PORT}")
    if plan is not None and placer is not None:
        raise InputError("a plan and a placer are two plans to begin with; leave one out")


def _problem(
    graph: GraphLike, cluster: ClusterLike, saved: PlanLike | SavedPlan | None, options: ProblemOptions
) -> Problem:
    """The problem of a plan or of the options; without op groups, as a module is moved by itself."""
    from evaluation.commands.given_plans import options_for
    from evaluation.commands.problems import asked_problems

    own = cast("PlanOptions", options.copy())
    own = {**(own if saved is None else options_for([saved], own)), "groups": None}
    asked = asked_problems([graph], [cluster] if cluster else [], **of_problem(own))
    (problem,) = asked(True)  # of plans that divide the batch, too
    return problem


def _given(problem: Problem, saved: PlanLike | SavedPlan) -> tuple[str, SimulatedPlan]:
    """What a plan that is given is called, and its step."""
    from envs.files.plan_file import SavedPlan
    from evaluation.comparing.simulated_plan import SimulatedPlan

    if isinstance(saved, SavedPlan):
        return saved.path.name, SimulatedPlan.of(problem, saved.of(problem))
    return "given", SimulatedPlan.of(problem, saved)


def _tied(problem: Problem, source: GraphSource, groups: Groups) -> Problem:
    """The problem as placers get it; of one that lists its own devices only a number ties ops."""
    from graphs.files.load import tied

    if problem.is_placed or (groups == AUTO and source.problem is not None):
        return problem
    return replace(problem, graph=tied(problem.graph, source, tied_into(groups)))
