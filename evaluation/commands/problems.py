"""Problems from what a user gives: all that can be refused is refused before a model is captured."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from envs.costs.costs import load_cost_model, timed
from envs.expansion.shares import of_batch
from evaluation.commands.arguments import AUTO, tied_into
from graphs.cluster import Cluster
from graphs.devices.reserve import CUDA, Reserve, reserve_of
from graphs.files.graph_source import GraphSource, graph_sources
from graphs.files.load import load_cluster, load_clusters, load_graph, load_suite
from graphs.files.suites import suite_specs
from graphs.formats.msr import BYTES_PER_SECOND
from graphs.foundation.by_name import Extension
from graphs.foundation.errors import InputError
from graphs.op_graph.optimizers import check_optimizer
from graphs.op_groups.grouping import MODULES, tie_ops
from graphs.problem import STEP_TIME, Problem, objective_of
from graphs.runtime import IDEAL, LONGEST_PATH, PROGRAM, Runtime, default_runtime, runtime_of
from graphs.transforms.batch import check_samples
from graphs.transforms.one_rank import is_one_rank, of_one_rank

if TYPE_CHECKING:
    from evaluation.commands.arguments import (
        ClusterLike,
        CostModelLike,
        GraphLike,
        Groups,
        ProblemOptions,
        TrainOptions,
    )
    from training.recipe import ProblemSet

CLUSTER = "p100:devices=2"  # unless one is given, or the graph's file lists devices
OPTIMIZER = "adam"
ONE_RANK = "ideal:order=program"  # how one rank runs its own step, unless it is said

_log = logging.getLogger("placelab")


def problem_of(
    graph: GraphLike,
    cluster: ClusterLike = "",
    *,
    objective: str = STEP_TIME.name,
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
    objective: str = STEP_TIME.name,
    **options: Unpack[ProblemOptions],
) -> Callable[[bool], list[Problem]]:
    """What makes the problems of a suite, or every graph on every cluster, as `problem_of` does.

    With a `batch`, steps have that many samples. Models are then captured twice, as they are for plans that divide the
    batch if the result is called with True, so that what grows with the batch is known exactly.

    All that can be refused is refused here. What takes long comes when the result is called, so that a verb can refuse
    other arguments first, such as a placer, and refuses these before it loads a policy, with seconds of imports.
    """
    groups, optimizer, batch = options.get("groups", AUTO), options.get("optimizer", AUTO), options.get("batch")
    precision = options.get("precision", AUTO)
    cost_model, training = options.get("cost_model", AUTO), options.get("training", True)
    if suite and not training:
        raise InputError(
            "`training=False` is about graphs that you name, and a suite has training steps; leave one out"
        )
    if optimizer != AUTO:
        check_optimizer(optimizer)
    if batch is not None:
        check_samples(batch)
    reserved = options.get("reserve", AUTO)
    reserve = None if reserved == AUTO else reserve_of(reserved)
    minimised = objective_of(objective).loaded()
    check_cost_model(cost_model)
    asked = options.get("runtime", AUTO), options.get("order", AUTO), options.get("host", AUTO)
    asked_runtime(*asked)  # refused here if one names nothing
    found = load_clusters(clusters)
    _check_reserve(reserve, found)
    suite_specs(suite)
    sources = [source.in_precision(precision) for source in graph_sources(graphs)]
    tied = tied_into(groups)
    for source in sources if tied == MODULES else []:
        source.check_has_modules()

    def problems(with_law: bool) -> list[Problem]:
        twice = with_law or batch is not None
        if suite:
            named = OPTIMIZER if optimizer == AUTO else optimizer
            made = load_suite(suite, groups=tied, optimizer=named, with_law=twice, precision=precision)
        else:
            made = [
                each
                for source in sources
                for each in _on_clusters(source, found, groups, optimizer, with_law=twice, training=training)
            ]
        ways = [runtime_for(each, *asked) for each in made]
        done = [timed(each, cost_model) for each in made]
        if batch is not None:  # once timed: measured times are of the model's own batch
            done = [of_batch(problem, batch) for problem in done]
        done = [_run(each, minimised, way) for each, way in zip(done, ways, strict=True)]
        return [_with_reserve(each, reserve, is_said=reserved != AUTO) for each in done]

    return problems


def check_cost_model(what: CostModelLike) -> None:
    """Raise InputError for a spec that names no cost model."""
    if what != AUTO:
        load_cost_model(what)


def recipe_changes(chosen: ProblemSet, options: TrainOptions) -> list[str]:
    """What options change of the problems of a recipe, as `Recipe.changed` takes it.

    Raises InputError for a runtime that there is not.
    """
    asked = options.get("runtime", AUTO), options.get("order", AUTO), options.get("host", AUTO)
    runtimes = tuple(asked_runtime(*asked, default=each) for each in chosen.runtimes)
    named = list(dict.fromkeys(each.name for each in runtimes))
    spec = named[0] if len(named) == 1 else f"[{', '.join(each.name for each in runtimes)}]"
    changes = {"runtime": spec, "order": LONGEST_PATH.name} if runtimes != chosen.runtimes else {}
    precision = options.get("precision", AUTO)
    changes |= {"precision": precision} if precision != AUTO else {}
    return [f"problems.{key}={value}" for key, value in changes.items()]


def asked_runtime(runtime: str = AUTO, order: str = AUTO, host: str = AUTO, *, default: Runtime = IDEAL) -> Runtime:
    """The runtime that `--runtime` names, or the default, with what `--order` and `--host` change of it.

    Each is "auto" where it is not given. Raises InputError for what names nothing.
    """
    knobs = {knob: text for knob, text in {"order": order, "host": host}.items() if text != AUTO}
    asked = (default if runtime == AUTO else runtime_of(runtime)).with_knobs(**knobs)
    asked.order.loaded()
    return asked


def runtime_for(problem: Problem, runtime: str, order: str = AUTO, host: str = AUTO) -> Runtime:
    """The runtime that is asked for. Raises InputError for one of plans, and a graph that is one rank's own."""
    if not is_one_rank(problem.graph, problem.cluster):
        return asked_runtime(runtime, order, host, default=_default_runtime(problem))
    way = asked_runtime(runtime, order, host, default=runtime_of(ONE_RANK))
    if way.host is not None or way.streams:
        raise InputError(
            f"{problem.graph.name!r} is what one rank runs, with collectives, and {way.name!r} is a way of running "
            f"plans; leave out `runtime` and `host`, which leaves {ONE_RANK!r}"
        )
    return way


def _run(problem: Problem, objective: Extension[Any], way: Runtime) -> Problem:
    """A timed problem with its objective and runtime; that of one rank, where the graph is what one runs."""
    found = replace(problem, objective=objective, runtime=way)
    if not is_one_rank(found.graph, found.cluster):
        return found
    return of_one_rank(found, in_order=way.order == PROGRAM)


def _with_reserve(problem: Problem, reserve: Reserve | None, *, is_said: bool) -> Problem:
    """With what is said; else what PyTorch and CUDA hold of GPUs, unless the cluster says it, or no host issues ops."""
    if not is_said and problem.host is not None:
        by_cluster = any(device.reserved_bytes or device.fragmentation for device in problem.cluster.devices)
        reserve = None if by_cluster else CUDA
    else:
        _check_reserve(reserve, [problem.cluster])
    return problem if reserve is None else replace(problem, cluster=reserve.on(problem.cluster))


def _check_reserve(reserve: Reserve | None, clusters: Sequence[Cluster]) -> None:
    """Raise InputError if it leaves tensors nothing of a GPU."""
    if reserve is not None:
        for cluster in clusters:
            reserve.check_room(cluster)


def _default_runtime(problem: Problem) -> Runtime:
    """How plans are run, unless it is said; of a workload on its own devices nothing is known but its times."""
    return IDEAL if problem.op_seconds is not None else default_runtime(problem.graph, problem.cluster)


def _on_clusters(
    source: GraphSource, clusters: Sequence[Cluster], groups: Groups, optimizer: str, *, with_law: bool, training: bool
) -> list[Problem]:
    """A graph on each cluster, or on the devices of its own file."""
    own = source.problem
    if own is not None and not clusters:
        if optimizer not in (AUTO, "none"):
            raise InputError(
                f"{source.name}: a workload says itself what its ops hold, the optimizer's state included; leave out "
                f"`optimizer={optimizer!r}`, or give none"
            )
        return [replace(own, graph=tie_ops(own.graph, groups)) if isinstance(groups, int) else own]
    loaded = load_graph(source, groups=tied_into(groups), with_law=with_law, training=training)
    if own is not None:
        said = "%s gives times of transfers, not bytes: on another cluster than its own they count as bytes at %g GB/s"
        _log.warning(said, source.name, BYTES_PER_SECOND / 1e9)
    named = OPTIMIZER if optimizer == AUTO else optimizer
    return [Problem(loaded, cluster, named) for cluster in clusters or [load_cluster(CLUSTER)]]
