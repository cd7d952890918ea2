"""Problems from what a user gives: all that can be refused is refused before a model is captured."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from envs.costs.costs import load_cost_model, timed
from envs.expansion.shares import of_batch
from envs.objectives import load_objective
from envs.orders import load_order
from evaluation.commands.arguments import AUTO, tied_into
from graphs.batch import check_samples
from graphs.cluster import Cluster
from graphs.formats.msr import BYTES_PER_SECOND, is_workload
from graphs.foundation.errors import InputError
from graphs.grouping import MODULES, Grouping, tie_ops
from graphs.load import (
    check_modules,
    load_cluster,
    load_clusters,
    load_graph,
    load_suite,
    opened_graphs,
    problem_in_file,
)
from graphs.op_graph import OpGraph
from graphs.problem import DEFAULT_ORDER, STEP_TIME, Problem, check_optimizer
from graphs.suites import suite_specs
from graphs.whole_modules import tie_modules

if TYPE_CHECKING:
    from evaluation.commands.arguments import ClusterLike, CostModelLike, GraphLike, Groups, ProblemOptions

CLUSTER = "p100:devices=2"  # unless one is given, or the graph's file lists devices
OPTIMIZER = "adam"

_log = logging.getLogger("placelab")


def problem_of(
    graph: GraphLike,
    cluster: ClusterLike = "",
    *,
    objective: str = STEP_TIME,
    with_law: bool = False,
    **options: Unpack[ProblemOptions],
) -> Problem:
    """The problem of placing a graph on a cluster.

    Without a cluster it is the devices that the graph's file lists, if it does; such a workload is not tied into groups
    and gives itself what its ops hold and how long they take. A model is captured twice if its graph is to be
    `with_law` (`graphs.capture.second_batch`). Raises InputError, before anything is captured, for
    arguments that no problem can be made of.
    """
    asked = asked_problems([graph], [cluster] if cluster else [], objective=objective, **options)
    (problem,) = asked(with_law)
    return problem


def asked_problems(
    graphs: Sequence[GraphLike],
    clusters: Sequence[ClusterLike] = (),
    *,
    suite: str = "",
    objective: str = STEP_TIME,
    **options: Unpack[ProblemOptions],
) -> Callable[[bool], list[Problem]]:
    """What makes the problems of a suite, or every graph on every cluster, as `problem_of` does.

    With a `batch`, steps have that many samples. Models are then captured twice, as they are for plans that divide the
    batch if the result is called with True, so that what grows with the batch is known exactly.

    All that can be refused is refused here. What takes long comes when the result is called, so that a verb can refuse
    other arguments first, such as a placer, and refuses these before it loads a policy, with seconds of imports.
    """
    groups, optimizer, batch = options.get("groups", AUTO), options.get("optimizer", AUTO), options.get("batch")
    cost_model, training = options.get("cost_model", AUTO), options.get("training", True)
    if suite and not training:
        raise InputError(
            "`training=False` is about graphs that you name, and a suite has training steps; leave one out"
        )
    if optimizer != AUTO:
        check_optimizer(optimizer)
    if batch is not None:
        check_samples(batch)
    load_objective(objective)  # refused here if there is no such objective
    check_cost_model(cost_model)
    rule = order_of(options.get("order", AUTO))
    found = load_clusters(clusters)
    suite_specs(suite)
    opened = iter(opened_graphs([graph for graph in graphs if not isinstance(graph, tuple)]))
    loaded = [graph if isinstance(graph, tuple) else next(opened) for graph in graphs]
    tied = tied_into(groups)
    for graph in loaded if tied == MODULES else []:
        if not isinstance(graph, tuple):
            check_modules(graph)

    def problems(with_law: bool) -> list[Problem]:
        twice = with_law or batch is not None
        if suite:
            named = OPTIMIZER if optimizer == AUTO else optimizer
            made = load_suite(suite, groups=tied, optimizer=named, with_law=twice)
        else:
            made = [
                each
                for graph, known in zip(graphs, loaded, strict=True)
                for each in _on_clusters(graph, known, found, groups, optimizer, with_law=twice, training=training)
            ]
        # A workload on its own devices has its times already.
        done = [p if cost_model == AUTO and p.op_seconds is not None else timed(p, cost_model) for p in made]
        if batch is not None:  # once timed: measured times are of the model's own batch
            done = [of_batch(problem, batch) for problem in done]
        return [replace(problem, objective=objective, order=rule) for problem in done]

    return problems


def graph_of(graph: GraphLike, *, groups: Grouping = None, training: bool = True, with_law: bool = False) -> OpGraph:
    """The graph that text, a path, a graph, or a module with its example inputs names.

    A graph `with_law` knows what does not grow with its batch. Raises InputError as `graphs.load.load_graph` and
    `graphs.capture.forward.capture` do.
    """
    if not isinstance(graph, tuple):
        loaded = load_graph(graph, groups=groups, training=training, with_law=with_law)
        if loaded.is_training and not training:
            raise InputError(
                f"{loaded.name!r} is a training step already; leave out `training=False`, or give it to the verb that "
                "captured its model"
            )
        return loaded
    from graphs.capture.examples import given_example  # with torch, seconds to import
    from graphs.capture.forward import traced_example
    from graphs.capture.second_batch import with_law as of_two_batches
    from graphs.capture.training_step import training_step

    name = type(graph[0]).__name__
    example = given_example(graph, name, name=name)

    def capture(samples: int = 0) -> OpGraph:
        traced = traced_example(example.resized(samples) if samples else example)
        if training and not samples:
            traced.warn_of_eval()
        forward = traced.build()
        return training_step(forward) if training else forward

    captured = of_two_batches(capture(), capture) if with_law else capture()
    if groups == MODULES:
        return tie_modules(captured, example.module)
    return captured if groups is None else tie_ops(captured, groups)


def check_cost_model(what: CostModelLike) -> None:
    """Raise InputError for a spec that names no cost model."""
    if what != AUTO:
        load_cost_model(what)


def order_of(what: str, otherwise: str = DEFAULT_ORDER) -> str:
    """The rule that `--order` names, another one for "auto". Raises InputError for a spec that names no rule."""
    if what == AUTO:
        return otherwise
    load_order(what)
    return what


def _on_clusters(
    graph: GraphLike, opened: GraphLike, clusters: Sequence[Cluster], groups: Groups, optimizer: str, *,
    with_law: bool, training: bool,
) -> list[Problem]:  # fmt: skip
    """A graph, as it was given and as it was opened, on each cluster, or on the devices of its own file."""
    own = None if clusters or isinstance(graph, OpGraph | tuple) else problem_in_file(graph)
    if own is not None:
        if optimizer not in (AUTO, "none"):
            raise InputError(
                f"{graph}: a workload says itself what its ops hold, the optimizer's state included; leave out "
                f"`optimizer={optimizer!r}`, or give none"
            )
        return [replace(own, graph=tie_ops(own.graph, groups)) if isinstance(groups, int) else own]
    loaded = graph_of(opened, groups=tied_into(groups), with_law=with_law, training=training)
    if clusters and isinstance(graph, str | Path) and is_workload(Path(graph)):
        _log.warning(
            "%s gives times of transfers, not bytes: on another cluster than its own they count as bytes at %g GB/s",
            graph, BYTES_PER_SECOND / 1e9,
        )  # fmt: skip
    named = OPTIMIZER if optimizer == AUTO else optimizer
    return [Problem(loaded, cluster, named) for cluster in clusters or [load_cluster(CLUSTER)]]
