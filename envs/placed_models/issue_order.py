"""The step of a model that is run by a plan, in the order in which PyTorch issues it.

The user's code runs call by call in one thread. Then autograd has a thread for each device, which issues the node that
was made last of those that are ready: what they read has been issued, though it may not have been computed. A device
works off what is issued to it strictly in that order; the plan's own order is not followed.

    issued to device 0    a  c  ...        backward:  c.grad and c.grad_weight  a.grad and a.grad_weight
    issued to device 1       b

One node of autograd computes the gradients of what an op reads together with those of its weights, and then others
may have the former; unless the latter wait, in nodes of their own, until there is nothing else to issue
(`envs.placed_models.weight_gradients`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from envs.costs.costs import costs_of
from envs.orders import priorities_of
from envs.placed_models.autograd_step import as_autograd_runs
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from graphs.op_graph import Bools, Floats, Ints, Phase
from graphs.problem import Problem
from graphs.runtime import IDEAL, PROGRAM

OF_WEIGHTS = ".grad_weight"
DEFERRED = tuple(
    f"aten.{function}{OF_WEIGHTS}" for function in ("addmm", "mm", "convolution", "embedding")
)  # what `weight_gradients.deferred` defers, as it is captured

_ISSUE_SECONDS = 1e-6  # of each op, while it is issued: as long as all are equal, it does not matter how much


def as_issued(problem: Problem, plan: Plan, *, defer: bool = False) -> tuple[Problem, Plan]:
    """A problem and a plan, with calls on one device each, whose simulation runs as `parallelize` does on GPUs.

    `defer` is its `defer_weight_gradients`. That copies wait for a GPU's earlier work, and the user's thread for
    anything, is not in it.
    """
    seconds, waits = costs_of(problem).op_seconds, _waits(problem, defer=defer)
    timed = replace(problem, op_seconds=_in_one_node(problem, seconds, waits))
    run, run_plan = as_autograd_runs(timed, replace(plan, order=program_order(problem, defer=defer)))
    return _strictly(run, run_plan)


def program_order(problem: Problem, *, defer: bool = False) -> tuple[float, ...]:
    """(ops,) the order of PyTorch (`envs.orders.program`), or with gradients of weights after all others."""
    graph = problem.graph
    issued = np.lexsort((priorities_of(problem, PROGRAM), _waits(problem, defer=defer), graph.phase))
    order = np.empty(len(graph))
    order[issued] = np.arange(len(graph))
    return tuple(order.tolist())


def _waits(problem: Problem, *, defer: bool) -> Bools:
    """(ops,) the gradients of weights that wait."""
    return np.array([defer and kind in DEFERRED for kind in problem.graph.kinds], np.bool_)


def _in_one_node(problem: Problem, seconds: Floats, waits: Bools) -> Floats:
    """(ops, devices) seconds, with gradients of weights that do not wait in those of what their op reads, if any."""
    graph, found = problem.graph, seconds.copy()
    is_gradient = graph.phase == Phase.BACKWARD
    of_weights = np.array([kind.endswith(OF_WEIGHTS) for kind in graph.kinds])
    others = np.flatnonzero(is_gradient & ~of_weights & (graph.mirror >= 0))
    other = dict(zip(graph.mirror[others].tolist(), others.tolist(), strict=True))  # by forward op
    for op in np.flatnonzero(is_gradient & of_weights & ~waits).tolist():
        node = other.get(int(graph.mirror[op]))
        if node is not None:
            held = np.where((found[op] > 0) & (found[node] > 0), problem.hold_seconds, 0.0)
            found[node] += found[op] + held
            found[op] = 0.0
    return found


def _strictly(problem: Problem, plan: Plan) -> tuple[Problem, Plan]:
    """The same, in which each device waits for what was issued to it before."""
    graph, place = problem.graph, _issue_order(problem, plan)
    takes_time = costs_of(problem).op_seconds.max(axis=1) > 0
    by_device = np.lexsort((place, plan.placement))
    by_device = by_device[takes_time[by_device]]
    same = plan.placement[by_device[:-1]] == plan.placement[by_device[1:]]
    follow = np.stack([by_device[:-1][same], by_device[1:][same]], axis=1)
    new = np.array(sorted(set(map(tuple, follow.tolist())) - set(map(tuple, graph.edges.tolist()))), np.int64)
    new = new.reshape(-1, 2)
    control = np.concatenate([graph.control, np.ones(len(new), np.bool_)])
    ordered = replace(graph, edges=np.concatenate([graph.edges, new]), control=control)
    numbers = np.empty(len(graph))
    numbers[place.argsort()] = np.arange(len(graph))
    return replace(problem, graph=ordered), replace(plan, order=tuple(numbers.tolist()))


def _issue_order(problem: Problem, plan: Plan) -> Ints:
    """(ops,) when each is issued, as a number: the backward pass by one thread for each device, all else by one."""
    graph, cluster = problem.graph, problem.cluster
    near = replace(
        cluster, latency=np.zeros_like(cluster.latency), bandwidth=np.full_like(cluster.bandwidth, np.inf),
        gap=np.zeros_like(cluster.gap),
    )  # fmt: skip
    alike = np.where(costs_of(problem).op_seconds > 0, _ISSUE_SECONDS, 0.0)
    begun = simulate(replace(problem, cluster=near, op_seconds=alike, runtime=IDEAL), plan).start
    position = np.empty(len(graph), np.int64)
    position[graph.topological_order] = np.arange(len(graph))
    begun = np.where(graph.phase == Phase.BACKWARD, begun, np.asarray(plan.order))
    issued = np.lexsort((position, begun, graph.phase))
    place = np.empty(len(graph), np.int64)
    place[issued] = np.arange(len(graph))
    return place
