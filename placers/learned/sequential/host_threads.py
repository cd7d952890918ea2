"""HostThreads: what a roll-out knows of the threads that issue ops to devices, which run them in that order.

An op cannot start before it has been issued (`envs.simulation.issuing`), and where devices are streams, a copy waits
for all that was issued to its source before (`envs.simulation.streams`). A roll-out in the order of issue keeps a clock
for each thread next to those of the devices:

    thread     | a | b | copy of a | c |              issued[thread]
    gpu:0          [ a ][ b ]                         clock[device]
    gpu:1                       ===[ c ]              the copy waits for its launch, and for b; then c for the copy

It is a little ahead of the simulator, which charges the thread for copies as soon as it has issued what they carry. A
roll-out knows who reads that only later, and charges for the copies before what reads them. Of calls that the thread
sees because their module is on several devices (`envs.simulation.seen_calls`), it counts those that it always sees.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np

from envs.costs.costs import Costs
from envs.orders import priorities_of
from graphs.op_graph import Bools, Floats, Ints, Phase
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from graphs.transforms.module_calls import ENTERING, ModuleCalls


class HostThreads(NamedTuple):
    """The threads of a problem's runtime; all is 0 or false of a machine without a host, or whose policy knows none."""

    clocked: bool  # whether issuing takes time
    streams: bool  # copies wait for what was issued to their source before, and for their own launch
    barrier: bool  # and occupy both devices
    thread: Ints  # (devices,) which issues to each device
    op: Floats  # (ops,) seconds to issue each; in all phases
    send: float  # seconds of the source's thread for each copy in the forward pass
    receive: float  # and of the destination's
    alone: Floats  # (devices,) seconds of the step with everything on each, as the runtime runs it

    @classmethod
    def none(cls, ops: int, alone: Floats) -> Self:
        """Those of a machine where issuing takes no time, on which everything takes (devices,) seconds `alone`."""
        nothing = np.zeros(len(alone), np.int64)
        return cls(False, False, False, nothing, np.zeros(ops), 0.0, 0.0, alone)

    @classmethod
    def of(cls, problem: Problem, costs: Costs, alone: Floats) -> Self:
        """Those of a problem's runtime; `alone` as in `none`."""
        host, runtime, devices = problem.host, problem.runtime, len(problem.cluster)
        threads = cls.none(len(problem.graph), alone)._replace(
            streams=runtime.streams, barrier=runtime.streams and runtime.copies == "barrier"
        )
        if host is None:
            return threads
        takes_time = costs.op_seconds.max(axis=1) > 0
        seconds = np.where(takes_time, host.seconds(problem.graph.phase), 0.0)
        thread = np.arange(devices) if host.per_device else np.zeros(devices, np.int64)
        by_process = host.per_device or host.in_order
        return threads._replace(
            clocked=True,
            thread=thread.astype(np.int64),
            op=seconds if by_process else seconds + _of_a_plan(problem, costs, takes_time),
            send=host.collective if by_process else host.forward + (host.placed if _sees_calls(problem) else 0.0),
            receive=host.collective if by_process else 0.0,
            alone=_alone(problem, costs, seconds),
        )


def program_position(problem: Problem, op_seconds: Floats) -> Ints | None:
    """(units,) where each unit's first op is in program order, numbered from 0; None where devices follow another."""
    if problem.runtime.order != PROGRAM:
        return None
    first = np.full(len(problem.units), np.inf)
    np.minimum.at(first, problem.graph.units, priorities_of(problem, op_seconds=op_seconds))
    position: Ints = np.lexsort((problem.units.first_position, first)).argsort()
    return position


def deferred_ops(problem: Problem, costs: Costs) -> Bools:
    """(ops,) the gradients of weights that wait, `Problem.deferred`, under costs that the problem need not have."""
    return (replace(problem, op_seconds=costs.op_seconds) if problem.op_seconds is None else problem).deferred


def _sees_calls(problem: Problem) -> bool:
    return problem.runtime.streams and not problem.runtime.plain


def _of_a_plan(problem: Problem, costs: Costs, takes_time: Bools) -> Floats:
    """(ops,) seconds more of a model that is run by a plan, of which all modules are on one device."""
    graph, host, more = problem.graph, problem.host, np.zeros(len(problem.graph))
    if host is None or not _sees_calls(problem):
        return more
    deferred = np.flatnonzero(deferred_ops(problem, costs))
    calls_of = graph.mirror[deferred] if len(deferred) else deferred
    calls = ModuleCalls.of(graph)
    mixed = calls.mixed(np.zeros(len(graph), np.int64), calls_of[calls_of >= 0])
    seen = (calls.of_op >= 0) & takes_time
    seen[seen] = mixed[calls.of_op[seen]]
    more[seen] = host.placed
    entered = np.flatnonzero(~mixed & mixed[calls.outer])
    more[calls.first(takes_time)[entered]] = host.placed * ENTERING * calls.times[entered]
    more[deferred] += host.deferral
    more[np.unique(calls_of[calls_of >= 0])] += host.deferral
    return more


def _alone(problem: Problem, costs: Costs, issue: Floats) -> Floats:
    """(devices,) seconds of the step with everything on each device, and no plan: ops start when they are issued.

    With i and s the seconds that it takes to issue and to run each op, in their order, that is the largest over all
    ops k of i[0] + ... + i[k] + s[k] + ... + s[last].
    """
    graph = problem.graph
    priority = priorities_of(problem, op_seconds=costs.op_seconds)
    turn = np.minimum(graph.phase, Phase.UPDATE) if problem.runtime.streams else np.zeros(len(graph), np.int64)
    order = np.lexsort((graph.topological_position, priority if len(priority) else turn, turn))
    seconds = costs.busy_seconds(problem)[order]
    rest = seconds[::-1].cumsum(axis=0)[::-1]
    ends: Floats = (issue[order].cumsum()[:, None] + rest).max(axis=0)
    return ends
