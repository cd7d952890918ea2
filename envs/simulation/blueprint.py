"""Lowering: what all placements of a problem share, laid out as the engine reads it, in arrays of records."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.costs.costs import by_kind
from envs.simulation.compiled import compiled, inlined
from envs.simulation.topological import by_key, topological_position
from graphs.algorithms.order import ready_first
from graphs.op_graph import Bools, Floats, Ints, OpGraph, Phase
from graphs.op_graph.kinds import runs_again
from graphs.problem import Problem
from graphs.transforms.autograd_step import AutogradNodes
from graphs.transforms.module_calls import ENTERING, ModuleCalls

Indices = NDArray[np.uint32]  # unsigned: compiled code need not check whether they count from the end
Index = int | np.uint32  # one of them; numba compiles a function once for each of the two that it is called with
Records = NDArray[np.void]
Record = Any  # one of them
NONE = 2**32 - 1  # no index

OP = np.dtype(
    [
        ("priority", np.float64),  # the smaller goes first
        ("unit", np.uint32),
        ("inputs", np.uint32),  # in-edges, control edges included
        ("out_start", np.uint32),  # its out-edges: from here to control_start they carry its output, then messages,
        ("control_start", np.uint32),
        ("out_end", np.uint32),  # and from there to here they are control edges
        ("in_start", np.uint32),  # the data edges into it, in `inputs`
        ("in_end", np.uint32),
    ],
    align=True,
)
ISSUE = np.dtype(
    [
        ("turn", np.uint32),  # the smaller is issued first, whatever the priority, but by a process for each device
        ("position", np.uint32),  # in a topological order: of equal priorities the smaller is issued first
        ("op", np.float64),  # seconds of a thread for the op, if it takes time
        ("message", np.float64),  # for each copy, or message to another process, that it sends
        ("collectives", np.float64),  # and for collectives, whether it takes time or not
        ("is_step", np.bool_),  # its messages are a collective's, and no launches of their own
        ("node", np.uint32),  # the first op of those that autograd issues together with it
        ("size", np.uint32),  # of such a first op, how many they are: in the order of issue they follow each other
        ("awaits", np.uint32),  # of such a first op, edges to them from other ops of the same turn
        ("module", np.uint32),  # the call of a module in which it is called; NONE of what no plan makes longer
    ],
    align=True,
)
OUTPUT = np.dtype(
    [
        ("working_bytes", np.float64),  # what its op occupies in addition, while it runs
        ("made_bytes", np.float64),  # what it occupies where its op ran
        ("occupied_bytes", np.float64),  # and where a copy of it lies
        ("moved_bytes", np.float64),
        ("pace", np.float64),  # a transfer of it takes N times what its link says
    ]
)
EDGE = np.dtype([("consumer", np.uint32), ("output", np.uint32)])  # op, and what the edge carries
INPUT = np.dtype([("edge", np.uint32), ("output", np.uint32), ("producer", np.uint32)])  # a data edge: its position in
# `edges`, what it carries, and the op that it comes from
CARRIER = np.dtype([("edge", np.uint32), ("producer", np.uint32), ("output", np.uint32)])  # a data edge: its position
# in `edges`, the op that it comes from, and what it carries if it is no part of a sum
MODULE = np.dtype(
    [
        ("outer", np.uint32),  # the call of a module that it is part of, which comes before
        ("first", np.uint32),  # its first op that takes time
        ("looks", np.uint32),  # how many calls that are seen take as long as to enter it
        ("is_seen", np.bool_),  # wherever it runs
    ],
    align=True,
)
NEED = np.dtype([("module", np.uint32), ("op", np.uint32)])  # a call of a module, and what it has on its device
LINK = np.dtype([("latency", np.float64), ("bandwidth", np.float64), ("resource", np.uint32)], align=True)
SERVER = np.dtype(
    [
        ("hold", np.float64),  # seconds for which a resource rests after a task
        ("per_message", np.float64),  # of a device, seconds for which each message that it sends or receives holds it,
        ("per_byte", np.float64),  # and so much longer for each byte
        ("multicast", np.bool_),
    ],
    align=True,
)


class Blueprint(NamedTuple):
    """A problem and its costs.

    Resource r < devices is a device, then come channels, then all free links as one, and at last side streams.

    Output o < ops is that of op o, the others are messages of their own, each of one edge, or of a sum's.
    """

    fifo: bool  # first come, first served, whatever the priorities; with a host, in the order of issue
    host: bool  # ops start no sooner than a host has issued them
    clocked: bool  # which takes time for it
    in_order: bool  # threads of the host issue the ops in their order, not as autograd does
    per_device: bool  # there is one for each device
    waits: bool  # which waits for what it is sent, and for its device between passes
    fetch: float  # seconds of such a process before a forward pass
    streams: bool  # devices run strictly in the order of issue, and copies occupy both ends or side streams
    graphs: bool  # of CUDA: they read copies, in memory that these keep for the whole step
    messages_hold: bool  # messages hold some device that sends or receives them
    ops: Records  # (ops,)
    issue: Records  # (ops,) with a host
    placed: float  # seconds of a thread for each call of a model that is seen
    modules: Records  # (calls of modules,) of a model that is run by a plan; none if that takes a thread no longer
    needs: Records  # (needs,)
    sources: Indices  # (ops without in-edges,)
    op_seconds: Floats  # (ops, kinds)
    kind: Indices  # (devices,) of each device; one where all take the same for each op
    outputs: Records  # (outputs,)
    edges: Records  # (edges,) by producer
    follows: (
        Indices  # (edges,) with threads of autograd, the node that awaits the producer's; NONE in the same, and else
    )
    inputs: Records  # (data edges,) by consumer
    carriers: Records  # (data edges,) by output, where devices are streams
    carrier_start: Indices  # (outputs + 1,) where those of each begin
    links: Records  # (devices, devices)
    servers: Records  # (resources,)
    free: int  # the resource of links without contention; NONE if the cluster has none
    side: int  # the first of the streams of copies, one from each device to each; NONE if copies occupy devices
    use_start: Indices  # (weights + held tensors + 1,) where the uses of each begin, in `user`
    user: Indices  # (uses,) op
    kept_bytes: Floats  # (weights + held tensors,) for the whole step (`graphs.op_graph.{weight_memory,held_tensors}`)

    @classmethod
    def of(cls, problem: Problem, op_seconds: Floats, priority: Floats) -> Blueprint:
        """Arrays of a problem; `priority` is (ops,), or empty for first come, first served."""
        graph, cluster = problem.graph, problem.cluster
        rank = np.where(graph.control, 2, graph.has_message)  # of the out-edges of an op; a message is no control edge
        starts, order = by_key(3 * graph.edges[:, 0] + rank, 3 * len(graph))
        consumer = graph.edges[order, 1]
        data = np.flatnonzero(~graph.control[order])
        in_start, of_consumers = by_key(consumer[data], len(graph))
        ops = np.zeros(len(graph), OP)
        streams = problem.runtime.streams
        ops["priority"] = priority if len(priority) and not streams else 0.0
        ops["unit"] = graph.units
        ops["inputs"] = np.bincount(consumer, minlength=len(graph))
        ops["out_start"], ops["control_start"], ops["out_end"] = starts[:-1:3], starts[2::3], starts[3::3]
        ops["in_start"], ops["in_end"] = in_start[:-1], in_start[1:]
        inputs = np.zeros(len(data), INPUT)
        edges = np.zeros(len(order), EDGE)
        edges["consumer"], edges["output"] = consumer, _outputs(problem)[order]
        inputs["edge"] = data[of_consumers]
        inputs["output"] = edges["output"][inputs["edge"]]
        inputs["producer"] = graph.edges[order, 0][inputs["edge"]]
        carriers, carrier_start = _carriers(problem, order)
        outputs = np.zeros(len(graph.moved_bytes), OUTPUT)
        outputs["occupied_bytes"], outputs["moved_bytes"] = graph.occupied_bytes, graph.moved_bytes
        outputs["made_bytes"] = graph.made_bytes
        if len(graph.working_bytes):
            outputs["working_bytes"][: len(graph)] = graph.working_bytes
        outputs["pace"] = 1.0
        outputs["pace"][: len(problem.pace)] = problem.pace
        links = np.zeros(cluster.latency.shape, LINK)
        links["latency"], links["bandwidth"] = cluster.latency, cluster.bandwidth
        free = len(cluster) + len(cluster.gap)
        links["resource"] = np.where(cluster.is_free, free, cluster.channel + len(cluster))
        servers = np.zeros(free + 1, SERVER)
        servers["hold"][:free] = np.concatenate([problem.hold_seconds, cluster.gap])
        servers["per_message"][: len(cluster)] = cluster.message_seconds
        servers["per_byte"][: len(cluster)] = cluster.message_seconds_per_byte
        servers["multicast"][len(cluster) : free] = cluster.multicast
        has_free, has_sides = bool(cluster.is_free.any()), streams and problem.runtime.copies == "side"
        sides = len(cluster) ** 2 if has_sides else 0
        servers = np.append(servers if has_free else servers[:free], np.zeros(sides, SERVER))
        held = graph.held_tensors
        kept = np.concatenate([graph.weight_uses, held.uses + np.array([0, len(graph.weights)])])
        kept_bytes = _kept_bytes(problem)
        use_start, uses = by_key(kept[:, 1], len(kept_bytes))
        host, calls = problem.issuer, _seen_calls(problem)
        issue = _issue(problem, priority, calls)
        in_order = host is not None and (host.per_device or host.in_order)
        follows = _follows(issue, graph.edges[order]) if host is not None and not in_order else edges["output"][:0]
        return cls(
            len(priority) == 0 and host is None, host is not None, problem.host is not None,
            in_order, host is not None and host.per_device,
            host is not None and host.per_device and host.waits, 0.0 if host is None else host.fetch, streams,
            problem.runtime.graphs, bool((servers["per_message"] + servers["per_byte"]).any()) and not streams,
            ops, issue, *_modules(problem, calls, op_seconds), np.flatnonzero(ops["inputs"] == 0).astype(np.uint32),
            *_by_kind(op_seconds), outputs, edges, follows, inputs, carriers, carrier_start, links,
            servers, free if has_free else NONE, len(servers) - sides if sides else NONE,
            use_start, kept[uses, 0].astype(np.uint32),
            kept_bytes,
        )  # fmt: skip


def _by_kind(op_seconds: Floats) -> tuple[Floats, Indices]:
    """(ops, kinds) seconds, and (devices,) the kind of each, of (ops, devices) seconds."""
    seconds = by_kind(op_seconds)
    return np.array(seconds, order="C"), np.minimum(np.arange(op_seconds.shape[1]), seconds.shape[1] - 1).astype(
        np.uint32
    )


def _kept_bytes(problem: Problem) -> Floats:
    """(weights + held tensors,) for the whole step; CUDA graphs read copies, and gradients are copied out of theirs."""
    weights, held = problem.weight_memory, problem.graph.held_tensors.bytes
    if not problem.runtime.graphs:
        return np.concatenate([weights.bytes, held])
    return np.concatenate([weights.bytes + weights.gradient_bytes, 2 * held])


def _outputs(problem: Problem) -> Ints:
    """(edges,) what each edge carries; those of a sum carry the message of the first of them."""
    output = problem.graph.edge_output
    if problem.nodes is None or not (problem.nodes.sums >= 0).any():
        return output
    summed = np.flatnonzero(problem.nodes.sums >= 0)
    _, first, which = np.unique(problem.nodes.sums[summed], return_index=True, return_inverse=True)
    output = output.copy()
    output[summed] = output[summed[first]][which]
    return output


def _carriers(problem: Problem, order: Ints) -> tuple[Records, Indices]:
    """(data edges,) by output, and (outputs + 1,) where those of each begin; none but where devices are streams.

    `order` is (edges,): the edge of the graph at each position.
    """
    if not problem.runtime.streams:
        return np.zeros(0, CARRIER), np.zeros(1, np.uint32)
    graph = problem.graph
    data, position = np.flatnonzero(~graph.control), np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    start, by_output = by_key(_outputs(problem)[data], len(graph.moved_bytes))
    carriers = np.zeros(len(data), CARRIER)
    carriers["edge"] = position[data[by_output]]
    carriers["producer"] = graph.edges[data[by_output], 0]
    carriers["output"] = graph.edge_output[data[by_output]]
    return carriers, start


def _seen_calls(problem: Problem) -> ModuleCalls | None:
    """The calls of modules, where a thread takes longer for those that are seen."""
    runtime, host = problem.runtime, problem.issuer
    is_longer = runtime.streams and not runtime.plain and host is not None and host.placed > 0
    return ModuleCalls.of(problem.graph) if is_longer else None


def _issue(problem: Problem, priority: Floats, calls: ModuleCalls | None) -> Records:
    """(ops,) in which order a host issues the ops of its processes, and for how long; none without a host."""
    graph, host = problem.graph, problem.issuer
    priority = priority if len(priority) else np.zeros(len(graph))
    issue = np.zeros(0 if host is None else len(graph), ISSUE)
    if host is not None:
        issue["position"] = position = topological_position(graph.edges, len(graph))
        node = np.arange(len(graph))
        issue["turn"] = np.minimum(graph.phase, Phase.UPDATE)
        if problem.runtime.streams:
            nodes = AutogradNodes.none(graph) if problem.nodes is None else problem.nodes
            rank = np.lexsort((position, priority, nodes.deferred, issue["turn"])).argsort()
            order, node = _of_streams(graph.edges, rank, nodes.node)
            issue["position"][order] = np.arange(len(graph))
            issue["turn"][order] = np.maximum.accumulate(issue["turn"][order])
        issue["node"] = node
        issue["size"] = np.bincount(node, minlength=len(graph))
        source, reader = graph.edges.T
        awaits = (issue["turn"][source] == issue["turn"][reader]) & (node[source] != node[reader])
        issue["awaits"] = np.bincount(node[reader[awaits]], minlength=len(graph))
        issue["op"] = host.seconds(graph.phase)
        issue["message"] = host.collective if host.per_device or host.in_order else issue["op"]
        issue["module"] = NONE
        if calls is not None:
            called = _is_called(graph)
            issue["message"][called] += 0.0 if host.in_order else host.placed
            issue["module"][called] = np.maximum(calls.of_op[called], 0)
        if problem.nodes is not None:
            waits = np.flatnonzero(problem.nodes.deferred)
            for ops in (waits, graph.mirror[waits][graph.mirror[waits] >= 0]):
                issue["op"][np.unique(ops)] += host.deferral
        if (collectives := problem.collectives) is not None:
            issue["collectives"] = collectives.launches * host.collective
            issue["is_step"] = collectives.steps
    return issue


def _modules(problem: Problem, calls: ModuleCalls | None, op_seconds: Floats) -> tuple[float, Records, Records]:
    """What a call takes longer that is seen, the calls of modules, and what these need in one place."""
    graph = problem.graph
    modules = np.zeros(0 if calls is None else len(calls.outer), MODULE)
    if calls is None or problem.issuer is None:
        return 0.0, modules, np.zeros(0, NEED)
    modules["outer"], modules["looks"] = calls.outer, ENTERING * calls.times
    modules["first"] = calls.first(op_seconds.max(axis=1) > 0)
    is_seen = np.arange(len(modules)) == 0
    if problem.nodes is not None:
        is_seen[calls.of_op[graph.mirror[problem.nodes.deferred & (graph.mirror >= 0)]]] = True
    modules["is_seen"] = is_seen
    ops = np.flatnonzero(calls.of_op >= 0)
    needs = np.concatenate([np.column_stack([calls.of_op[ops], ops]), calls.reads])
    found = np.zeros(len(needs), NEED)
    found["module"], found["op"] = needs.T
    return problem.issuer.placed, modules, found


def _is_called(graph: OpGraph) -> Bools:
    """(ops,) whether the model's code calls each op, and not autograd or an optimizer: also what it computes again."""
    found: Bools = (graph.phase == Phase.FORWARD) | runs_again(graph)
    return found


def _follows(issue: Records, edges: Ints) -> Indices:
    """(edges,) the node of the consumer, where autograd issues it after the producer's, another; NONE elsewhere."""
    source, reader = edges.T
    node, backward = issue["node"], issue["turn"] == Phase.BACKWARD
    awaits = backward[source] & backward[reader] & (node[source] != node[reader])
    return np.where(awaits, node[reader], np.uint32(NONE))


def _of_streams(edges: Ints, rank: Ints, node: Ints) -> tuple[Ints, Ints]:
    """(ops,) a topological order in which those of a node follow each other, and (ops,) the first of each one's node.

    A stream that ran an op before what it reads would never end. `rank` is (ops,), the least goes first.
    """
    order = ready_first(edges, rank)
    if (node == np.arange(len(node))).all():
        return order, node
    least, position = np.full(len(node), len(node)), np.empty(len(node), np.int64)
    np.minimum.at(least, node, rank)
    between = node[edges]
    position[ready_first(between[between[:, 0] != between[:, 1]], least)] = np.arange(len(node))
    order = order[np.argsort(position[node[order]], kind="stable")]
    first, begins = np.empty(len(node), np.int64), np.append(True, np.diff(node[order]) != 0)
    first[node[order[begins]]] = order[begins]
    return order, first[node]


@compiled
def static_bytes(blueprint: Blueprint, placement: Indices, seen: Indices, total: Floats) -> None:
    """Write, per device, the bytes of what the ops there hold for the whole step: weights, buffers, inputs, each once.

    With CUDA graphs also gradients, as the user has them, and where graphs read what is given to them and copied.
    `placement` is that of each unit; `seen`, (devices,), is scratch.
    """
    total[:] = 0.0
    seen[:] = NONE
    for tensor in range(len(blueprint.kept_bytes)):
        for use in range(blueprint.use_start[tensor], blueprint.use_start[tensor + 1]):
            where = placement[blueprint.ops[blueprint.user[use]].unit]
            if seen[where] != tensor:
                seen[where] = tensor
                total[where] += blueprint.kept_bytes[tensor]
    if blueprint.graphs:
        _add_copies(blueprint, placement, seen, total)


@inlined
def _add_copies(blueprint: Blueprint, placement: Indices, seen: Indices, total: Floats) -> None:
    """Add the copies of outputs that each device gets."""
    seen[:] = NONE
    for index in range(len(blueprint.ops)):
        op = blueprint.ops[index]
        for edge in range(op.out_start, op.control_start):
            sent = blueprint.edges[edge]
            there = placement[blueprint.ops[sent.consumer].unit]
            if there != placement[op.unit] and seen[there] != sent.output:
                seen[there] = sent.output
                total[there] += blueprint.outputs[sent.output].occupied_bytes
