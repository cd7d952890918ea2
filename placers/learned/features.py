"""What a policy sees of a problem: features of units, of devices and of (unit, device) pairs.

Everything is relative to the problem at hand (its mean op, its critical path, its devices' memory), so that one
policy serves graphs and clusters of any size. GDP names op type and output shape as node features (section 3.1);
the other features are our choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.costs.costs import Costs
from envs.simulation.simulator import longest_remaining
from graphs.op_graph import Floats, Ints, OpGraph, Phase
from graphs.problem import Problem
from graphs.units import Units

KIND_WORDS = {
    "matmul": ("mm", "linear", "einsum", "attention"),
    "convolution": ("conv",),
    "normalisation": ("norm",),
    "embedding": ("embedding", "gather", "index"),
    "pooling": ("pool",),
    "activation": ("relu", "tanh", "sigmoid", "softmax", "gelu", "silu"),
    "loss": ("loss", "nll", "cross_entropy"),
}  # the first match decides; what matches none is "other"

UNIT_FEATURES = (
    "work", "log_work", "communication", "static_bytes", "activation_bytes",
    "earliest_start", "longest_remaining", "slack", "work_before", "module_work_before", "bytes_before",
    "module_bytes_before", "fan_in", "fan_out",
    *KIND_WORDS, "other",
    "total_static", "total_activations", "memory_pressure", "parallelism", "total_communication", "devices",
)  # fmt: skip
DEVICE_FEATURES = ("speed", "memory", "memory_need", "bandwidth", "centre", "first", "last", "share", "is_cpu")
PAIR_FEATURES = (
    "seconds", "static_fill", "work_offset", "module_work_offset", "bytes_offset", "module_bytes_offset",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Observation:
    """A problem as a policy sees it: float32 features and the edges among units."""

    units: np.ndarray  # (units, len(UNIT_FEATURES)) float32
    devices: np.ndarray  # (devices, len(DEVICE_FEATURES)) float32
    pairs: np.ndarray  # (units, devices, len(PAIR_FEATURES)) float32
    edges: Ints  # (edges, 2) producer unit, consumer unit; each pair once


def observe(problem: Problem, costs: Costs) -> Observation:
    """Features of a problem under the given op seconds, each pair of units joined at most once."""
    graph, cluster = problem.graph, problem.cluster
    units, count = problem.units, graph.num_units
    pair_seconds = units.summed(costs.op_seconds)
    work = pair_seconds.mean(axis=1)
    sent = _mean_transfer_seconds(problem)
    span = _Span.of(graph, costs.op_seconds.mean(axis=1))
    static, activations = _unit_bytes(problem)
    capacity = _capacity(problem, static.sum() + activations.sum())
    memory = capacity.mean()
    edges = units.forward_edges
    modules = _module_entry(units, span.earliest)
    held = static + activations
    place = np.argsort(np.argsort(span.earliest, kind="stable"))  # ties by index: equal branches must differ somewhere
    shares = np.stack(
        [
            _fraction_before(work, place),
            _fraction_before(work, modules),
            _fraction_before(held, place),
            _fraction_before(held, modules),
        ],
        axis=1,
    )
    total = max(work.sum(), 1e-12)
    per_unit = np.stack(
        [
            np.log1p(work / total * count),
            np.log(work / total + 1e-6) / 4,
            np.log1p(units.summed(sent) / total * count),
            static / memory,
            activations / memory,
            span.earliest / span.length,
            span.remaining / span.length,
            1 - (span.earliest + span.remaining) / span.length,
            *shares.T,
            np.log1p(np.bincount(edges[:, 1], minlength=count)),
            np.log1p(np.bincount(edges[:, 0], minlength=count)),
        ],
        axis=1,
    )
    whole = np.array(
        [
            np.log1p(_distinct_weight_bytes(problem) / memory),
            np.log1p(activations.sum() / memory),
            (_distinct_weight_bytes(problem) + activations.sum()) / capacity.sum(),
            np.log(total / span.length),
            np.log1p(sent.sum() / total),
            1 / len(cluster),
        ]
    )
    features = np.concatenate([per_unit, _kinds(graph, work), np.tile(whole, (count, 1))], axis=1)
    devices = _device_features(problem, costs)
    centre = devices[:, DEVICE_FEATURES.index("centre")]
    pairs = np.concatenate(
        [
            np.log((pair_seconds + 1e-12) / (work[:, None] + 1e-12))[:, :, None],
            (static[:, None] / capacity[None, :])[:, :, None],
            shares[:, None, :] - centre[None, :, None],
        ],
        axis=2,
    )
    return Observation(features.astype(np.float32), devices.astype(np.float32), pairs.astype(np.float32), edges)


@dataclass(frozen=True, eq=False)
class _Span:
    """When each unit's forward ops could start and how long the path behind them is, without communication."""

    earliest: Floats  # (units,) seconds
    remaining: Floats  # (units,) seconds, own duration included
    length: float  # the critical path, seconds

    @classmethod
    def of(cls, graph: OpGraph, seconds: Floats) -> _Span:
        start, tail = np.zeros(len(graph)), longest_remaining(graph, seconds)
        in_offsets, in_edges = graph.predecessors
        sources = graph.edges[:, 0]
        for op in graph.topological_order:
            before = sources[in_edges[in_offsets[op] : in_offsets[op + 1]]]
            start[op] = (start[before] + seconds[before]).max(initial=0.0)
        earliest, remaining = np.full(graph.num_units, np.inf), np.zeros(graph.num_units)
        np.minimum.at(earliest, graph.units, start)
        np.maximum.at(remaining, graph.units, tail)
        return cls(earliest, remaining, max(float(tail.max()), 1e-12))


def _mean_transfer_seconds(problem: Problem) -> Floats:
    """(ops,) seconds to send each op's output, and its messages, to another device, mean over pairs.

    It is 0 where nobody consumes it.
    """
    cluster, graph = problem.cluster, problem.graph
    apart = ~np.eye(len(cluster), dtype=np.bool_)
    if not apart.any():
        return np.zeros(len(graph))
    per_byte, latency = (1 / cluster.bandwidth[apart]).mean(), cluster.latency[apart].mean()
    outputs, first = np.unique(graph.edge_output[~graph.control], return_index=True)
    sender = graph.edges[~graph.control, 0][first]
    seconds = latency + graph.moved_bytes[outputs] * per_byte
    return np.bincount(sender, weights=seconds, minlength=len(graph)).astype(np.float64)


def _unit_bytes(problem: Problem) -> tuple[Floats, Floats]:
    """(units,) bytes of parameters with their gradients and optimizer state, and of forward outputs."""
    graph = problem.graph
    activations = problem.units.summed(np.where(graph.phase == Phase.FORWARD, graph.output_bytes, 0.0))
    return problem.units.weight_bytes(problem.weight_state_bytes), activations


def _distinct_weight_bytes(problem: Problem) -> float:
    used = np.unique(problem.graph.weight_uses[:, 1])
    return float(problem.weight_state_bytes[used].sum())


def _capacity(problem: Problem, need: float) -> Floats:
    """(devices,) bytes of memory: at least one, and for a device without limit as much as all others, and the need."""
    memory = np.maximum(problem.cluster.memory_bytes, 1.0)
    endless = np.isinf(memory)
    return np.where(endless, max(float(memory[~endless].sum()), need, 1.0), memory)


def _fraction_before(amount: Floats, key: Floats | Ints) -> Floats:
    """(units,) share of an amount that lies before the middle of all units with the same key, in order of keys."""
    places, inverse = np.unique(key, return_inverse=True)
    share = np.bincount(inverse, weights=amount, minlength=len(places)) / max(amount.sum(), 1e-12)
    middle: Floats = np.cumsum(share) - share / 2
    return middle[inverse]


def _module_entry(units: Units, earliest: Floats) -> Floats:
    """(units,) when the parameters that each unit reads could first be used, seconds.

    In a recurrent net unrolled in time every step of a layer reads the same parameters, and so has the same entry,
    whenever it runs: this tells layers apart. A unit without parameters has the latest entry among its producers.
    """
    readers, tensors = units.weight_uses.T
    first_use = np.full(len(units.graph.weights), np.inf)
    np.minimum.at(first_use, tensors, earliest[readers])
    entry = np.full(len(units), -np.inf)
    np.maximum.at(entry, readers, first_use[tensors])
    order = np.argsort(earliest, kind="stable")
    producers: dict[int, list[int]] = {}
    for source, target in units.forward_edges.tolist():
        producers.setdefault(target, []).append(source)
    for unit in order[np.isinf(entry[order])].tolist():
        entry[unit] = max((entry[p] for p in producers.get(unit, [])), default=0.0)
    entry[np.isinf(entry)] = 0.0
    return entry


def _kinds(graph: OpGraph, work: Floats) -> Floats:
    """(units, kinds) one-hot kind of each unit's most expensive forward op."""
    cost = np.where(graph.phase == Phase.FORWARD, graph.flops + graph.bytes_accessed, -1.0)
    order = np.lexsort((cost, graph.units))
    last = np.flatnonzero(np.diff(graph.units[order], append=len(work)))
    hot = np.zeros((len(work), len(KIND_WORDS) + 1))
    for unit, op in enumerate(order[last]):
        kind = graph.kinds[op]
        words = (i for i, found in enumerate(KIND_WORDS.values()) if any(word in kind for word in found))
        hot[unit, next(words, len(KIND_WORDS))] = 1.0
    return hot


def _device_features(problem: Problem, costs: Costs) -> Floats:
    cluster = problem.cluster
    count = len(cluster)
    slowness = costs.op_seconds.sum(axis=0)
    index = np.arange(count)
    bandwidth = np.where(np.eye(count), np.nan, cluster.bandwidth)
    outgoing = np.nanmean(bandwidth, axis=1) if count > 1 else np.ones(1)
    need = _distinct_weight_bytes(problem) + _unit_bytes(problem)[1].sum()
    capacity = _capacity(problem, need)
    return np.stack(
        [
            np.log(slowness.mean() / np.maximum(slowness, 1e-12)) if slowness.any() else np.zeros(count),
            np.log(capacity / capacity.mean()),
            np.log(capacity / max(need, 1.0)) / 4,
            np.log(outgoing / outgoing.mean()),
            (index + 0.5) / count,
            index == 0,
            index == count - 1,
            np.full(count, 1 / count),
            cluster.is_cpu,
        ],
        axis=1,
    )
