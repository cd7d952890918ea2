"""Random problems, small and full of ties: every kind of channel, hold, edge, weight and group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from envs.timelines.timeline import Timeline
from graphs.cluster import FREE, Cluster, Device
from graphs.host import Collectives, Host
from graphs.op_graph import Floats, Ints, OpGraph, Phase
from graphs.problem import Problem
from graphs.runtime import IDEAL, order_of
from graphs.transforms.autograd_step import AutogradNodes
from tests.oracle.oracle import Result
from tests.oracle.simpy_oracle import Times


@dataclass(frozen=True, eq=False)
class Case:
    """A problem and placements of it."""

    problem: Problem
    op_seconds: Floats  # those of the problem
    placements: Ints  # (plans, units)
    order: str | Floats  # one of the names, or a given order, (ops,)

    def per_op(self, plan: int) -> list[int]:
        devices: list[int] = self.placements[plan][self.problem.graph.units].tolist()
        return devices


def check_times(timeline: Timeline, expected: Result | Times) -> None:
    """A step is as an oracle says, to the bit."""
    moved = timeline.transfers
    copies = zip(moved.output, moved.producer, moved.destination, moved.start, moved.finish, strict=True)
    assert timeline.start.tolist() == expected.start
    assert timeline.finish.tolist() == expected.finish
    assert {tuple(copy): (start, finish) for *copy, start, finish in copies} == expected.copies
    assert timeline.step_seconds == expected.step_seconds


SECONDS = st.sampled_from((0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 0.1, 0.7))  # mostly whole, so that many events coincide
EXACT_SECONDS = st.sampled_from((0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 0.125, 0.75))  # whose sums are exact
PRECISIONS = st.sampled_from(("", "bf16"))
BYTES = st.integers(0, 4)


@st.composite
def cases(
    draw: st.DrawFn,
    max_ops: int = 8,
    max_devices: int = 4,
    plans: int = 3,
    messages: bool | None = None,
    paced: bool = False,
    host: bool = False,
    streams: bool = False,
) -> Case:
    """In half of the cases messages hold devices, or as given: then sums of seconds are exact, in any order.

    Transfers take what their links say unless they are `paced`, as in expanded plans. With a `host` ops are of all
    phases, and with `streams` devices run strictly in the order in which one issues them, if there is one.
    """
    ops, devices = draw(st.integers(1, max_ops)), draw(st.integers(1, max_devices))
    messages = draw(st.booleans()) if messages is None else messages
    cluster = draw(clusters(devices, messages=messages))
    problem = Problem(draw(graphs(ops)), cluster, draw(st.sampled_from(("sgd", "adam"))))
    values = EXACT_SECONDS if messages else SECONDS
    seconds = np.reshape(draw(st.lists(values, min_size=ops * devices, max_size=ops * devices)), (ops, devices))
    seconds[list(draw(st.sets(st.integers(0, ops - 1))))] = 0.0  # free everywhere; others may be free on some devices
    paces = st.lists(st.sampled_from((1.0, 1.0, 0.5, 3.0)), min_size=ops, max_size=ops)
    pace = draw(paces) if paced else []
    units = problem.graph.num_units
    places = draw(st.lists(st.integers(0, devices - 1), min_size=plans * units, max_size=plans * units))
    if streams:
        rules, hosted = st.sampled_from(("fifo", "longest_path")), st.none() | hosts(exact=messages)
        host_of_all = draw(hosted.map(lambda host: host and replace(host, per_device=False, in_order=False)))
        runtime = replace(IDEAL, order=order_of(draw(rules)), host=host_of_all, streams=True)
        runtime = replace(runtime, copies="side") if draw(st.booleans()) else runtime
        problem = replace(problem, graph=in_phases(draw, problem.graph), runtime=runtime)
        problem = in_nodes(draw, problem)
    elif host:
        drawn = draw(hosts(exact=messages))
        runtime = replace(IDEAL, host=drawn, graphs=draw(st.booleans()))
        problem = replace(problem, graph=in_phases(draw, problem.graph), runtime=runtime)
        counts = draw(st.none() | st.lists(st.integers(-1, 2), min_size=ops, max_size=ops))  # -1: no step
        if counts is not None and drawn.per_device:
            launches = np.array(counts)
            problem = replace(problem, collectives=Collectives(np.maximum(launches, 0), launches >= 0))
    return Case(
        replace(problem, op_seconds=seconds, pace=np.array(pace)),
        seconds,
        np.reshape(places, (plans, units)),
        draw(st.sampled_from(("fifo", "longest_path")) | given_orders(ops)),
    )


def hosts(*, exact: bool) -> st.SearchStrategy[Host]:
    """Slower than ops, as fast, faster, or of no cost; of one process, in order or not, or of one for each device."""
    seconds = st.sampled_from((0.0, 0.125 if exact else 0.1, 0.5, 1.0, 3.0))
    return st.builds(
        Host, seconds, seconds, seconds, seconds, st.booleans(), st.booleans(), seconds, in_order=st.booleans(),
        placed=seconds, deferral=seconds,
    )  # fmt: skip


def in_phases(draw: st.DrawFn, graph: OpGraph) -> OpGraph:
    """The same with phases that grow along every edge."""
    phase = np.array(draw(st.lists(st.sampled_from((0, 1, 1, 2, 3)), min_size=len(graph), max_size=len(graph))))
    for op in graph.topological_order.tolist():
        producers = graph.edges[graph.edges[:, 1] == op, 0]
        phase[op] = max([phase[op], *phase[producers]])
    return replace(graph, phase=phase)


def in_nodes(draw: st.DrawFn, problem: Problem) -> Problem:
    """The same with backward ops that are issued together, or wait, and with sums of gradients."""
    graph = problem.graph
    is_backward = graph.phase == Phase.BACKWARD
    node, backward = np.arange(len(graph)), [op for op in graph.topological_order.tolist() if is_backward[op]]
    for before, op in pairwise(backward):  # neighbours in an order: nodes wait in no circle
        if graph.units[before] == graph.units[op] and draw(st.booleans()):
            node[op] = node[before]
    deferred = is_backward & np.array([draw(st.booleans()) for _ in range(len(graph))])
    order = np.lexsort((graph.edges[:, 1], graph.edges[:, 0]))
    edge_bytes = (graph.edge_bytes if len(graph.edge_bytes) else np.full(len(order), np.nan))[order]
    graph = replace(graph, edges=graph.edges[order], control=graph.control[order], edge_bytes=edge_bytes)
    sums = np.full(len(order), -1)
    for op in backward:
        into = np.flatnonzero((graph.edges[:, 1] == op) & is_backward[graph.edges[:, 0]] & ~graph.control)
        if draw(st.booleans()):
            sums[into] = op
            edge_bytes[into] = draw(BYTES)
    return replace(problem, graph=replace(graph, edge_bytes=edge_bytes), nodes=AutogradNodes(node, deferred, sums))


def given_orders(ops: int) -> st.SearchStrategy[Floats]:
    """Numbers of which the smallest goes first, some of them equal."""
    return st.lists(st.integers(0, ops), min_size=ops, max_size=ops).map(lambda order: np.array(order, np.float64))


@st.composite
def graphs(draw: st.DrawFn, ops: int) -> OpGraph:
    name = draw(st.permutations(range(ops)))  # so that the order of ops is not a topological one
    edges = [
        (name[source], name[target])
        for target in range(1, ops)
        for source in draw(st.lists(st.integers(0, target - 1), max_size=3))
    ]
    weights = draw(st.lists(BYTES, max_size=3))
    use = st.tuples(st.integers(0, ops - 1), st.integers(0, max(len(weights) - 1, 0)))
    uses = draw(st.lists(use, max_size=5)) if weights else []
    frozen = draw(st.just([]) | st.lists(st.booleans(), min_size=len(weights), max_size=len(weights)))
    sent = draw(st.just([]) | st.lists(BYTES, min_size=ops, max_size=ops))
    resident = [draw(st.just([]) | st.lists(BYTES, min_size=ops, max_size=ops)) for _ in range(2)]
    message = st.just(np.nan) | st.integers(0, 4)
    messages = draw(st.just([]) | st.lists(message, min_size=len(edges), max_size=len(edges)))
    phase = np.zeros(ops, np.int64)
    phase[name[-1]] = draw(st.sampled_from((Phase.FORWARD, Phase.UPDATE)))
    return OpGraph(
        "random", tuple(f"op{i}" for i in range(ops)), ("any",) * ops, np.zeros(ops), np.zeros(ops),
        np.array(draw(st.lists(BYTES, min_size=ops, max_size=ops)), np.float64),
        np.reshape(np.array(edges, np.int64), (-1, 2)),
        control=np.array([draw(st.integers(0, 4)) == 0 for _ in edges], np.bool_),
        weights=np.array(weights, np.float64),
        weight_uses=np.reshape(np.array(uses, np.int64), (-1, 2)),
        phase=phase,
        group=np.array([max(draw(st.integers(-3, 1)), -1) for _ in range(ops)]),
        transfer_bytes=np.array(sent, np.float64),
        unsent_bytes=np.array(resident[0], np.float64),
        working_bytes=np.array(resident[1], np.float64),
        edge_bytes=np.array(messages, np.float64),
        frozen=np.array(frozen, np.bool_),
        precisions=tuple(draw(st.just([]) | st.lists(PRECISIONS, min_size=ops, max_size=ops))),
        weight_precisions=tuple(draw(st.just([]) | st.lists(PRECISIONS, min_size=len(weights), max_size=len(weights)))),
        gradient_precision=draw(st.sampled_from(("", "fp32"))),
        master_weights=draw(st.booleans()),
    )  # fmt: skip


@st.composite
def full_graphs(draw: st.DrawFn, ops: int) -> OpGraph:
    """The same with times and devices by op: all that few graphs say."""
    bare = draw(graphs(ops))
    times = st.lists(st.just(np.nan) | SECONDS, min_size=ops, max_size=ops).map(np.array)
    names = st.sets(st.sampled_from(("gpu", "cpu", "gpu:1"))).map(sorted).map(tuple)
    devices = tuple(draw(st.just([]) | st.lists(names, min_size=ops, max_size=ops)))
    return replace(
        bare,
        measured_on=draw(st.dictionaries(st.sampled_from(("gpu", "cpu:0")), times)),
        devices=devices if any(devices) else (),
    )


@st.composite
def clusters(draw: st.DrawFn, devices: int, messages: bool = False) -> Cluster:
    """With every kind of channel; with `messages`, these and the runner hold devices, too, for exact seconds."""

    def matrix(values: st.SearchStrategy[float]) -> Floats:
        return np.reshape(draw(st.lists(values, min_size=devices**2, max_size=devices**2)), (devices, devices))

    channels = draw(st.integers(1, 4))
    lowest = draw(st.sampled_from((0, 0, FREE)))
    part = 0.125 if messages else 0.1
    launch = st.sampled_from((0.0, 0.0, 1.0, part))
    holds = [st.sampled_from((0.0, 1.0, 0.25) if messages else (0.0,))] * 3
    return Cluster(
        "random",
        tuple(
            Device(f"gpu:{i}", "gpu", 1.0, 1.0, float(draw(st.integers(0, 20))), draw(launch), *map(draw, holds))
            for i in range(devices)
        ),
        latency=matrix(st.sampled_from((0.0, 0.0, 1.0, part))),
        bandwidth=matrix(st.sampled_from((1.0, 2.0, 4.0 if messages else 3.0, np.inf))),
        channel=matrix(st.integers(lowest, channels - 1)).astype(np.int64),
        gap=np.array([draw(launch) for _ in range(channels)]),
        multicast=np.array([draw(st.booleans()) for _ in range(channels)]),
    )
