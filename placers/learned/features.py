"""What a policy sees of a problem: features of units, of devices and of (unit, device) pairs.

Everything is relative to the problem at hand (its mean op, its critical path, its devices' memory), so that one
policy serves graphs and clusters of any size. GDP names op type and output shape as node features (section 3.1);
the other features are our choice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.costs.costs import Costs
from graphs.op_graph import Bools, Floats, Ints, OpGraph, Phase
from graphs.op_graph.kinds import by_kind
from graphs.op_graph.paths import earliest_starts, longest_remaining
from graphs.op_groups.units import Units
from graphs.problem import Problem

KIND_WORDS = {
    "matmul": ("mm", "linear", "einsum", "attention"),
    "convolution": ("conv",),
    "normalisation": ("norm",),
    "embedding": ("embedding", "gather", "index"),
    "pooling": ("pool",),
    "activation": ("relu", "tanh", "sigmoid", "softmax", "gelu", "silu"),
    "loss": ("loss", "nll", "cross_entropy"),
}  # the first match decides; what matches none is "other"
KINDS = (*KIND_WORDS, "other")

UNIT_FEATURES = (
    "work", "log_work", "communication", "static_bytes", "activation_bytes",
    "earliest_start", "longest_remaining", "slack", "work_before", "module_work_before", "bytes_before",
    "module_bytes_before", "fan_in", "fan_out",
    *KINDS,
    "total_static", "total_activations", "memory_pressure", "parallelism", "total_communication", "devices",
)  # fmt: skip
DEVICE_FEATURES = ("speed", "memory", "memory_need", "bandwidth", "centre", "first", "last", "share", "is_cpu")
PAIR_FEATURES = (
    "seconds", "static_fill", "work_offset", "module_work_offset", "bytes_offset", "module_bytes_offset",
)  # fmt: skip
Column = Floats | Bools | float  # of one feature, or a number for all rows


@dataclass(frozen=True, eq=False)
class Observation:
    """A problem as a policy sees it: float32 features and the edges among units."""

    units: NDArray[np.float32]  # (units, len(UNIT_FEATURES))
    devices: NDArray[np.float32]  # (devices, len(DEVICE_FEATURES))
    pairs: NDArray[np.float32]  # (units, devices, len(PAIR_FEATURES))
    edges: Ints  # (edges, 2) producer unit, consumer unit; each pair once


def observe(problem: Problem, costs: Costs) -> Observation:
    """Features of a problem under the given op seconds, each pair of units joined at most once."""
    units = problem.units
    seconds = units.summed(costs.op_seconds)  # (units, devices)
    work = seconds.mean(axis=1)  # (units,) seconds
    earliest, remaining, length = _span(problem.graph, costs.op_seconds.mean(axis=1))
    static = units.weight_bytes(problem.weight_state_bytes)  # (units,) of parameters, their gradients, optimizer state
    activations = units.summed(np.where(problem.graph.phase == Phase.FORWARD, problem.graph.output_bytes, 0.0))
    capacity = _capacity(problem, static.sum() + activations.sum())
    before = _shares_before(units, earliest, work, static + activations)
    of_units = {
        "earliest_start": earliest / length,
        "longest_remaining": remaining / length,
        "slack": 1 - (earliest + remaining) / length,
        **_work_features(problem, work, length),
        **_memory_features(problem, static, activations, capacity),
        **_kinds(problem.graph),
        **before,
    }
    of_devices = _device_features(problem, costs, activations)
    of_pairs = {
        "seconds": np.log((seconds + 1e-12) / (work[:, None] + 1e-12)),
        "static_fill": static[:, None] / capacity,
        **{name.replace("before", "offset"): share[:, None] - of_devices["centre"] for name, share in before.items()},
    }
    unit_table, device_table = joined(UNIT_FEATURES, of_units), joined(DEVICE_FEATURES, of_devices)
    return Observation(unit_table, device_table, joined(PAIR_FEATURES, of_pairs), units.forward_edges)


def joined(names: Sequence[str], features: Mapping[str, Column]) -> NDArray[np.float32]:
    """(..., names) features as columns in the order of their names."""
    columns = np.broadcast_arrays(*(features[name] for name in names))
    return np.stack(columns, axis=-1).astype(np.float32)


def _work_features(problem: Problem, work: Floats, critical_path: float) -> dict[str, Column]:
    units, count = problem.units, len(work)
    sent = _mean_transfer_seconds(problem)
    total = max(work.sum(), 1e-12)
    producers, consumers = units.forward_edges.T
    return {
        "work": np.log1p(work / total * count),
        "log_work": np.log(work / total + 1e-6) / 4,
        "communication": np.log1p(units.summed(sent) / total * count),
        "fan_in": np.log1p(np.bincount(consumers, minlength=count)),
        "fan_out": np.log1p(np.bincount(producers, minlength=count)),
        "parallelism": np.log(total / critical_path),
        "total_communication": np.log1p(sent.sum() / total),
        "devices": 1 / len(problem.cluster),
    }


def _memory_features(problem: Problem, static: Floats, activations: Floats, capacity: Floats) -> dict[str, Column]:
    memory, weights = capacity.mean(), _distinct_weight_bytes(problem)
    return {
        "static_bytes": static / memory,
        "activation_bytes": activations / memory,
        "total_static": np.log1p(weights / memory),
        "total_activations": np.log1p(activations.sum() / memory),
        "memory_pressure": (weights + activations.sum()) / capacity.sum(),
    }


def _shares_before(units: Units, earliest: Floats, work: Floats, held: Floats) -> dict[str, Floats]:
    """Shares of all work and of all bytes before each unit, by its own start and by that of its module."""
    place = np.argsort(np.argsort(earliest, kind="stable"))  # ties by index: equal branches must differ somewhere
    modules = _module_entry(units, earliest)
    shares = {}
    for name, amount in (("work", work), ("bytes", held)):
        shares[f"{name}_before"] = _fraction_before(amount, place)
        shares[f"module_{name}_before"] = _fraction_before(amount, modules)
    return shares


def _span(graph: OpGraph, seconds: Floats) -> tuple[Floats, Floats, float]:
    """Without communication: (units,) earliest start of the forward ops, (units,) path behind them, critical path."""
    start, tail = earliest_starts(graph, seconds), longest_remaining(graph, seconds)
    earliest, remaining = np.full(graph.num_units, np.inf), np.zeros(graph.num_units)
    np.minimum.at(earliest, graph.units, start)
    np.maximum.at(remaining, graph.units, tail)
    return earliest, remaining, max(float(tail.max()), 1e-12)


def _mean_transfer_seconds(problem: Problem) -> Floats:
    """(ops,) seconds to send each op's output and messages to another device, mean over pairs; 0 without readers."""
    cluster, graph = problem.cluster, problem.graph
    apart = ~np.eye(len(cluster), dtype=np.bool_)
    if not apart.any():
        return np.zeros(len(graph))
    per_byte, latency = (1 / cluster.bandwidth[apart]).mean(), cluster.latency[apart].mean()
    outputs, first = np.unique(graph.edge_output[~graph.control], return_index=True)
    sender = graph.edges[~graph.control, 0][first]
    seconds = latency + graph.moved_bytes[outputs] * per_byte
    return np.bincount(sender, weights=seconds, minlength=len(graph)).astype(np.float64)


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
    whenever it runs: this distinguishes layers. A unit without parameters has the latest entry among its producers.
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


def kind_index(kind: str) -> int:
    """The index in KINDS of an op kind, such as "aten.convolution"."""
    matching = (i for i, words in enumerate(KIND_WORDS.values()) if any(word in kind for word in words))
    return next(matching, len(KIND_WORDS))


def _kinds(graph: OpGraph) -> dict[str, Floats]:
    """(units,) each: 1 for the kind of the unit's most expensive forward op, and 0 for the others."""
    cost = np.where(graph.phase == Phase.FORWARD, graph.flops + graph.bytes_accessed, -1.0)
    order = np.lexsort((cost, graph.units))
    dearest = order[np.flatnonzero(np.diff(graph.units[order], append=graph.num_units))]  # the last of each unit's
    kinds = by_kind(graph, kind_index)[dearest]
    return {name: (kinds == index).astype(np.float64) for index, name in enumerate(KINDS)}


def _device_features(problem: Problem, costs: Costs, activations: Floats) -> dict[str, Column]:
    cluster, count = problem.cluster, len(problem.cluster)
    slowness = costs.op_seconds.sum(axis=0)
    index = np.arange(count)
    bandwidth = np.where(np.eye(count), np.nan, cluster.bandwidth)
    outgoing = np.nanmean(bandwidth, axis=1) if count > 1 else np.ones(1)
    need = _distinct_weight_bytes(problem) + activations.sum()
    capacity = _capacity(problem, need)
    return {
        "speed": np.log(slowness.mean() / np.maximum(slowness, 1e-12)) if slowness.any() else 0.0,
        "memory": np.log(capacity / capacity.mean()),
        "memory_need": np.log(capacity / max(need, 1.0)) / 4,
        "bandwidth": np.log(outgoing / outgoing.mean()),
        "centre": (index + 0.5) / count,
        "first": index == 0,
        "last": index == count - 1,
        "share": 1 / count,
        "is_cpu": cluster.is_cpu,
    }
