"""Lower bounds: seconds that no placement of a problem, or no plan of a kind, can beat, whichever the order."""

import numpy as np

from envs.costs.costs import Costs, costs_of
from envs.expansion.layout import Layout
from envs.expansion.shards.shards import Partition, least_shares
from envs.plans.plan import Plan
from envs.simulation.compiled import compiled
from graphs.op_graph import Bools, Floats, Ints, Phase
from graphs.op_graph.paths import longest_remaining
from graphs.problem import Problem


def lower_bound(problem: Problem, plan: Plan | None = None) -> float:
    """The largest of the path bound, the work bound and the host bound, in seconds, of all op placements.

    With a plan that is none, a bound of the plans with the same micro-batches, and the same number of replicas of each
    op. They may beat all placements: what divides the batch divides the critical path, too.
    """
    seconds = costs_of(problem).op_seconds
    if plan is None or plan.is_placement:
        return max(bound_of_devices(problem, seconds), host_bound(problem, seconds))
    path, host = divided_path_bound(problem, plan, seconds), host_bound(problem, seconds, processes=True)
    return max(path, work_bound(problem, seconds), host)


def bound_of_devices(problem: Problem, op_seconds: Floats) -> float:
    """The larger of the path bound and the work bound: seconds that no placement can beat, however fast the host is."""
    return max(path_bound(problem, op_seconds), work_bound(problem, op_seconds))


def path_bound(problem: Problem, op_seconds: Floats) -> float:
    """The critical path, every op placed as suits each path best, with the transfers and launches in between.

    earliest[v, d] = op_seconds[v, d] + max over edges (u, v) of min over devices e of (earliest[u, e] + delay(u, e, d))
    is no later than the end of v on d in any run: v starts after each producer's end, plus the transfer (none for a
    control edge) or, if both are on one device, the launch hold. Queues only add to it. An op that takes no time waits
    for no hold, but what follows it does: so each op has a second time, `rested`, before which no op that takes
    time can follow it on its device.
    """
    graph, cluster = problem.graph, problem.cluster
    offsets, edges = graph.predecessors
    earliest, rested = np.zeros_like(op_seconds, order="C"), np.zeros_like(op_seconds, order="C")
    # Copies: arrays that were read-only can be written once another process has received them, and code is compiled
    # for one of the two.
    order, latency, bandwidth = graph.topological_order.copy(), cluster.latency.copy(), cluster.bandwidth.copy()
    _fill_earliest(
        order, offsets, graph.edges[edges, 0], graph.control[edges], graph.carried_bytes[edges],
        np.array(op_seconds, order="C"), problem.hold_seconds, latency, bandwidth, rested, earliest,
    )  # fmt: skip
    return float(earliest.min(axis=1).max())


def host_bound(problem: Problem, op_seconds: Floats, *, processes: bool = False) -> float:
    """The least that threads take to issue the ops of a placement, or of a plan that is run by processes; 0 without.

    One thread issues all ops, or a thread for each device those of its own, or of one process the backward pass alone.
    Only ops that take time on every device count, each once, and nothing that a thread takes longer for what a plan
    does.
    """
    host, phase = problem.host, problem.graph.phase
    if host is None:
        return 0.0
    seconds = np.where(op_seconds.min(axis=1) > 0, host.seconds(phase), 0.0)
    divided = np.ones(len(phase), np.bool_) if host.per_device or processes else phase == Phase.BACKWARD
    if host.in_order and not (host.per_device or processes):
        divided[:] = False
    return float(seconds[~divided].sum() + seconds[divided].sum() / len(problem.cluster))


def divided_path_bound(problem: Problem, plan: Plan, op_seconds: Floats) -> float:
    """The critical path of one micro-batch through one replica of each op, each op where it takes least time.

    In a plan that is expanded, each copy of an op follows a copy of each of the op's producers, and takes at least its
    share of the seconds of the whole batch; with ZeRO, each replica updates its part of the weights. No transfers are
    counted, since these may be cut in slices of any size, and may go by other devices. Work that is repeated, sums of
    gradients and orders of passes only add to the path.
    """
    layout = Layout(problem, plan)
    share = least_shares(Partition(layout)) if plan.split else layout.least_share
    if plan.schedule.zero:
        share = np.where(problem.graph.phase >= Phase.UPDATE, share / layout.parts, share)
    return float(longest_remaining(problem.graph, op_seconds.min(axis=1) * share).max())


@compiled
def _fill_earliest(
    order: Ints, offsets: Ints, producers: Ints, control: Bools, carried_bytes: Floats, op_seconds: Floats,
    launch_seconds: Floats, latency: Floats, bandwidth: Floats, rested: Floats, earliest: Floats,
) -> None:  # fmt: skip
    """Write `earliest` and `rested`, (ops, devices) each; producers and bytes are those of each op's in-edges."""
    devices = len(launch_seconds)
    for op in order:
        for i in range(offsets[op], offsets[op + 1]):
            producer = producers[i]
            for there in range(devices):
                arrival = np.inf
                for here in range(devices):
                    if here != there:
                        delay = 0.0 if control[i] else latency[here, there] + carried_bytes[i] / bandwidth[here, there]
                        arrival = min(arrival, earliest[producer, here] + delay)
                earliest[op, there] = max(earliest[op, there], min(arrival, earliest[producer, there]))
                rested[op, there] = max(rested[op, there], min(arrival, rested[producer, there]))
        for device in range(devices):
            if op_seconds[op, device] > 0:
                earliest[op, device] = rested[op, device] + op_seconds[op, device]
                rested[op, device] = earliest[op, device] + launch_seconds[device]


def work_bound(problem: Problem, op_seconds: Floats) -> float:
    """All the work, spread perfectly: weak duality of the linear program that balances the devices' loads.

    A plan that divides the batch among replicas of an op does the shares of the op where its cheapest device would have
    done all of it at no more cost, and updates its weights on each: the bound is one of such plans, too.

    With launches, a device that is assigned ops V takes at least sum of (op_seconds + launch) over V, less the last
    launch. The step is the longest of these, hence no shorter than their mean under any weights, and in that mean each
    unit contributes at least its cheapest device's share. Two weights are tried: equal, and by speed.
    """
    launch = problem.hold_seconds
    occupied = problem.units.summed(Costs(op_seconds).busy_seconds(problem))
    total = occupied.sum(axis=0)
    weights = [np.full(len(launch), 1 / len(launch))]
    if (total > 0).all():
        weights.append((1 / total) / (1 / total).sum())
    return max(float((share * occupied).min(axis=1).sum() - (share * launch).sum()) for share in weights)
